//! Draws pictures: marks on planes of two axes.

use std::fmt::Write as _;

use super::{Axis, escaped};

/// Width of a picture with one plane, and its height above the legend.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
/// Height of a legend entry.
const LEGEND_ENTRY: f64 = 16.0;
/// Width and height of one of several planes.
const PANEL: (f64, f64) = (420.0, 240.0);

/// Colours of series, in their order.
const COLOURS: [&str; 10] = [
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#9498a0",
];

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Joined by a line.
    Line,
    /// Joined by a line of dashes.
    Dashes,
    /// Separate small points, for thousands of values.
    Points,
    /// Separate larger points, for a few values.
    Marks,
    /// Separate points, joined by a thin line.
    Means,
}

impl Look {
    /// Draws a piece at these coordinates. A line of one value is a point.
    fn piece(self, text: &mut String, places: &[(f64, f64)], colour: &str) {
        let (radius, line) = match (self, places.len()) {
            (Self::Points, _) | (Self::Line | Self::Dashes, 1) => (Some(2), None),
            (Self::Marks, _) => (Some(4), None),
            (Self::Means, _) => (Some(3), Some("")),
            (Self::Line, _) => (None, Some(" stroke-width=\"1.5\"")),
            (Self::Dashes, _) => (None, Some(" stroke-width=\"1.5\" stroke-dasharray=\"4 3\"")),
        };
        if let Some(radius) = radius {
            for (cx, cy) in places {
                let _ = writeln!(
                    text,
                    "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"
                );
            }
        }
        if let Some(line) = line {
            let pairs = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}"));
            let _ = writeln!(
                text,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"{line}/>",
                pairs.collect::<Vec<_>>().join(" ")
            );
        }
    }
}

/// A series of values with one name and colour.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlotSeries {
    pub(crate) name: String,
    pub(crate) look: Look,
    /// Points, in pieces without gaps.
    pub(crate) points: Vec<Vec<(f64, f64)>>,
    /// Error bars: x, and the two ends in y.
    pub(crate) bars: Vec<(f64, f64, f64)>,
}

impl PlotSeries {
    /// A series without error bars.
    pub(crate) const fn new(name: String, look: Look, points: Vec<Vec<(f64, f64)>>) -> Self {
        Self {
            name,
            look,
            points,
            bars: Vec::new(),
        }
    }
}

/// Two axes with what is drawn between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plane {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Shaded ranges of x with their names.
    pub(crate) spans: Vec<(f64, f64, String)>,
    pub(crate) drawn: Vec<PlotSeries>,
}

fn picture(size: &str, font_size: u8, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} font-family=\"sans-serif\" \
         font-size=\"{font_size}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         {body}</svg>\n"
    )
}

impl Plane {
    /// A picture of this plane, with a legend below.
    pub(crate) fn svg(&self) -> String {
        // Addresses are longer labels than numbers.
        let longest = self.y.labels.iter().map(|(_, label)| label.len()).max();
        #[expect(clippy::cast_precision_loss, reason = "the letters of a label")]
        let left = 7.5 * longest.unwrap_or(0) as f64 + 12.0;
        #[expect(clippy::cast_precision_loss, reason = "a handful of names")]
        let height = HEIGHT + LEGEND_ENTRY * self.drawn.len() as f64;
        let mut body = String::new();
        self.draw(&mut body, [left.max(80.0), 925.0, 40.0, 360.0], false);
        picture(&format!("viewBox=\"0 0 {WIDTH} {height}\""), 12, &body)
    }

    /// A picture of several planes, two in a row.
    pub(crate) fn panels(planes: &[Self]) -> String {
        let (width, height) = PANEL;
        #[expect(clippy::cast_precision_loss, reason = "three rows at most")]
        let rows = planes.len().div_ceil(2).max(1) as f64;
        let size = format!("width=\"{}\" height=\"{}\"", 2.0 * width, rows * height);
        let mut body = String::new();
        for (at, plane) in (0_u32..).zip(planes) {
            let (x, y) = (f64::from(at % 2) * width, f64::from(at / 2) * height);
            let ends = [x + 60.0, x + width - 60.0, y + 40.0, y + height - 40.0];
            plane.draw(&mut body, ends, true);
        }
        picture(&size, 11, &body)
    }

    /// Draws the plane between these ends: left, right, top and bottom. A panel has a border; a
    /// plane alone has a line at each label of y, and a legend.
    fn draw(&self, text: &mut String, ends: [f64; 4], is_panel: bool) {
        let [left, right, top, bottom] = ends;
        let (title_size, label_gap) = match is_panel {
            true => (13.0, 16.0),
            false => (15.0, 18.0),
        };
        let x = |value: f64| left + (right - left) * self.x.place(value);
        let y = |value: f64| bottom - (bottom - top) * self.y.place(value);
        let _ = writeln!(
            text,
            "<text x=\"{left}\" y=\"{}\" font-size=\"{title_size}\">{}</text>",
            top - title_size - 1.0,
            escaped(&self.title)
        );
        if is_panel {
            let _ = writeln!(
                text,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" \
                 stroke=\"gray\"/>",
                right - left,
                bottom - top
            );
        }
        // Names that would overlap the previous one are left out.
        let mut free_from = 0.0;
        for (from, to, name) in &self.spans {
            let (from, to) = (x(*from).max(left), x(*to).min(right));
            let _ = writeln!(
                text,
                "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" fill=\"#5a6673\" \
                 opacity=\"0.12\"/>",
                (to - from).max(0.0),
                bottom - top,
            );
            #[expect(clippy::cast_precision_loss, reason = "the letters of a name")]
            let needed = 7.0 * name.chars().count() as f64;
            if from >= free_from && to - from >= needed {
                free_from = from + needed;
                let _ = writeln!(
                    text,
                    "<text x=\"{from:.1}\" y=\"{:.1}\" font-size=\"11\" \
                     fill=\"#5a6673\">{}</text>",
                    top - 3.0,
                    escaped(name)
                );
            }
        }
        for (value, label) in &self.y.labels {
            let py = y(*value);
            if !is_panel {
                let _ = write!(
                    text,
                    "<path d=\"M{left} {py:.1}H{right}\" stroke=\"#ddd\"/>"
                );
            }
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                py + 4.0,
                escaped(label),
            );
        }
        for (value, label) in &self.x.labels {
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(*value),
                bottom + label_gap,
                escaped(label),
            );
        }
        for (at, drawn) in self.drawn.iter().enumerate() {
            let colour = match drawn.look {
                Look::Means => "steelblue",
                _ => COLOURS[at % COLOURS.len()],
            };
            for (bar, low, high) in &drawn.bars {
                let _ = writeln!(
                    text,
                    "<path d=\"M{:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/>",
                    x(*bar),
                    y(*low),
                    y(*high)
                );
            }
            for piece in &drawn.points {
                let places = piece.iter().map(|(px, py)| (x(*px), y(*py)));
                drawn.look.piece(text, &places.collect::<Vec<_>>(), colour);
            }
            if is_panel {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "a handful of names")]
            let place = HEIGHT + LEGEND_ENTRY * at as f64;
            let _ = writeln!(
                text,
                "<rect x=\"{left}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{place:.1}\">{}</text>",
                place - 9.0,
                left + 16.0,
                escaped(&drawn.name)
            );
        }
    }
}

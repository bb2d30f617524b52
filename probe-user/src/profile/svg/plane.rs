//! Draws a picture: marks on a plane of two axes, with a legend below.

use std::fmt::Write as _;

use super::escaped;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
/// Left, right, top and bottom of the plot area; the legend is below.
const FRAME: (f64, f64, f64, f64) = (80.0, 925.0, 40.0, 360.0);
/// Height of a legend entry.
const NAME: f64 = 16.0;

const COLOURS: [&str; 10] = [
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#9498a0",
];

/// One of the axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::profile) struct Axis {
    /// Its two ends.
    pub(in crate::profile) ends: (f64, f64),
    /// Whether the scale is logarithmic.
    pub(in crate::profile) logarithmic: bool,
    /// Positions and texts of its labels.
    pub(in crate::profile) names: Vec<(f64, String)>,
}

impl Axis {
    /// Relative position of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let of = |value: f64| match self.logarithmic {
            true => value.log10(),
            false => value,
        };
        let (low, high) = self.ends;
        (of(value) - of(low)) / (of(high) - of(low))
    }
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::profile) enum Look {
    /// Joined by a line.
    Line,
    /// Joined by a line of dashes.
    Dashes,
    /// Each by itself, one of thousands.
    Points,
    /// Each by itself, one of a few.
    Marks,
}

/// A series of values with one name and colour.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::profile) struct PlotSeries {
    pub(in crate::profile) name: String,
    pub(in crate::profile) look: Look,
    /// Points, in pieces without gaps.
    pub(in crate::profile) points: Vec<Vec<(f64, f64)>>,
    /// Error bars: x, and the two ends in y.
    pub(in crate::profile) bars: Vec<(f64, f64, f64)>,
}

/// A picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::profile) struct Plane {
    pub(in crate::profile) title: String,
    pub(in crate::profile) x: Axis,
    pub(in crate::profile) y: Axis,
    /// Shaded ranges of x with their names.
    pub(in crate::profile) spans: Vec<(f64, f64, String)>,
    pub(in crate::profile) drawn: Vec<PlotSeries>,
}

impl Plane {
    pub(in crate::profile) fn svg(&self) -> String {
        let (left, right, top, bottom) = FRAME;
        // Addresses are longer labels than numbers.
        let longest = self.y.names.iter().map(|(_, name)| name.len()).max();
        #[expect(clippy::cast_precision_loss, reason = "the letters of a name")]
        let left = left.max(7.5 * longest.unwrap_or(0) as f64 + 12.0);
        let x = |value: f64| left + (right - left) * self.x.place(value);
        let y = |value: f64| bottom - (bottom - top) * self.y.place(value);
        #[expect(clippy::cast_precision_loss, reason = "a handful of names")]
        let height = HEIGHT + NAME * self.drawn.len() as f64;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{left}\" y=\"24\" font-size=\"15\">{}</text>\n",
            escaped(&self.title)
        );
        // Names that would overlap the previous one are left out.
        let mut taken = 0.0;
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
            if from >= taken && to - from >= needed {
                taken = from + needed;
                let _ = writeln!(
                    text,
                    "<text x=\"{from:.1}\" y=\"{:.1}\" font-size=\"11\" \
                     fill=\"#5a6673\">{}</text>",
                    top - 3.0,
                    escaped(name)
                );
            }
        }
        for (value, name) in &self.y.names {
            let py = y(*value);
            let _ = writeln!(
                text,
                "<path d=\"M{left} {py:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                py + 4.0,
                escaped(name),
            );
        }
        for (value, name) in &self.x.names {
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(*value),
                bottom + 18.0,
                escaped(name),
            );
        }
        for (at, drawn) in self.drawn.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
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
                drawn.piece(&mut text, &places.collect::<Vec<_>>(), colour);
            }
            #[expect(clippy::cast_precision_loss, reason = "a handful of names")]
            let place = HEIGHT + NAME * at as f64;
            let _ = writeln!(
                text,
                "<rect x=\"{left}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{place:.1}\">{}</text>",
                place - 9.0,
                left + 16.0,
                escaped(&drawn.name)
            );
        }
        text.push_str("</svg>\n");
        text
    }
}

impl PlotSeries {
    /// Draws a piece at these coordinates.
    fn piece(&self, text: &mut String, places: &[(f64, f64)], colour: &str) {
        let by_itself = matches!(self.look, Look::Points | Look::Marks);
        if by_itself || places.len() == 1 {
            let radius = if self.look == Look::Marks { 4 } else { 2 };
            for (cx, cy) in places {
                let _ = writeln!(
                    text,
                    "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"
                );
            }
            return;
        }
        let dashes = match self.look {
            Look::Dashes => " stroke-dasharray=\"4 3\"",
            _ => "",
        };
        let mut path = String::new();
        for (px, py) in places {
            let _ = write!(path, "{px:.1},{py:.1} ");
        }
        let path = path.trim_end();
        let _ = writeln!(
            text,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"1.5\"{dashes}/>"
        );
    }
}

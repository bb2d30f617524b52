//! Draws terminals in a column, and an image to their right, as SVG.

use std::{fmt::Write as _, mem};

use vt100::{Cell, Color, Parser};

/// Width and height of a character in pixels.
const CHARACTER: [u32; 2] = [8, 17];

/// Pixels around and between the parts.
const MARGIN: u32 = 14;

/// The 16 ANSI colours, as many terminals show them.
const COLOURS: [&str; 16] = [
    "#1e1e1e", "#f14c4c", "#23d18b", "#e5e510", "#3b8eea", "#d670d6", "#29b8db", "#d4d4d4",
    "#7f7f7f", "#ff6e67", "#5ff967", "#f5f543", "#6cb6ff", "#ff77ff", "#60fdff", "#ffffff",
];
const BACKGROUND: &str = COLOURS[0];
const FOREGROUND: &str = COLOURS[7];

/// An SVG under construction: parts are added to its last column.
pub(super) struct Svg {
    body: String,
    /// Left edge of the last column. `width` and `height` are its size.
    left: u32,
    width: u32,
    height: u32,
}

impl Svg {
    pub(super) fn new() -> Self {
        Self {
            body: String::new(),
            left: MARGIN,
            width: 0,
            height: 0,
        }
    }

    /// Adds what a command shows on a terminal.
    pub(super) fn add_terminal(&mut self, verb: &str, terminal: &Parser) {
        let screen = terminal.screen();
        let (lines, columns) = screen.size();
        let (lines, columns) = (lines.get(), columns.get());
        let [width, height] = CHARACTER;
        self.add_prompt(verb);
        for line in 0..lines {
            let top = self.height + u32::from(line) * height;
            let cells: Vec<&Cell> = (0..columns)
                .filter_map(|column| screen.cell(line, column))
                .collect();
            let mut column = 0;
            for run in cells.chunk_by(|a, b| style(a) == style(b)) {
                self.add_run([self.left + column * width, top], run);
                column += u32::try_from(run.len()).unwrap_or(0);
            }
        }
        self.grow(u32::from(columns) * width, u32::from(lines) * height);
    }

    /// Adds a PNG in base64 in a new column, scaled from `size` to two thirds of it.
    pub(super) fn add_image(&mut self, verb: &str, size: [u32; 2], png: &str) {
        let terminals_height = mem::take(&mut self.height);
        self.left += self.width + MARGIN;
        self.width = 0;
        self.add_prompt(verb);
        let [width, height] = size.map(|it| it * 2 / 3);
        let _ = writeln!(
            self.body,
            "<image x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" \
             href=\"data:image/png;base64,{png}\"/>",
            self.left, self.height,
        );
        self.grow(width, height);
        self.height = self.height.max(terminals_height);
    }

    pub(super) fn finish(self) -> String {
        let (width, height) = (self.left + self.width + MARGIN, self.height + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"ui-monospace, SFMono-Regular, \
             Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"13\" \
             xml:space=\"preserve\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
             fill=\"{BACKGROUND}\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn add_prompt(&mut self, verb: &str) {
        self.height += MARGIN;
        let baseline = self.height + CHARACTER[1] - 4;
        let _ = writeln!(
            self.body,
            r##"<text x="{}" y="{baseline}" fill="{}"># pmuscope {verb}</text>"##,
            self.left, COLOURS[10],
        );
        self.height += CHARACTER[1];
    }

    /// Adds cells of one style.
    fn add_run(&mut self, [left, top]: [u32; 2], cells: &[&Cell]) {
        let [width, height] = CHARACTER;
        let (mut ink, mut paper) = colours(cells[0]);
        if cells[0].inverse() {
            (ink, paper) = (paper, ink);
        }
        if paper != BACKGROUND {
            let length = u32::try_from(cells.len()).unwrap_or(0) * width;
            let _ = writeln!(
                self.body,
                r#"<rect x="{left}" y="{top}" width="{length}" height="{height}" fill="{paper}"/>"#
            );
        }
        let bold = match cells[0].bold() {
            true => r#" font-weight="bold""#,
            false => "",
        };
        let baseline = top + height - 4;
        let mut x = left;
        // Each word is positioned by itself: no font is exactly as wide as `CHARACTER`.
        for word in cells.chunk_by(|a, b| is_blank(a) == is_blank(b)) {
            let text: String = word.iter().map(|cell| cell.contents()).collect();
            let text = text.trim().replace('&', "&amp;").replace('<', "&lt;");
            let length = u32::try_from(word.len()).unwrap_or(0) * width;
            if !text.is_empty() {
                let _ = writeln!(
                    self.body,
                    "<text x=\"{x}\" y=\"{baseline}\" fill=\"{ink}\" \
                     textLength=\"{length}\"{bold}>{text}</text>",
                );
            }
            x += length;
        }
    }

    fn grow(&mut self, width: u32, height: u32) {
        self.width = self.width.max(width);
        self.height += height;
    }
}

fn is_blank(cell: &Cell) -> bool {
    cell.contents().trim().is_empty()
}

fn style(cell: &Cell) -> (Color, Color, bool, bool) {
    (cell.fgcolor(), cell.bgcolor(), cell.bold(), cell.inverse())
}

fn colours(cell: &Cell) -> (&'static str, &'static str) {
    (
        colour(cell.fgcolor(), FOREGROUND),
        colour(cell.bgcolor(), BACKGROUND),
    )
}

fn colour(colour: Color, default: &'static str) -> &'static str {
    match colour {
        Color::Idx(at) => COLOURS.get(usize::from(at)).copied().unwrap_or(default),
        Color::Default | Color::Rgb(..) => default,
    }
}

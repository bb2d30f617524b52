//! Emit: a [`Report`] as text. Each format is a function of the report, in a file of its own.

mod csv;
mod json;
pub(crate) mod label;
mod openmetrics;
pub mod printable;
mod screen;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, Write};

pub use self::openmetrics::{Otlp, Request};
pub use self::table::{Sheet, SheetColumn, Sheets};
pub(crate) use self::table::{fitted, width, wrapped};
pub use self::{
    label::name_of,
    openmetrics::{Dialect, Exposition, OWN_LABELS, is_own_label},
    screen::Screen,
};
use crate::derive::Report;

/// The formats, each with the module whose `write` makes it.
macro_rules! formats {
    ($($(#[$attribute:meta])* $name:ident: $module:ident,)*) => {
        /// Formats of `stat` and `mem`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
        pub enum Format {
            $($(#[$attribute])* $name,)*
        }

        impl Format {
            fn write(self, out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
                match self {
                    $(Self::$name => $module::write(out, report, options),)*
                }
            }
        }
    };
}

formats! {
    /// For people.
    #[default]
    Table: table,
    /// One JSON object per window and line.
    Json: json,
    /// One line per row and event, with a heading line.
    Csv: csv,
    /// Text for Prometheus: totals since the start, and the last window's metrics.
    #[value(name = "openmetrics")]
    OpenMetrics: openmetrics,
}

/// What a format depends on beside the report.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Whether to write the self-counters too.
    with_self: bool,
    /// Whether each line of JSON has the time of day.
    with_time: bool,
    /// Whether this is the first window of the output.
    first: bool,
    /// What a table is drawn on.
    screen: Screen,
}

/// Writes reports of one session in one format.
pub struct Emitter<W> {
    out: W,
    format: Format,
    options: Options,
    /// The text of a window, written in one call.
    buffer: Vec<u8>,
}

impl<W: Write> Emitter<W> {
    /// Writes to `out`.
    pub fn new(out: W, format: Format, with_self: bool) -> Self {
        Self {
            out,
            format,
            options: Options {
                with_self,
                with_time: false,
                first: true,
                screen: Screen::default(),
            },
            buffer: Vec::new(),
        }
    }

    /// In JSON, writes with each window the time of day at its end.
    #[must_use]
    pub fn with_time(mut self) -> Self {
        self.options.with_time = true;
        self
    }

    /// Where it writes to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Sets what the next tables are drawn on; at first it is that of a file or a pipe.
    pub fn set_screen(&mut self, screen: Screen) {
        self.options.screen = screen;
    }

    /// Writes one window, by one call of the writer.
    ///
    /// # Errors
    ///
    /// Where the writer fails.
    pub fn write(&mut self, report: &Report) -> io::Result<()> {
        self.buffer.clear();
        self.format.write(&mut self.buffer, report, self.options)?;
        self.options.first = false;
        self.out.write_all(&self.buffer)?;
        self.out.flush()
    }
}

//! Emit: a [`Report`] as text. Each [`OutputFormat`] is a function of the report, in a file of its
//! own; an [`Emitter`] writes the windows of a session.

mod csv;
mod json;
pub(crate) mod names;
mod openmetrics;
pub mod printable;
mod screen;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    io::{self, Write},
    time::SystemTime,
};

pub(crate) use self::names::fitted;
pub use self::openmetrics::{OtlpEncoder, OtlpRequest};
pub use self::table::{Sheet, SheetColumn, SheetWait, Sheets, table_lines};
pub(crate) use self::table::{TextColumns, bytes_text, number_texts, width, wrapped};
pub use self::{
    openmetrics::{Dialect, Exposition, is_reserved_label, reserved_labels},
    screen::Screen,
};
use crate::derive::Report;

/// The formats, each with the module of its `write` function.
macro_rules! formats {
    ($($(#[$attribute:meta])* $name:ident: $module:ident,)*) => {
        /// Formats of `stat` and `mem`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
        pub enum OutputFormat {
            $($(#[$attribute])* $name,)*
        }

        impl OutputFormat {
            fn write(
                self,
                out: &mut Vec<u8>,
                report: &Report,
                options: EmitOptions,
            ) -> io::Result<()> {
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

/// Inputs of a format in addition to the report.
#[derive(Clone, Copy, Debug)]
struct EmitOptions {
    /// Whether to write the self-counters.
    with_self: bool,
    /// Whether this is the first window of the output.
    is_first_window: bool,
    /// The screen of a table.
    screen: Screen,
}

/// The wall-clock time of the end of the window, in UTC by RFC 3339.
fn wall_clock(report: &Report) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + report.time)
}

/// Writes reports of one session in one format.
pub struct Emitter<W> {
    out: W,
    format: OutputFormat,
    options: EmitOptions,
    /// The text of a window, for a single write.
    buffer: Vec<u8>,
}

impl<W: Write> Emitter<W> {
    /// Writes to `out`.
    pub fn new(out: W, format: OutputFormat, with_self: bool) -> Self {
        Self {
            out,
            format,
            options: EmitOptions {
                with_self,
                is_first_window: true,
                screen: Screen::default(),
            },
            buffer: Vec::new(),
        }
    }

    /// The underlying writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Sets the screen of the next tables. The default is the screen of a file or a pipe.
    pub fn set_screen(&mut self, screen: Screen) {
        self.options.screen = screen;
    }

    /// Writes one window, by a single call of the writer.
    ///
    /// # Errors
    ///
    /// If the writer fails.
    pub fn write(&mut self, report: &Report) -> io::Result<()> {
        self.buffer.clear();
        self.format.write(&mut self.buffer, report, self.options)?;
        self.options.is_first_window = false;
        self.out.write_all(&self.buffer)?;
        self.out.flush()
    }
}

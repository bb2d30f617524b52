//! Reports as text.

use clap::ValueEnum as _;
use probe_user::{
    derive::Report,
    emit::{Emitter, OutputFormat},
};

/// The text of reports in every format, in the order of the formats.
pub fn texts(reports: &[Report]) -> Vec<String> {
    let formats = OutputFormat::value_variants().iter();
    let text = |format: &OutputFormat| {
        let mut text = Vec::new();
        let mut emitter = Emitter::new(&mut text, *format, true);
        reports.iter().for_each(|it| emitter.write(it).unwrap());
        String::from_utf8(text).unwrap()
    };
    formats.map(text).collect()
}

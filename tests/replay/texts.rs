//! Reports as text.

use clap::ValueEnum as _;
use probe_user::{
    derive::Report,
    emit::{Emitter, Format},
};

/// Reports in every format, in the order of the formats.
pub(crate) fn texts(reports: &[Report]) -> Vec<String> {
    let formats = Format::value_variants().iter();
    let text = |format: &Format| {
        let mut text = Vec::new();
        let mut emitter = Emitter::new(&mut text, *format, true);
        reports.iter().for_each(|it| emitter.write(it).unwrap());
        String::from_utf8(text).unwrap()
    };
    formats.map(text).collect()
}

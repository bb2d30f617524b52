//! A calibration's measurements as a table.

use std::io::{self, Write};

use super::Measured;

/// Writes what each kernel moved and what the events counted for it.
///
/// # Errors
///
/// The writer fails.
pub fn table(out: &mut impl Write, measured: &Measured) -> io::Result<()> {
    writeln!(out, "{}", measured.machine)?;
    let names = measured.patterns.iter().map(|pattern| pattern.name.len());
    let width = names.max().unwrap_or_default();
    let mut metric = "";
    for pattern in &measured.patterns {
        if pattern.metric != metric {
            metric = &pattern.metric;
            writeln!(out, "\n{metric}, counts for each count of its traffic")?;
            write!(out, "  {:width$} {:>12}", "KERNEL", "TRAFFIC/s")?;
            for event in &pattern.events {
                write!(out, " {event:>16}")?;
            }
            writeln!(out)?;
        }
        write!(
            out,
            "  {:width$} {:>12.4e}",
            pattern.name, pattern.per_second
        )?;
        match &pattern.counts {
            Some(counts) => counts
                .iter()
                .try_for_each(|it| write!(out, " {it:>16.4}"))?,
            None => write!(out, " moves none of it")?,
        }
        writeln!(out)?;
    }
    for (metric, event) in &measured.left_out {
        writeln!(
            out,
            " ! {metric}: {event} is left out, since it also counts accesses that are not of this \
             traffic"
        )?;
    }
    for reason in &measured.undivided {
        writeln!(out, " ! {reason}")?;
    }
    Ok(())
}

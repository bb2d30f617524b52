//! A roofline as a table and as JSON.

use std::io::{self, Write};

use super::{MeasuredCpus, Roofline, Stores};
use crate::emit::{printable::printable_json, table_lines};

/// Other tasks use fewer CPUs than this on a quiet machine.
const QUIET: f64 = 0.05;

/// Threads that waited for less than this part of their time were hardly disturbed.
const UNDISTURBED: f64 = 0.01;

/// Writes a roofline as tables for people.
///
/// # Errors
///
/// The writer fails.
pub fn table(out: &mut impl Write, roofline: &Roofline) -> io::Result<()> {
    writeln!(
        out,
        "{}, CPUs {}, {}, double precision, lines of {} bytes",
        roofline.platform, roofline.cpus, roofline.vectors, roofline.line
    )?;
    writeln!(out, "\nIdle latency (a chase of pointers, one thread)")?;
    let heads = ["socket", "level", "size", "ns best", "median", "huge pages"];
    let latencies = roofline.latencies.iter().map(|latency| {
        vec![
            latency.socket.to_string(),
            latency.level.clone(),
            bytes(latency.bytes),
            number(latency.nanoseconds.best),
            number(latency.nanoseconds.median),
            share(latency.huge_pages),
        ]
    });
    write_lines(out, &heads, latencies)?;
    writeln!(out, "\nBandwidth of the triad (24 bytes an element)")?;
    let heads = [
        "socket",
        "threads",
        "level",
        "size",
        "stores",
        "GB/s best",
        "median",
        "bytes in flight",
        "lines per core",
        "huge pages",
        "waited",
    ];
    let bandwidths = roofline.bandwidths.iter().map(|bandwidth| {
        vec![
            socket(&bandwidth.on),
            bandwidth.on.threads.to_string(),
            bandwidth.level.clone(),
            bytes(bandwidth.bytes),
            stores(bandwidth.stores).to_owned(),
            number(bandwidth.bytes_per_second.best / 1e9),
            number(bandwidth.bytes_per_second.median / 1e9),
            bandwidth.bytes_in_flight.map_or("-".into(), whole),
            bandwidth
                .lines_in_flight_per_core
                .map_or("-".into(), number),
            share(bandwidth.huge_pages),
            share(Some(bandwidth.bytes_per_second.waited)),
        ]
    });
    write_lines(out, &heads, bandwidths)?;
    writeln!(out, "\nPeak (fused multiply-adds in registers) and roof")?;
    let heads = [
        "socket",
        "threads",
        "GFLOP/s best",
        "median",
        "memory GB/s",
        "ridge FLOP/B",
        "waited",
    ];
    let peaks = roofline.peaks.iter().map(|peak| {
        let roof = roofline.roofs.iter().find(|roof| roof.on == peak.on);
        vec![
            socket(&peak.on),
            peak.on.threads.to_string(),
            number(peak.flops.best / 1e9),
            number(peak.flops.median / 1e9),
            roof.map_or("-".into(), |roof| number(roof.bytes_per_second / 1e9)),
            roof.map_or("-".into(), |roof| number(roof.ridge)),
            share(Some(peak.flops.waited)),
        ]
    });
    write_lines(out, &heads, peaks)?;
    for sentence in sentences(roofline) {
        writeln!(out, " {sentence}")?;
    }
    Ok(())
}

fn write_lines(
    out: &mut impl Write,
    heads: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> io::Result<()> {
    for line in table_lines(heads, rows, |_| true) {
        writeln!(out, " {line}")?;
    }
    Ok(())
}

/// Writes a roofline as one JSON object; docs/reference/roofline.md lists its fields.
///
/// # Errors
///
/// The writer fails.
pub fn json(out: &mut impl Write, roofline: &Roofline) -> io::Result<()> {
    let value = serde_json::to_value(roofline).map_err(io::Error::other)?;
    writeln!(out, "{}", printable_json(&value))
}

/// Sentences below the tables: disturbances (`!`) and notes (`-`).
fn sentences(roofline: &Roofline) -> Vec<String> {
    let disturbance = &roofline.disturbance;
    let mut sentences = Vec::new();
    match disturbance.others {
        Some(others) if others >= QUIET => sentences.push(format!(
            "! other tasks used {others:.2} of {} CPUs during these {:.1} s: the machine can do \
             more than is shown; repeat it when it is quiet",
            disturbance.cpus, disturbance.seconds
        )),
        Some(others) => sentences.push(format!(
            "- other tasks used {others:.2} of {} CPUs during these {:.1} s",
            disturbance.cpus, disturbance.seconds
        )),
        None => {
            sentences.push("! what other tasks did is not known: /proc/stat cannot be read".into());
        }
    }
    if disturbance.waited >= UNDISTURBED {
        sentences.push(format!(
            "! the threads waited for their CPUs {:.0}% of their time: the best run may be \
             undisturbed, the median is not",
            disturbance.waited * 100.0
        ));
    }
    if let Some(stolen) = disturbance.stolen.filter(|stolen| *stolen >= QUIET) {
        sentences.push(format!("! the hypervisor took {stolen:.2} CPUs"));
    }
    sentences.extend(roofline.notes.iter().map(|note| format!("- {note}")));
    sentences
}

fn socket(on: &MeasuredCpus) -> String {
    on.socket
        .map_or("all".to_owned(), |socket| socket.to_string())
}

fn stores(stores: Stores) -> &'static str {
    match stores {
        Stores::Plain => "plain",
        Stores::NonTemporal => "non-temporal",
    }
}

/// The value with three significant digits from 0.1 to 1000, else as an integer or with three
/// decimals.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0))
}

/// The size in binary units, as is usual for caches.
fn bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    let text = unit.map(|(shift, name)| {
        let value = bytes as f64 / (1_u64 << shift) as f64;
        format!("{value:.1} {name}")
    });
    text.unwrap_or_else(|| format!("{bytes} B"))
}

#[cfg(test)]
mod tests;

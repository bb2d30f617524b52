//! Samples as CSV: one line per row, class, place and metric.

use std::io::{self, Write};

use super::{Metric, of_class, of_page, of_source};
use crate::{
    derive::spe::{SpeReport, SpeReportRow, served_name},
    emit::{csv::record, label},
};

const HEADING: [&str; 10] = [
    "elapsed_s",
    "duration_s",
    "kind",
    "name",
    "class",
    "source",
    "metric",
    "value",
    "low",
    "high",
];

pub(super) fn write(
    out: &mut impl Write,
    report: &SpeReport,
    with_self: bool,
    heading: bool,
) -> io::Result<()> {
    let mut lines = Lines {
        csv: csv::Writer::from_writer(out),
        elapsed: format!("{:.6}", report.elapsed.as_secs_f64()),
        length: format!("{:.6}", report.length.as_secs_f64()),
    };
    if heading {
        lines.csv.write_record(HEADING)?;
    }
    for row in &report.rows {
        let (kind, name) = label(&row.label);
        lines.row(kind, &name, row)?;
    }
    lines.row("total", "total", &report.total)?;
    for page in &report.pages {
        let (process, address) = (page.tgid.to_string(), format!("{:#x}", page.address));
        let labels = ["page", &process, "", &address];
        lines.samples(labels, page.samples)?;
        lines.metrics(labels, &of_page(page))?;
    }
    if with_self {
        for (name, value) in report.health.counts() {
            let name = format!("spe_{name}");
            let value = [value.to_string(), String::new(), String::new()];
            lines.line(["self", "pmuscope", "", "", &name], &value)?;
        }
    }
    lines.csv.flush()
}

struct Lines<W: Write> {
    csv: csv::Writer<W>,
    elapsed: String,
    length: String,
}

impl<W: Write> Lines<W> {
    fn row<L>(&mut self, kind: &str, name: &str, row: &SpeReportRow<L>) -> io::Result<()> {
        for class in &row.classes {
            let what = class.class.name();
            self.samples([kind, name, what, ""], class.samples)?;
            self.metrics([kind, name, what, ""], &of_class(class))?;
            for source in &class.sources {
                let place = served_name(source.served);
                self.samples([kind, name, what, &place], source.samples)?;
                self.metrics([kind, name, what, &place], &of_source(source))?;
            }
        }
        Ok(())
    }

    fn samples(&mut self, [kind, name, class, source]: [&str; 4], samples: u64) -> io::Result<()> {
        let value = [samples.to_string(), String::new(), String::new()];
        self.line([kind, name, class, source, "spe_samples"], &value)
    }

    /// A value that could not be had is an empty field.
    fn metrics(
        &mut self,
        [kind, name, class, source]: [&str; 4],
        metrics: &[Metric],
    ) -> io::Result<()> {
        for (metric, estimate) in metrics {
            let value = match estimate {
                Some(it) => [it.value, it.low, it.high].map(|number| number.to_string()),
                None => [const { String::new() }; 3],
            };
            self.line([kind, name, class, source, metric], &value)?;
        }
        Ok(())
    }

    fn line(&mut self, labels: [&str; 5], value: &[String; 3]) -> io::Result<()> {
        let times = [self.elapsed.as_str(), self.length.as_str()];
        let fields = times.into_iter().chain(labels);
        let fields = fields.chain(value.iter().map(String::as_str));
        record(&mut self.csv, fields)
    }
}

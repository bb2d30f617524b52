//! `pmuscope diff`: compares two recordings, or two parts of one.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use probe_user::{
    emit::printable::printable_json,
    report::{self, Run, ShownDifferences, Side},
};

use crate::{
    report::{read_run, write},
    terminal::stdout_width,
};

/// Arguments of `diff`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope diff before.jsonl.gz after.jsonl.gz
  pmuscope diff run.jsonl.gz --ranges 0-60,60-120
  pmuscope diff run.jsonl.gz --pods api-1,api-2")]
pub(crate) struct Args {
    /// A recording of `pmuscope record`
    #[arg(value_name = "A")]
    first: PathBuf,
    /// Another; without it two --ranges or two --pods of A are compared
    #[arg(value_name = "B")]
    second: Option<PathBuf>,
    /// Only these seconds of A and of B, such as 0-60,60-120; an end may be left out
    #[arg(long, value_name = "A,B", value_parser = parse_ranges)]
    ranges: Option<[(f64, Option<f64>); 2]>,
    /// Only the rows of this pod in A, and of that one in B; also names of containers and paths, or
    /// a part of an id
    #[arg(long, value_name = "A,B", value_parser = parse_pods)]
    pods: Option<[String; 2]>,
    /// Also show values that do not differ (JSON has them always)
    #[arg(long)]
    all: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object.
    Json,
    /// A page.
    Html,
}

fn parse_ranges(text: &str) -> Result<[(f64, Option<f64>); 2], String> {
    let usage = || "two ranges of seconds are written as 0-60,60-120".to_owned();
    let range = |text: &str| {
        let (from, to) = text.split_once('-')?;
        let from: f64 = if from.is_empty() {
            0.0
        } else {
            from.parse().ok()?
        };
        let to: Option<f64> = match to {
            "" => None,
            to => Some(to.parse().ok()?),
        };
        to.is_none_or(|to| to > from).then_some((from, to))
    };
    let (first, second) = text.split_once(',').ok_or_else(usage)?;
    let both = range(first).zip(range(second));
    both.map(<[_; 2]>::from).ok_or_else(usage)
}

fn parse_pods(text: &str) -> Result<[String; 2], String> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok([a.to_owned(), b.to_owned()]),
        _ => Err("two names are written as A,B".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.second.is_none() && args.ranges.is_none() && args.pods.is_none() {
        bail!("nothing to compare with: give a second recording, --ranges or --pods");
    }
    let first = read_run(&args.first)?;
    let second = args.second.as_deref().map(read_run).transpose()?;
    let runs = [&first, second.as_ref().unwrap_or(&first)];
    let sides = [0, 1].map(|at| Side {
        range: args.ranges.map_or((0.0, None), |ranges| ranges[at]),
        rows: args.pods.as_ref().map(|pods| pods[at].clone()),
    });
    for (run, side) in runs.iter().zip(&sides) {
        check_range(run, side)?;
    }
    let comparison = report::compare(runs, &sides)?;
    if comparison.both.is_empty() {
        let [a, b] = &comparison.sides;
        bail!(
            "{} and {} have no value in common: no row of the same name has the same metric",
            a.name,
            b.name
        );
    }
    let shown = ShownDifferences {
        width: if args.output.is_none() {
            stdout_width()
        } else {
            None
        },
        all: args.all,
    };
    let text = match args.format {
        Format::Table => report::comparison_table(&comparison, shown),
        Format::Json => format!(
            "{}\n",
            printable_json(&report::comparison_json(&comparison))
        ),
        Format::Html => report::comparison_html(&comparison, shown),
    };
    write(args.output.as_deref(), text.as_bytes())
}

/// Refuses a range without windows.
fn check_range(run: &Run, side: &Side) -> Result<()> {
    let (from, to) = side.range;
    if run.windows.iter().any(|window| side.covers(*window)) {
        return Ok(());
    }
    let length = run.windows.last().map_or(0.0, |window| window.1);
    bail!(
        "{} has no window from second {from} to {}: it is {length:.1} s long",
        run.file,
        to.map_or("its end".to_owned(), |to| to.to_string())
    )
}

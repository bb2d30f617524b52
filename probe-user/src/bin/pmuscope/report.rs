//! `pmuscope report`: shows a recording as a page, or one view of it.

use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use probe_user::{
    emit::printable::printable_json,
    recording::{Recording, Replay},
    report::{self, Peaks, Run, Scatter, Selection, Single},
    samples::{SampleReadError, SampleReader},
};

use crate::print::note;

/// Default of --top for a picture.
const DEFAULT_TOP: usize = 10;

/// Arguments of `report`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope report pmuscope.jsonl.gz            # a page: pmuscope.html
  pmuscope report pmuscope.jsonl.gz --format csv --search api
  pmuscope report pmuscope.jsonl.gz --format svg -M cpus_used -o cpus.svg")]
pub(crate) struct Args {
    /// A recording of `pmuscope record`, or the samples of `pmuscope mem record`
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// Also the samples of `pmuscope mem record` that ran beside the recording
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Draw the containers below the peaks of the machine: what `pmuscope roofline --format json`
    /// wrote there
    #[arg(long, value_name = "FILE")]
    roofline: Option<PathBuf>,
    /// Show how accurate sampling is on the machine, and what it costs: what
    /// `pmuscope mem calibrate --format json` wrote there
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Write to FILE instead of standard output
    ///
    /// A page goes to a file also without this option where standard output is a terminal: it has
    /// the recording's name with .html, is in the working directory, and replaces an earlier one.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// html: a page with everything, which needs no network; svg: a picture of --metric, or of
    /// --view; json, csv: the values of all windows, or of --view [default: as the name of --output
    /// ends, else html]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// What is shown in place of a metric over time [default of samples alone: samples] (not for
    /// html)
    #[arg(long, value_enum, value_name = "VIEW")]
    view: Option<Single>,
    /// Only this metric (not for html)
    #[arg(short = 'M', long, value_name = "METRIC")]
    metric: Option<String>,
    /// Only rows whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only the N largest of each metric, on a page the N rows with most CPU [default: 10 for svg,
    /// else all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Html,
    Svg,
    Json,
    Csv,
}

impl Args {
    fn format(&self) -> Format {
        let extension = self.output.as_ref().and_then(|path| path.extension());
        let by_name = || Format::from_str(extension?.to_str()?, true).ok();
        self.format.or_else(by_name).unwrap_or(Format::Html)
    }
}

/// The name of a file, without its directory.
fn file_name_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str());
    file.to_string_lossy().into_owned()
}

/// Reads a file of samples; None if the file is something else.
fn read_samples(path: &Path) -> Result<Option<Scatter>, SampleReadError> {
    let samples = SampleReader::open(path)?;
    let read = samples.map(|samples| Scatter::read(&file_name_of(path), samples));
    read.transpose()
}

/// Reads a recording, or a file of samples.
fn read_recording_or_samples(path: &Path) -> Result<Run> {
    let error = match Recording::open(path) {
        Ok(recording) => return read_run_from(path, recording),
        Err(error) => error,
    };
    match read_samples(path) {
        Ok(Some(samples)) => Ok(Run::from_samples(samples)),
        // The recording's error already names a file that cannot be opened.
        Ok(None) | Err(SampleReadError::Open { .. }) => Err(error.into()),
        Err(damaged) => Err(damaged.into()),
    }
}

/// Reads all given files into one run.
fn load_run(args: &Args) -> Result<Run> {
    let mut run = read_recording_or_samples(&args.recording)?;
    if run.samples.is_some() && (args.samples.is_some() || args.roofline.is_some()) {
        bail!(
            "{} has samples: name the recording of `pmuscope record` first, --samples and \
             --roofline go beside that",
            args.recording.display()
        );
    }
    if let Some(path) = &args.samples {
        let Some(samples) = read_samples(path)? else {
            bail!(
                "{} has no samples: give a file of `pmuscope mem record`",
                path.display()
            );
        };
        if let Err(differs) = samples.check_same_boot(&run.about) {
            bail!(
                "the samples of {} were not taken beside {}: {differs}; make a page of each",
                path.display(),
                run.file
            );
        }
        run.samples = Some(samples);
    }
    if let Some(path) = &args.roofline {
        let peaks = Peaks::parse(&read_text(path)?)
            .with_context(|| format!("cannot use {}", path.display()))?;
        check_platform(&run, path, "the peaks", peaks.platform())?;
        run.peaks = Some(peaks);
    }
    if let Some(path) = &args.calibration {
        let calibrated = report::calibrated(&read_text(path)?)
            .with_context(|| format!("cannot use {}", path.display()))?;
        check_platform(&run, path, "the accuracies", &calibrated.platform)?;
        run.calibrated = Some(calibrated);
    }
    Ok(run)
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Refuses a file that was measured on another platform than the recording.
fn check_platform(run: &Run, path: &Path, what: &str, platform: &str) -> Result<()> {
    let known = run.platform.as_deref();
    if let Some(known) = known.filter(|known| *known != platform) {
        bail!(
            "{what} of {} were measured on {platform}, and {} was recorded on {known}: measure \
             them on that machine",
            path.display(),
            run.file
        );
    }
    Ok(())
}

/// Reads a whole recording.
pub(crate) fn read_run(path: &Path) -> Result<Run> {
    read_run_from(path, Recording::open(path)?)
}

fn read_run_from(path: &Path, recording: Recording) -> Result<Run> {
    let (about, view) = (recording.head.about.clone(), recording.head.view.clone());
    let replay = Replay::begin(recording, view)?;
    Ok(Run::read(&file_name_of(path), about, replay)?)
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let format = args.format();
    let selection = Selection {
        metric: args.metric.clone(),
        search: args.search.clone(),
        top: args.top.or((format == Format::Svg).then_some(DEFAULT_TOP)),
    };
    let mut run = load_run(args)?;
    // A file of samples has no metric over time, so its view is of samples. JSON has all views.
    let only_samples = run.windows.is_empty() && format != Format::Json;
    let single = args.view.or(only_samples.then_some(Single::Samples));
    match (format, single) {
        (Format::Html, _) if args.view.is_some() => {
            bail!("a page has all views: leave out --view, or choose --format svg, json or csv");
        }
        (Format::Html, Some(_)) if args.search.is_some() || args.top.is_some() => {
            bail!("a page of samples has filters of its own: leave out --search and --top");
        }
        (Format::Html, _) if !run.keep_rows(&selection) && args.search.is_some() => {
            bail!("{}", nothing_found(&run));
        }
        (Format::Html, _) | (_, None) => {}
        (format, Some(view)) => return single_view(args, &run, view, format),
    }
    let known = |name: &String| run.metrics.iter().any(|metric| metric.name == *name);
    match &args.metric {
        Some(name) if !known(name) => {
            let names = run
                .metrics
                .iter()
                .map(|metric| metric.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            bail!("{} has no metric {name}: it has {names}", run.file);
        }
        None if format == Format::Svg => {
            bail!("a picture is of one metric: name it with -M, or make a page (--format html)");
        }
        _ => {}
    }
    if args.search.is_some() && !run.has(&selection) {
        bail!("{}", nothing_found(&run));
    }
    let mut out = Vec::new();
    match format {
        Format::Html => report::page(&mut out, &run)?,
        Format::Svg => {
            let Some(picture) = report::svg(&run, &selection) else {
                bail!("{}", nothing_found(&run));
            };
            out = picture.into_bytes();
        }
        Format::Json => {
            let view = report::json(&run, &selection);
            out = format!("{}\n", printable_json(&view)).into_bytes();
        }
        Format::Csv => report::csv(&mut out, &run, &selection)?,
    }
    if format == Format::Html && args.output.is_none() && io::stdout().is_terminal() {
        let page = page_name(&args.recording);
        let written = write(Some(&page), &out)?;
        note(format_args!(
            "the page is in {}: open it in a browser",
            page.display()
        ));
        return Ok(written);
    }
    write(args.output.as_deref(), &out)
}

fn nothing_found(run: &Run) -> String {
    format!("nothing that --search finds in {} has a value", run.file)
}

/// The file of a recording's page, in the working directory: `pmuscope.html` for
/// `dir/pmuscope.jsonl.gz`.
fn page_name(recording: &Path) -> PathBuf {
    let name = file_name_of(recording);
    let stem = [".jsonl.gz", ".jsonl", ".parquet"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    PathBuf::from(format!("{}.html", stem.unwrap_or(&name)))
}

/// Writes a view other than a metric over time.
fn single_view(args: &Args, run: &Run, view: Single, format: Format) -> Result<ExitCode> {
    if args.metric.is_some() && view != Single::Estimates {
        bail!("-M names a metric over time, or one of --view estimates: leave it out here");
    }
    let selection = Selection {
        metric: args.metric.clone(),
        search: args.search.clone(),
        top: args.top,
    };
    let text = match format {
        Format::Svg => view.svg(run, &selection).map(String::into_bytes),
        Format::Csv => view.csv(run, &selection),
        _ => { view.json(run, &selection) }
            .map(|json| format!("{}\n", printable_json(&json)).into_bytes()),
    };
    write(args.output.as_deref(), &text.map_err(anyhow::Error::msg)?)
}

/// Writes to the file or to standard output. A reader that closed it is no error.
pub(crate) fn write(output: Option<&Path>, bytes: &[u8]) -> Result<ExitCode> {
    let written = match output {
        Some(path) => {
            let file = File::create(path).map(BufWriter::new);
            let written = file.and_then(|mut file| {
                file.write_all(bytes)?;
                file.flush()
            });
            written.with_context(|| format!("cannot write {}", path.display()))?;
            Ok(())
        }
        None => io::stdout().write_all(bytes),
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

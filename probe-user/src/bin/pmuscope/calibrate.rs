//! `pmuscope calibrate`: measures what this machine's events count.

use std::{fs, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use probe_user::{
    calibrate::{CalibrateOptions, calibrate, table},
    calibration::Calibration,
    catalogue::Chip,
    machine::Machine,
    samples::Size,
};

use crate::{completions, print::to_stdout, times};

/// Arguments of `calibrate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the events that divide memory traffic among containers: loops of known traffic run
    /// for two minutes, or four with two sockets, on a machine that does nothing else
    Shares(SharesArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope calibrate shares                 # into calibration.toml
  pmuscope stat --calibration calibration.toml -M cmem_read_bandwidth")]
struct SharesArgs {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "calibration.toml")]
    output: PathBuf,
    /// Metrics whose traffic is divided [default: those that the agent counts on this machine]
    #[arg(short = 'M', long = "metric", value_name = "METRICS", add = completions::metrics())]
    metric: Vec<String>,
    /// The chip of this machine, if it is not detected or detected wrong
    #[arg(long, value_enum, hide_short_help = true)]
    chip: Option<Chip>,
    /// Bytes that the kernels work on, such as 2G [default: twelve times the last cache]
    #[arg(long, value_name = "BYTES")]
    size: Option<Size>,
    /// The time of each of a kernel's six measurements
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = times::duration)]
    time: Duration,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let What::Shares(args) = &args.what;
    let options = CalibrateOptions {
        metrics: args.metric.clone(),
        chip: args.chip,
        size: args.size.map(|size| size.0),
        time: args.time,
    };
    let machine = Arc::new(Machine::this());
    let measured = calibrate(&machine, &options, |message| tracing::info!("{message}"))?;
    to_stdout(|out| table(out, &measured))?;
    let file = args.output.display();
    fs::write(&args.output, Calibration::from(measured).text())
        .with_context(|| format!("cannot write {file}: give another file with -o"))?;
    tracing::info!("{file} written: give it to stat, top or record with --calibration");
    Ok(ExitCode::SUCCESS)
}

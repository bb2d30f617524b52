//! `pmuscope mem calibrate`: measures the accuracy and the cost of SPE sampling on this machine for
//! a command, by the study of "Multi-level Memory-Centric Profiling on ARM Processors with ARM SPE"
//! (NMO, section VII): a run is timed until the command ends; samples that are drained after that
//! count too.

mod plot;
mod study;

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use probe_user::{
    catalogue::Hardware,
    emit::printable::printable_json,
    machine::Machine,
    samples::{
        AccessCounter, Buffers, RecordConfig, RecordCounts, RecordTarget, Recorder, SamplingMethod,
        Size, SpeOptions, machine_metadata,
    },
    session::{Command, spe::DEFAULT_FILTERS},
};

use self::{
    plot::text_plots,
    study::{Baseline, Point, Study, Trial, points},
};
use super::record::run::{CommandExit, End, until_the_end};
use crate::{
    ending::{NotStarted, runtime},
    print::{Format, command_line, note, to_stdout},
};

/// Arguments of `mem calibrate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Periods to try, each with the middle buffer size. Below 2,000 samples collide: the sweep
    /// shows how the accuracy collapses
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1000,2000,3000,4000,8192,16384,32768,65536",
        value_parser = clap::value_parser!(u64).range(1..=0xffff_ff00)
    )]
    periods: Vec<u64>,
    /// Sizes of the sample buffer to try, each with the middle period: bytes, with K, M or G
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "256K,1M,4M"
    )]
    aux: Vec<Size>,
    /// Numbers of threads to try: the command gets them in `OMP_NUM_THREADS` and in place of
    /// {threads} in its arguments
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    threads: Vec<u32>,
    /// Runs of each kind
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(2..)
    )]
    runs: u32,
    /// Use a buffer for each thread instead of one for each CPU
    #[arg(long)]
    per_thread: bool,
    /// Size of the buffer for records about samples and processes
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    ring: Size,
    /// Also draw the plots into FILE
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// json: one object, which `pmuscope report --calibration` draws
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The command: it should run for some seconds and do the same each time
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Arc::new(Machine::this());
    let runner = Runner {
        args,
        least_period: SpeOptions::least_period(machine.pmus()?)?,
        machine,
    };
    let plot = { args.plot.as_deref() }
        .map(|path| {
            // Creates the file before the long study, so that an error comes at once.
            fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
        })
        .transpose()?;
    let study = runtime()?.block_on(runner.study())?;
    let about = machine_metadata(&runner.machine, &command_line())
        .into_iter()
        .collect();
    let platform = Hardware::detect(&runner.machine).platform.to_string();
    let calibrated = study.calibrated(platform, about);
    to_stdout(|out| match args.format {
        Format::Table => writeln!(
            out,
            "{}{}{}",
            study.table(),
            text_plots(&calibrated),
            calibrated.recommendation
        ),
        Format::Json => {
            let value = serde_json::to_value(&calibrated)?;
            writeln!(out, "{}", printable_json(&value))
        }
    })?;
    if let Some(mut file) = plot {
        file.write_all(calibrated.svg().as_bytes())
            .context("cannot write the plot")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command for a study.
struct Runner<'a> {
    args: &'a Args,
    machine: Arc<Machine>,
    /// The core's least sampling period, in operations.
    least_period: u64,
}

impl Runner<'_> {
    /// Makes all runs, in rounds, so that changes of the machine affect every point alike.
    async fn study(&self) -> Result<Study> {
        let Args {
            aux, threads, runs, ..
        } = self.args;
        let mut periods: Vec<u64> = self.args.periods.clone();
        for period in &mut periods {
            let effective = SpeOptions::effective_period(*period, self.least_period);
            if effective != *period {
                note(format_args!("period {period} is {effective} on this core"));
                *period = effective;
            }
        }
        let points = points(&periods, aux, threads);
        let mut study = Study::new(points);
        study.jitter = spe_options(0).mean_period(self.machine.pmus()?)?;
        let baselines: Vec<Option<u32>> = study
            .baselines
            .iter()
            .map(|baseline| baseline.threads)
            .collect();
        for threads in &baselines {
            // Warms the page cache with the command's files and data.
            self.run_plain(*threads).await?;
        }
        let rounds = *runs;
        for round in 1..=rounds {
            note(format_args!("round {round} of {rounds}"));
            for (at, threads) in baselines.iter().enumerate() {
                let time = self.run_plain(*threads).await?;
                let (accesses, counted_time) = self.run_counted(*threads).await?;
                study.baselines[at].add(time, accesses, counted_time);
            }
            for at in 0..study.points.len() {
                let point = study.points[at].point;
                let (time, counts) = self.run_sampled(point).await?;
                study.points[at].trials.push(Trial { time, counts });
            }
        }
        Ok(study)
    }

    /// Runs the command without sampling, and returns the time of the run.
    async fn run_plain(&self, threads: Option<u32>) -> Result<Duration> {
        let command = self.command(threads)?;
        timed(command).await
    }

    /// Runs the command with its memory accesses counted. Returns their number and the time of the
    /// run.
    async fn run_counted(&self, threads: Option<u32>) -> Result<(f64, Duration)> {
        let command = self.command(threads)?;
        let counter = AccessCounter::open(command.pid(), self.machine.pmus()?)?;
        let time = timed(command).await?;
        match counter.read()? {
            Some(count) if count > 0.0 => Ok((count, time)),
            Some(_) => bail!(
                "mem_access counted nothing: either the core does not count it (the kernel cannot \
                 tell), or the command does nothing"
            ),
            None => bail!(
                "mem_access was never on the PMU: something else holds its counters (the NMI \
                 watchdog, perf)"
            ),
        }
    }

    /// Runs the command with sampling. Returns the time of the run, and what was sampled.
    async fn run_sampled(&self, point: Point) -> Result<(Duration, RecordCounts)> {
        let command = self.command(point.threads)?;
        let config = RecordConfig {
            method: SamplingMethod::Spe(spe_options(point.period)),
            buffers: Buffers {
                ring: self.args.ring,
                aux: point.aux,
                watermark: None,
            },
            target: RecordTarget::Command(command.pid()),
            per_thread: self.args.per_thread,
            drains: NonZeroUsize::MIN,
            regions: None,
        };
        let mut recorder = Recorder::open(config, &self.machine)?;
        let ended = until_the_end(&mut recorder, &(), Some(command), End::Command, false).await?;
        let Some(CommandExit { status, time }) = ended else {
            bail!("interrupted")
        };
        check_success(status)?;
        Ok((time, *recorder.counts()))
    }

    /// Prepares the command without starting it. env(1) sets its environment.
    fn command(&self, threads: Option<u32>) -> Result<Command> {
        let words = match threads {
            None => self.args.command.clone(),
            Some(threads) => {
                let number = threads.to_string();
                let replace = |word: &OsString| match word.to_str() {
                    Some(text) => text.replace("{threads}", &number).into(),
                    None => word.clone(),
                };
                let mut words: Vec<OsString> =
                    vec!["env".into(), format!("OMP_NUM_THREADS={number}").into()];
                words.extend(self.args.command.iter().map(replace));
                words
            }
        };
        Ok(Command::in_current_cgroup(&words).map_err(NotStarted)?)
    }
}

/// The options by which `mem record` samples by default, with this period.
fn spe_options(period: u64) -> SpeOptions {
    SpeOptions {
        period,
        terms: format!("{DEFAULT_FILTERS},ts_enable"),
    }
}

/// Runs a command to its end, and returns the time that it took.
async fn timed(command: Command) -> Result<Duration> {
    let start = Instant::now();
    let running = command.start().map_err(NotStarted)?;
    let status = running.ended().await?;
    let time = start.elapsed();
    check_success(status)?;
    Ok(time)
}

fn check_success(status: std::process::ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("the command ended with {status}: calibrate needs one that succeeds each time");
    }
    Ok(())
}

impl Baseline {
    fn add(&mut self, time: Duration, accesses: f64, counted_time: Duration) {
        self.times.push(time.as_secs_f64());
        self.accesses.push(accesses);
        self.counted_times.push(counted_time.as_secs_f64());
    }
}

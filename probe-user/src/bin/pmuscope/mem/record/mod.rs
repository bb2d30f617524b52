//! `pmuscope mem record`: writes whole samples of a command, a process or a cgroup into files.
// `print!` panics if standard output is closed.
#![deny(clippy::print_stdout)]

mod files;
mod output_file;
mod regions;
pub(super) mod run;

use std::{
    ffi::OsString, io::Write as _, num::NonZeroUsize, path::PathBuf, process::ExitCode, sync::Arc,
};

use anyhow::{Result, bail};
use probe_user::{
    event::accesses::describe_mechanism,
    machine::{Machine, Pmus},
    samples::{
        AccessSampling, Buffers, RecordConfig, RecordTarget, Recorder, SamplingMethod, Size,
        SpeOptions, regions::RegionSummary,
    },
    session::{Command, spe::DEFAULT_FILTERS},
};

use self::{
    files::Paths,
    run::{End, until_the_end},
};
use crate::{
    ending::{NotStarted, exit_code, runtime},
    print::{Format, command_line, note, to_stdout},
};

/// Default number of CPUs per draining thread. docs/reference/mem-record.md names the load for
/// which it suffices.
const CPUS_PER_THREAD: usize = 32;

/// Default period of SPE, in operations.
const DEFAULT_PERIOD: u64 = 32_768;

/// Default size of SPE's sample buffers, in bytes.
const DEFAULT_AUX: Size = Size(1 << 20);

/// Arguments of `mem record`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the samples as Parquet to FILE [default: pmuscope-mem.parquet, unless --raw is given]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the buffers' bytes in FILE, in the format of perf.data: perf script and perf report
    /// read it
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// Record this process, its threads and what it starts, until it ends or Ctrl-C
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Record all processes of this cgroup and those below it, until Ctrl-C
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    cgroup: Option<String>,
    /// Use a buffer for each thread instead of one for each CPU
    #[arg(long, conflicts_with = "cgroup")]
    per_thread: bool,
    /// What to sample, in terms of SPE's PMU; empty for every operation: `load_filter`,
    /// `store_filter`, `branch_filter`, `event_filter=BITS`, `jitter`, `pa_enable`, `pct_enable`,
    /// `ts_enable=0` [default: `load_filter=1,store_filter=1,jitter=1`]
    #[arg(long, value_name = "TERMS")]
    filter: Option<String>,
    /// Only operations that took at least this many cycles
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u16).range(1..))]
    min_latency: Option<u16>,
    /// Operations (on x86 events) from one sample to the next; SPE's samples collide below 2,000
    /// [default: 32768; on x86 it follows 997 samples a second, CPU and event]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=0xffff_ff00))]
    period: Option<u64>,
    /// Size of SPE's sample buffer, for each CPU (or thread): a power of two in bytes, with K, M or
    /// G [default: 1M]
    #[arg(long, value_name = "SIZE")]
    aux: Option<Size>,
    /// Drain SPE's sample buffer when it has this many bytes [default: half of it]
    #[arg(long, value_name = "SIZE")]
    watermark: Option<Size>,
    /// Size of the buffer for records about samples and processes, for each CPU (or thread); on x86
    /// samples have another one of this size
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    ring: Size,
    /// Threads that drain the sample buffers [default: one for each 32 online CPUs]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Give each sample its region and phase, and print sums by them at the end; PROGRAM is one
    /// that the command will run, or a library, whose markers are to be seen from its start
    #[arg(
        long,
        value_name = "PROGRAM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    regions: Vec<OsString>,
    /// Output format of the sums by regions; json has a line for each region in each phase of each
    /// thread
    #[arg(long, value_enum, default_value_t, requires = "regions")]
    format: Format,
    /// Record this command until it ends
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    /// The method of this machine; an error if it cannot sample as requested.
    fn method(&self, pmus: &Pmus) -> Result<SamplingMethod> {
        let events = AccessSampling {
            period: self.period,
            min_latency: self.min_latency,
        };
        if events.events(pmus)?.is_empty() {
            let options = self.spe_options();
            options.check(pmus)?;
            return Ok(SamplingMethod::Spe(options));
        }
        let method = describe_mechanism(pmus).unwrap_or_default();
        let only_spe = [
            ("--raw", self.raw.is_some()),
            ("--filter", self.filter.is_some()),
            ("--per-thread", self.per_thread),
            ("--aux", self.aux.is_some()),
            ("--watermark", self.watermark.is_some()),
        ];
        if let Some((option, _)) = only_spe.iter().find(|(_, given)| *given) {
            bail!("{option} is for Arm's SPE, and this machine samples by {method}: leave it out");
        }
        tracing::info!("sampling by {method}");
        Ok(SamplingMethod::Events(events))
    }

    fn spe_options(&self) -> SpeOptions {
        let mut terms = match &self.filter {
            Some(terms) => terms.clone(),
            None => DEFAULT_FILTERS.to_owned(),
        };
        // Samples have a time unless the user writes `ts_enable=0`.
        if !terms.split(',').any(|term| term.starts_with("ts_enable")) {
            terms.push_str(",ts_enable");
        }
        if let Some(cycles) = self.min_latency {
            terms.push_str(&format!(",min_latency={cycles}"));
        }
        SpeOptions {
            period: self.period.unwrap_or(DEFAULT_PERIOD),
            terms: terms.trim_start_matches(',').to_owned(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let given = [
        args.pid.is_some(),
        args.cgroup.is_some(),
        !args.command.is_empty(),
    ];
    if !given.contains(&true) {
        bail!(
            "nothing to record: give a command after --, a process with -p, or a cgroup with \
             --cgroup"
        );
    }
    let machine = Arc::new(Machine::this());
    // Checked before the command's process is created.
    let method = args.method(machine.pmus()?)?;
    let runtime = runtime()?;
    let _guard = runtime.enter();
    let command = match &args.command[..] {
        [] => None,
        words => Some(Command::in_current_cgroup(words).map_err(NotStarted)?),
    };
    let target = match (&command, args.pid, &args.cgroup) {
        (Some(command), ..) => RecordTarget::Command(command.pid()),
        (_, Some(pid), _) => RecordTarget::Process(pid),
        (_, _, Some(path)) => RecordTarget::Cgroup(path.clone()),
        (None, None, None) => unreachable!("one of them is given"),
    };
    let end = End::for_target(&target)?;
    let drains = args.threads.unwrap_or_else(|| default_drains(&machine));
    let config = RecordConfig {
        method,
        buffers: Buffers {
            ring: args.ring,
            aux: args.aux.unwrap_or(DEFAULT_AUX),
            watermark: args.watermark,
        },
        target,
        per_thread: args.per_thread,
        drains,
        regions: (!args.regions.is_empty())
            .then(|| regions::programs(&args.regions, args.command.first())),
    };
    let words = command_line();
    let mut recorder = Recorder::open(config, &machine)?;
    // Creates the files before anything runs, so that an error comes at once.
    let paths = Paths::from_options(args.output.clone(), args.raw.clone());
    let summary = (!args.regions.is_empty()).then(|| RegionSummary::new(drains));
    let files = paths.begin(&recorder, drains, &words, summary)?;
    if let Err(error) = recorder.start() {
        paths.remove(files);
        return Err(error.into());
    }
    let ended = runtime.block_on(until_the_end(&mut recorder, &files, command, end, true));
    if let Err(error) = &ended
        && error.is::<NotStarted>()
    {
        paths.remove(files);
        return ended.map(|_| ExitCode::FAILURE);
    }
    // Finishes the files even after an error, so that the samples until then can be read.
    let (finished, summary) = files.finish(&recorder);
    let counts = recorder.counts();
    let losses = match counts.losses() {
        losses if losses.is_empty() => "nothing lost".to_owned(),
        losses => losses,
    };
    if finished.is_ok() {
        let samples = counts.samples;
        note(format_args!("{samples} samples into {paths}; {losses}"));
    }
    if let Some(summary) = summary {
        to_stdout(|out| out.write_all(regions::render(args.format, &summary).as_bytes()))?;
    }
    let ended = ended?;
    finished?;
    Ok(exit_code(ended.map(|ended| ended.status)))
}

/// Default number of threads that drain the buffers on this machine.
fn default_drains(machine: &Machine) -> NonZeroUsize {
    let cpus = machine.online().map_or(1, |cpus| cpus.len());
    NonZeroUsize::new(cpus.div_ceil(CPUS_PER_THREAD)).unwrap_or(NonZeroUsize::MIN)
}

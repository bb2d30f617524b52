//! `pmuscope mem record`: whole SPE samples of a command, a process or a cgroup, into files.

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use probe_user::{
    command::Command,
    event::Pmus,
    record::{AuxPlace, Buffers, Config, RawFile, Recorder, Sample, Sampling, Sink, Size, Target},
};

use crate::{
    mem_record_run::{End, exit_code, until_the_end},
    stat::NotStarted,
};

/// Arguments of `mem record`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the samples as Parquet to FILE [default: pmuscope-mem.parquet, unless --raw is given]
    #[cfg(feature = "parquet")]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the buffers' bytes in FILE, in the form of perf.data: perf script and perf report read it
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// Record this process, its threads and what it starts, until it ends or Ctrl-C
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["cgroup", "command"])]
    pid: Option<u32>,
    /// Record what runs in this cgroup and those below it, until Ctrl-C
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    cgroup: Option<String>,
    /// A buffer for each thread in place of one for each CPU
    #[arg(long, conflicts_with = "cgroup")]
    per_thread: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Operations from one sample to the next; under 2,000 samples collide
    #[arg(long, value_name = "N", default_value_t = 32_768, value_parser = clap::value_parser!(u64).range(1..=0xffff_ff00))]
    period: u64,
    /// Samples' buffer, for each CPU (or thread): a power of two in bytes, with K, M or G
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    aux: Size,
    /// Drain a samples' buffer once so many bytes are in it [default: half of it]
    #[arg(long, value_name = "SIZE")]
    watermark: Option<Size>,
    /// Buffer of the records about samples and processes, for each CPU (or thread)
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    ring: Size,
    /// Record this command until it ends
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// What is sampled, in the terms of the SPE driver.
#[derive(clap::Args)]
pub(crate) struct SamplingArgs {
    /// Operations to sample: load, store, branch, or all (`load_filter`, `store_filter`, `branch_filter`)
    #[arg(long, value_name = "OPS", value_delimiter = ',', default_values = ["load", "store"])]
    ops: Vec<Ops>,
    /// Only operations that took so many cycles or more (`min_latency`)
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u64).range(1..=4095))]
    min_latency: Option<u64>,
    /// Only operations with all these event bits, such as 0x2 for retired ones (`event_filter`)
    #[arg(long, value_name = "BITS", value_parser = number)]
    event_filter: Option<u64>,
    /// Vary the period a little, against loops of its length (jitter)
    #[arg(long)]
    jitter: bool,
    /// Samples without a timestamp (`ts_enable=0`)
    #[arg(long)]
    no_timestamps: bool,
    /// Samples with physical addresses (`pa_enable`)
    #[arg(long)]
    pa: bool,
    /// Timestamps of the physical timer (`pct_enable`)
    #[arg(long)]
    pct: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ops {
    Load,
    Store,
    Branch,
    All,
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "it is no number: write 2 or 0x2".to_owned())
}

impl SamplingArgs {
    /// With this period.
    pub(crate) fn sampling(&self, period: u64) -> Sampling {
        let mut terms = Vec::new();
        if !self.ops.contains(&Ops::All) {
            for (ops, term) in [
                (Ops::Load, "load_filter"),
                (Ops::Store, "store_filter"),
                (Ops::Branch, "branch_filter"),
            ] {
                if self.ops.contains(&ops) {
                    terms.push((term, 1));
                }
            }
        }
        for (on, term) in [
            (!self.no_timestamps, "ts_enable"),
            (self.pa, "pa_enable"),
            (self.pct, "pct_enable"),
            (self.jitter, "jitter"),
        ] {
            if on {
                terms.push((term, 1));
            }
        }
        for (value, term) in [
            (self.min_latency, "min_latency"),
            (self.event_filter, "event_filter"),
        ] {
            if let Some(value) = value {
                terms.push((term, value));
            }
        }
        Sampling { period, terms }
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
            "nothing to record: give a command after --, a process with -p, or a cgroup with --cgroup"
        );
    }
    let pmus = Pmus::read(Path::new("/sys"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the timers")?;
    let _guard = runtime.enter();
    // A file that cannot be written is said before anything runs.
    let paths = Paths::of(args);
    let files = paths.create()?;
    let command = match &args.command[..] {
        [] => None,
        words => Some(Command::beside(words).map_err(NotStarted)?),
    };
    let target = match (&command, args.pid, &args.cgroup) {
        (Some(command), ..) => Target::Command(command.pid()),
        (_, Some(pid), _) => Target::Process(pid),
        (_, _, Some(path)) => Target::Cgroup(path.clone()),
        (None, None, None) => unreachable!("one of them is given"),
    };
    let end = End::of(&target)?;
    let config = Config {
        sampling: args.sampling.sampling(args.period),
        buffers: Buffers {
            ring: args.ring,
            aux: args.aux,
            watermark: args.watermark,
        },
        target,
        per_thread: args.per_thread,
    };
    let about = about(&config);
    let mut recorder = Recorder::open(config, &pmus)?;
    let mut files = files.begin(&recorder, args.per_thread)?;
    recorder.start()?;
    if command.is_none() {
        eprintln!("pmuscope: recording; Ctrl-C ends it");
    }
    let status = runtime.block_on(until_the_end(&mut recorder, &mut files, command, end, true))?;
    files.finish(&recorder, about)?;
    let counts = recorder.counts();
    let losses = match counts.losses() {
        losses if losses.is_empty() => "nothing lost".to_owned(),
        losses => losses,
    };
    eprintln!(
        "pmuscope: {} samples into {paths}; {losses}",
        counts.samples
    );
    Ok(exit_code(status))
}

/// What the file says of how it was made.
fn about(config: &Config) -> Vec<(String, String)> {
    let Config {
        sampling, buffers, ..
    } = config;
    let terms: Vec<String> = sampling
        .terms
        .iter()
        .map(|(name, value)| format!("{name}={value:#x}"))
        .collect();
    [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("period", sampling.period.to_string()),
        ("terms", terms.join(",")),
        ("aux_bytes_per_buffer", buffers.aux.0.to_string()),
        ("ring_bytes_per_buffer", buffers.ring.0.to_string()),
        ("per_thread", config.per_thread.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Where the recording goes.
struct Paths {
    samples: Option<PathBuf>,
    raw: Option<PathBuf>,
}

impl Paths {
    fn of(args: &Args) -> Self {
        let raw = args.raw.clone();
        #[cfg(feature = "parquet")]
        let samples = match (&args.output, &raw) {
            (None, None) => Some("pmuscope-mem.parquet".into()),
            (output, _) => output.clone(),
        };
        #[cfg(not(feature = "parquet"))]
        let samples = None;
        Self { samples, raw }
    }

    fn create(&self) -> Result<Created> {
        let create = |path: &Option<PathBuf>| {
            path.as_deref()
                .map(|path| {
                    File::create(path).with_context(|| format!("cannot write {}", path.display()))
                })
                .transpose()
        };
        Ok(Created {
            samples: create(&self.samples)?,
            raw: create(&self.raw)?,
        })
    }
}

impl std::fmt::Display for Paths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths = self.samples.iter().chain(&self.raw);
        let names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        f.write_str(&names.join(" and "))
    }
}

struct Created {
    samples: Option<File>,
    raw: Option<File>,
}

impl Created {
    fn begin(self, recorder: &Recorder, per_thread: bool) -> Result<Files> {
        let begin = |file| RawFile::begin(file, recorder, per_thread);
        let raw = self.raw.map(begin).transpose();
        Ok(Files {
            #[cfg(feature = "parquet")]
            samples: self
                .samples
                .map(probe_user::record::SampleFile::begin)
                .transpose()
                .context("cannot write the samples")?,
            raw: raw.context("cannot write the raw file")?,
        })
    }
}

/// The files of a recording; what they need of it goes to each.
struct Files {
    #[cfg(feature = "parquet")]
    samples: Option<probe_user::record::SampleFile>,
    raw: Option<RawFile>,
}

impl Files {
    fn finish(self, recorder: &Recorder, about: Vec<(String, String)>) -> Result<()> {
        #[cfg(feature = "parquet")]
        if let Some(file) = self.samples {
            let counts = recorder.counts().named().into_iter();
            let counts = counts.map(|(name, count)| (format!("count.{name}"), count.to_string()));
            let about: Vec<_> = about.into_iter().chain(counts).collect();
            file.finish(&about).context("cannot write the samples")?;
        }
        if let Some(file) = self.raw {
            file.finish(recorder).context("cannot write the raw file")?;
        }
        Ok(())
    }
}

impl Sink for Files {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        #[cfg(feature = "parquet")]
        if let Some(file) = &mut self.samples {
            file.sample(sample)?;
        }
        Ok(())
    }

    fn ring(&mut self, records: &[u8]) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), |file| file.ring(records))
    }

    fn aux(&mut self, place: AuxPlace, bytes: &[u8]) -> io::Result<()> {
        self.raw
            .as_mut()
            .map_or(Ok(()), |file| file.aux(place, bytes))
    }

    fn round(&mut self) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), RawFile::round)
    }
}

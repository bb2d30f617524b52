//! `pmuscope mem`: memory accesses per container, sampled by SPE: where they were served, how long they took.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use probe_common::CgroupId;
use probe_user::{
    cgroup::Hierarchy,
    command::{Command, RunningCommand},
    derive::spe::SpeReport,
    emit::{Format, SpeEmitter},
    event::Pmus,
    join::{By, CommandOwner, View},
    load::{
        Config, Hook, Plan, Session, SpeConfig,
        spe::{
            DEFAULT_BUDGET, DEFAULT_FILTERS, DEFAULT_PERIOD, SpeEvents, Timeline, UPKEEP, aux_size,
        },
    },
    pull::Snapshot,
    window::SpeWindow,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval_at},
};

use crate::stat::{NotStarted, asked_to_end, ended, readable, tick};

/// Arguments of `mem`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What a row stands for
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Print every MS milliseconds
    #[arg(short = 'I', long = "interval-print", value_name = "MS", value_parser = clap::value_parser!(u64).range(10..))]
    interval: Option<u64>,
    /// Only rows of this cgroup and those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Operations from one sample to the next; without it the period begins at 32,768 and follows the budget
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(256..))]
    period: Option<u64>,
    /// What is sampled, in the PMU's own terms (see `pmuscope list events arm_spe_0`)
    #[arg(long, value_name = "TERMS", default_value = DEFAULT_FILTERS)]
    filter: String,
    /// Only operations that took at least this many cycles
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u16).range(1..))]
    min_latency: Option<u16>,
    /// The N most accessed pages of each process too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hot_pages: Option<u32>,
    /// Longest time with interrupts off for a buffer's records, such as 50us
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = time)]
    spe_irq_max: Duration,
    /// Share of a CPU's time that decoding may cost, such as 0.5%: the period is adapted to it
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    spe_budget: Option<f64>,
    /// Also print what became of everything that was written
    #[arg(long = "self")]
    with_self: bool,
    /// Sample until this command ends; it runs in a cgroup of its own
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Pages that the kernel keeps, of all processes.
const PAGES: u32 = 65_536;

/// `50us`, `1ms`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1), ("ms", 1000)];
    let parsed = units.iter().find_map(|(unit, micros)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*micros)
    });
    match parsed {
        Some(micros @ 1..=1_000_000) => Ok(Duration::from_micros(micros)),
        _ => Err("a time is a number of us or ms, from 1us to 1000ms".to_owned()),
    }
}

/// `0.5%` as 0.005.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("a budget is a share above 0% up to 100%, such as 0.5%".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let pmus = Pmus::read(Path::new("/sys"))?;
    let spe = config(args, &pmus)?;
    let hierarchy = Hierarchy::find(Path::new("/proc"))?;
    let below = args
        .cgroup
        .as_deref()
        .map(|path| hierarchy.resolve(path))
        .transpose()?;
    let out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?,
        ),
        None => Box::new(io::stdout()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the timers")?;
    runtime.block_on(async {
        let mut mem = Mem::start(args, spe, &hierarchy, below, out)?;
        let ended = mem.until_the_end().await?;
        mem.finish(ended)
    })
}

fn config(args: &Args, pmus: &Pmus) -> Result<SpeConfig> {
    if args.filter.contains('/') {
        bail!(
            "--filter takes terms such as load_filter=1,jitter=1, without the PMU's name and slashes"
        );
    }
    let mut filters = args.filter.clone();
    if let Some(cycles) = args.min_latency {
        filters.push_str(&format!(",min_latency={cycles}"));
    }
    let period = args.period.unwrap_or(DEFAULT_PERIOD);
    let events = SpeEvents::resolve(pmus, filters.trim_start_matches(','), period)?;
    Ok(SpeConfig {
        events,
        irq_max: args.spe_irq_max,
        aux_size: aux_size(args.spe_irq_max),
        budget: match (args.spe_budget, args.period) {
            (Some(share), _) => Some(share),
            (None, None) => Some(DEFAULT_BUDGET),
            (None, Some(_)) => None,
        },
        pages: args.hot_pages.map_or(0, |_| PAGES),
        max_rows: None,
        timeline: Timeline::Auto,
    })
}

/// A running session with all that it waits for.
struct Mem {
    session: Session,
    view: View,
    emitter: SpeEmitter<Box<dyn Write>>,
    pages: usize,
    first: Snapshot,
    last: Snapshot,
    timer: Option<Interval>,
    command: Option<RunningCommand>,
    interrupt: Signal,
    terminate: Signal,
}

impl Mem {
    fn start(
        args: &Args,
        spe: SpeConfig,
        hierarchy: &Hierarchy,
        below: Option<String>,
        out: Box<dyn Write>,
    ) -> Result<Self> {
        // From here on Ctrl-C ends the sampling, not this process.
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let command = match args.command.as_slice() {
            [] => None,
            words => Some(Command::prepare(words, hierarchy).map_err(NotStarted)?),
        };
        let follow = command
            .as_ref()
            .is_some_and(|command| command.owner() == CgroupId::COMMAND);
        let config = Config {
            plan: Plan::default(),
            hook: Hook::SchedSwitch,
            by_process: args.by == By::Process,
            follow_command: follow,
            max_rows: None,
            spe: Some(spe),
        };
        let mut session = Session::start(config, hierarchy)?;
        if let Some(command) = command.as_ref().filter(|_| follow) {
            session.follow(command.pid())?;
        }
        let view = View {
            by: args.by,
            below,
            command: command.as_ref().map(|command| CommandOwner {
                name: args.command[0].to_string_lossy().into_owned(),
                owner: command.owner(),
            }),
            merged_idle: false,
        };
        let first = session.pull()?;
        let command = command
            .map(Command::start)
            .transpose()
            .map_err(NotStarted)?;
        let timer = args.interval.map(|millis| {
            let period = Duration::from_millis(millis);
            let mut timer = interval_at(tokio::time::Instant::now() + period, period);
            timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
            timer
        });
        let last = first.clone();
        Ok(Self {
            session,
            view,
            emitter: SpeEmitter::new(out, args.format, args.with_self),
            pages: args.hot_pages.unwrap_or_default() as usize,
            first,
            last,
            timer,
            command,
            interrupt,
            terminate,
        })
    }

    /// Prints at every tick, until the command ends or Ctrl-C.
    async fn until_the_end(&mut self) -> Result<Option<ExitStatus>> {
        // SAFETY: the session owns the descriptor and outlives this function.
        let lifecycle = unsafe {
            AsyncFd::register_with_interest(self.session.lifecycle_fd(), Interest::READABLE)
        }
        .context("cannot listen for cgroups that come and go")?;
        let hotplug = self
            .session
            .hotplug_fd()
            // SAFETY: as above.
            .map(|fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) })
            .transpose()
            .context("cannot listen for CPUs that come and go")?;
        let mut upkeep = tokio::time::interval(UPKEEP);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut asked = false;
        loop {
            tokio::select! {
                () = tick(&mut self.timer) => self.print()?,
                _ = upkeep.tick() => self.session.upkeep()?,
                status = ended(self.command.as_ref()) => return Ok(Some(status?)),
                () = asked_to_end(&mut self.interrupt, &mut self.terminate) => match &self.command {
                    Some(command) if !asked => {
                        asked = true;
                        command.terminate().context("cannot end the command")?;
                    }
                    // No command, or one that does not want to end.
                    _ => return Ok(None),
                },
                ready = lifecycle.readable() => {
                    ready.context("cannot listen for cgroups that come and go")?.clear_ready();
                    self.session.drain()?;
                }
                ready = readable(hotplug.as_ref()) => {
                    ready.context("cannot listen for CPUs that come and go")?.clear_ready();
                    self.session.drain()?;
                }
            }
        }
    }

    /// The last window, and the exit code: the command's, or 0.
    fn finish(mut self, ended: Option<ExitStatus>) -> Result<ExitCode> {
        self.print()?;
        let Some(status) = ended else {
            return Ok(ExitCode::SUCCESS);
        };
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    }

    fn print(&mut self) -> Result<()> {
        let now = self.session.pull()?;
        let Some(window) = SpeWindow::between(&self.last, &now) else {
            bail!("the session does not sample");
        };
        let joined = self.view.join_spe(&window);
        let report = SpeReport::new(&window, &joined, self.first.at, self.pages);
        self.last = now;
        self.emitter
            .write(&report)
            .context("cannot write the output")
    }
}

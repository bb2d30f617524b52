//! `pmuscope stat`: the pipeline from load to emit, driven by a timer, a command and Ctrl-C.

mod samples;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::{fd::RawFd, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use probe_common::CgroupId;
use probe_user::{
    catalogue::{Catalogue, Chip, Machine, Metric, Settings},
    cgroup::Hierarchy,
    command::{Command, RunningCommand},
    cpus,
    derive::Report,
    devices::Devices,
    emit::{Emitter, Format},
    event::{self, Pmus},
    join::{By, CommandOwner, View},
    load::{Config, Hook, Plan, Request, Room, Session, default_events, spe::UPKEEP},
    pull::Snapshot,
    topology::Topology,
    window::Window,
};
use tokio::{
    io::{
        Interest,
        unix::{AsyncFd, AsyncFdReadyGuard},
    },
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval_at},
};

/// Arguments of `stat`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events in perf's syntax: names, groups {a,b}, pmu/event,term=value/, rNNNN, modifiers :u :k
    #[arg(short, long = "event", value_name = "EVENTS")]
    event: Vec<String>,
    /// Metrics by name, group:NAME or all, separated by commas; `pmuscope list metrics` names them
    #[arg(short = 'M', long = "metric", value_name = "METRICS")]
    metric: Vec<String>,
    /// Add the metrics of this file, which is in the format of pmuscope's own
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,
    /// Which chip this is, where it cannot be told or is told wrong
    #[arg(long, value_enum)]
    chip: Option<Chip>,
    /// Hardware counters of each core that stay free for other users
    #[arg(long, value_name = "N", default_value_t = 1)]
    reserve_counters: usize,
    /// How long the counters of one group stay on a CPU, where there are more groups than fit
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(4..=3_600_000))]
    rotate: Option<u64>,
    /// Only this PCI device in metrics of PCIe: a name such as nvme0, or an address (`pmuscope list devices`)
    #[arg(long, value_name = "DEVICE", requires = "metric")]
    device: Option<String>,
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
    /// Kernel hook that accounts; cgroup-switches is used only where the kernel runs it completely
    #[arg(long, value_enum, default_value_t)]
    hook: Hook,
    /// Rows that the kernel map takes (owners x CPUs x groups); what does not fit is shown as `system (overflow)`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_rows: Option<u32>,
    /// Also print what pmuscope's own programs cost
    #[arg(long = "self")]
    with_self: bool,
    /// Count until this command ends; it runs in a cgroup of its own
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotStarted(pub(crate) io::Error);

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.by == By::Process && args.hook == Hook::CgroupSwitches {
        bail!(
            "--by process needs --hook sched-switch: switches between processes of one cgroup are not cgroup switches"
        );
    }
    let pmus = Pmus::read(Path::new("/sys"))?;
    let plan = plan(args, &pmus)?;
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
        let mut stat = Stat::start(args, plan, &hierarchy, below, out)?;
        let ended = stat.until_the_end().await?;
        stat.finish(ended)
    })
}

/// The events of `-e` and the metrics of `-M`, or what fits this machine, packed into groups.
fn plan(args: &Args, pmus: &Pmus) -> Result<Plan> {
    let mut catalogue = Catalogue::builtin()?;
    for file in &args.catalogue {
        catalogue.merge_file(file)?;
    }
    let sysfs = Path::new("/sys");
    let machine = args
        .chip
        .map_or_else(|| Machine::detect(sysfs), Machine::of_chip);
    let metrics = match args.metric.as_slice() {
        [] => Vec::new(),
        lists => catalogue.select(&lists.join(","), &machine)?,
    };
    let events = match (args.event.as_slice(), args.metric.as_slice()) {
        ([], []) => default_events(pmus)?,
        ([], _) => Vec::new(),
        (lists, _) => event::parse(&lists.join(","), pmus)?,
    };
    let general = catalogue.metrics().filter(|metric| metric.family.fallback);
    let request = Request {
        events: &events,
        metrics: &metrics,
        offered: &general.collect::<Vec<_>>(),
        machine,
        cpus: cpus::online(sysfs)?.len(),
        settings: settings(args, sysfs, pmus)?,
    };
    let room = Room::of_this_machine(&catalogue, &machine, pmus, args.reserve_counters);
    let mut plan = Plan::packed(&request, pmus, &room)?;
    let of_devices = |metric: &&Metric| metric.apportion.is_of_device();
    if metrics.iter().any(of_devices) {
        plan.devices = Arc::new(Devices::read(sysfs, pmus, &Topology::read(sysfs)));
    }
    Ok(plan)
}

/// The filters that narrow PMUs to the device of `--device`.
fn settings(args: &Args, sysfs: &Path, pmus: &Pmus) -> Result<Settings> {
    let Some(name) = &args.device else {
        return Ok(Settings::default());
    };
    let devices = Devices::read(sysfs, pmus, &Topology::read(sysfs));
    let Some((complex, port, device)) = devices.find(name) else {
        bail!("there is no PCI device {name}: `pmuscope list devices` shows those of this machine");
    };
    let narrowed = complex.narrowed(port, device);
    if narrowed.is_empty() {
        bail!(
            "no PMU of this machine counts {name} by itself: `pmuscope list devices` shows which it can"
        );
    }
    Ok(Settings {
        device: narrowed,
        ..Settings::default()
    })
}

/// A running session with all that it waits for.
struct Stat {
    session: Session,
    view: View,
    emitter: Emitter<Box<dyn Write>>,
    first: Snapshot,
    last: Snapshot,
    timer: Option<Interval>,
    rotation: Option<Interval>,
    /// Of samples, where there are any.
    upkeep: Option<Interval>,
    command: Option<RunningCommand>,
    /// Ctrl-C, and what service managers and container runtimes send.
    interrupt: Signal,
    terminate: Signal,
    /// Whoever read the output has seen enough (`| head`).
    unread: bool,
}

impl Stat {
    fn start(
        args: &Args,
        plan: Plan,
        hierarchy: &Hierarchy,
        below: Option<String>,
        out: Box<dyn Write>,
    ) -> Result<Self> {
        // From here on Ctrl-C ends the counting, not this process.
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let command = match args.command.as_slice() {
            [] => None,
            words => Some(Command::prepare(words, hierarchy).map_err(NotStarted)?),
        };
        let follow = command
            .as_ref()
            .is_some_and(|command| command.owner() == CgroupId::COMMAND);
        let hook = if follow && args.hook == Hook::CgroupSwitches {
            tracing::warn!("hook cgroup-switches cannot follow a process tree: using sched-switch");
            Hook::SchedSwitch
        } else {
            args.hook
        };
        let by_process = args.by == By::Process;
        let config = Config {
            plan,
            hook,
            by_process,
            follow_command: follow,
            max_rows: args.max_rows,
            spe: None,
        };
        let mut session = samples::start(config, hierarchy)?;
        let upkeep = session.samples().then(|| every(UPKEEP));
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
        let timer = args.interval.map(Duration::from_millis).map(every);
        let period = args
            .rotate
            .map_or_else(|| session.rotation_period(), Duration::from_millis);
        let rotation = session.rotates().then(|| every(period));
        let emitter = Emitter::new(out, args.format, args.with_self);
        let last = first.clone();
        Ok(Self {
            session,
            view,
            rotation,
            upkeep,
            emitter,
            first,
            last,
            timer,
            command,
            interrupt,
            terminate,
            unread: false,
        })
    }

    /// Prints at every tick, until the command ends, Ctrl-C, or nobody reads what is counted for no command.
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
        let mut asked = false;
        loop {
            tokio::select! {
                () = tick(&mut self.timer) => {
                    self.print()?;
                    if self.unread && self.command.is_none() {
                        return Ok(None);
                    }
                }
                () = tick(&mut self.rotation) => self.session.rotate()?,
                () = tick(&mut self.upkeep) => self.session.upkeep()?,
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
        if self.unread {
            return Ok(());
        }
        let hook = self.session.hook();
        let now = self.session.pull()?;
        let plan = self.session.plan();
        let window = Window::between(&self.last, &now, plan);
        self.view.merged_idle = hook == Hook::CgroupSwitches;
        let joined = self.view.join(&window, plan.groups.len());
        let mut report = Report::new(plan, &window, &joined, self.first.at);
        report.add_shares(plan, &window, &self.view);
        if let Some(samples) = &window.samples {
            report.add_samples(plan, samples, &self.view);
        }
        self.last = now;
        match self.emitter.write(&report, &window.health) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            result => result.context("cannot write the output"),
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut timer = interval_at(tokio::time::Instant::now() + period, period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    timer
}

pub(crate) async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => std::future::pending().await,
    }
}

pub(crate) async fn asked_to_end(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

pub(crate) async fn readable(
    fd: Option<&AsyncFd<RawFd>>,
) -> io::Result<AsyncFdReadyGuard<'_, RawFd>> {
    match fd {
        Some(fd) => fd.readable().await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn ended(command: Option<&RunningCommand>) -> io::Result<ExitStatus> {
    match command {
        Some(command) => command.ended().await,
        None => std::future::pending().await,
    }
}

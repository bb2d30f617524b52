//! `pmuscope stat`: the pipeline from load to emit, driven by a timer, a command and Ctrl-C.

mod cost_warning;
mod replay;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use probe_user::{
    calibration::{Calibration, UsedCalibration},
    catalogue::{Catalogue, Chip, Processor, resolve_hardware},
    join::{By, Hottest, RowSelection},
    machine::Machine,
    names::resolver::Resolver,
    plan::{Plan, PlanRequest, RESERVE_COUNTERS},
    session::{Config, MOST_ROWS, SamplingConfig, Session, SpeConfig},
    snapshot::{Hook, Snapshot},
};

pub(crate) use self::replay::begin as begin_replay;
use crate::{completions, live, rows::RowArgs, sampling, times};

/// Arguments of `stat`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope stat                                # every second, until Ctrl-C
  pmuscope stat -e cycles,instructions -- make # beside a command
  pmuscope stat -M group:wait --by pod         # for whom pods wait
  pmuscope stat --format json --timeout 5s     # for a program")]
pub(crate) struct Args {
    #[command(flatten)]
    counting: CountingArgs,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    run: live::Args,
    #[command(flatten)]
    replayed: ReplayArgs,
    /// With --replay: from this time after the beginning of the recording, such as 90s
    #[arg(long, value_name = "TIME", requires = "replay", value_parser = times::duration)]
    from: Option<Duration>,
    /// With --replay: up to this time after the beginning of the recording
    #[arg(long, value_name = "TIME", requires = "replay", value_parser = times::duration)]
    to: Option<Duration>,
}

/// A recording in place of a run.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct ReplayArgs {
    /// Show this recording of `pmuscope record` in place of a run
    ///
    /// With -M it shows other metrics of what was counted, with --by other rows.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "event", "device", "sample", "capacity", "pressure", "interval", "interval_count",
            "timeout", "rotate", "max_rows", "kernel_log", "command",
        ],
    )]
    pub(crate) replay: Option<PathBuf>,
}

/// What is counted.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct CountingArgs {
    /// Events in perf's syntax, such as cycles,page-faults:u (`pmuscope list events`)
    ///
    /// Names, groups {a,b}, pmu/event,term=value/, rNNNN, modifiers :u :k. A PMU without its
    /// number, or with * and ?, stands for all its instances.
    #[arg(short, long = "event", value_name = "EVENTS", add = completions::events())]
    event: Vec<String>,
    /// Metrics by name, group:NAME or all (`pmuscope list metrics`)
    #[arg(short = 'M', long = "metric", value_name = "METRICS", add = completions::metrics())]
    metric: Vec<String>,
    /// Add the metrics of this file in pmuscope's own format, or of this directory in perf's
    /// (tools/perf/pmu-events, intel/perfmon)
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    catalogue: Vec<PathBuf>,
    /// Divide memory traffic by this calibration of the machine (`pmuscope calibrate shares`), or by
    /// the one of a directory that fits
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    calibration: Option<PathBuf>,
    /// The chip of this machine, if it is not detected or detected wrong
    #[arg(long, value_enum, hide_short_help = true)]
    chip: Option<Chip>,
    /// Hardware counters of each core that stay free for other users
    #[arg(long, value_name = "N", default_value_t = RESERVE_COUNTERS, hide_short_help = true)]
    reserve_counters: usize,
    /// How long the counters of a group stay on a CPU, if not all groups fit at once
    #[arg(
        long,
        value_name = "MS",
        hide_short_help = true,
        value_parser = clap::value_parser!(u64).range(4..=3_600_000)
    )]
    rotate: Option<u64>,
    /// Count only this PCI device in metrics of PCIe: a name such as nvme0, or an address
    /// (`pmuscope list devices`)
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "metric",
        hide_short_help = true
    )]
    device: Option<String>,
    /// Kernel hook for accounting; cgroup-switches is used only if the kernel runs it at all
    /// switches
    #[arg(long, value_enum, default_value_t, hide_short_help = true)]
    pub(crate) hook: Hook,
    /// Size of the kernel map in rows (owners x CPUs x groups), and of that of waits (pairs of
    /// owners x CPUs); counts that do not fit are shown as `system (overflow)`
    #[arg(
        long,
        value_name = "N",
        hide_short_help = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROWS))
    )]
    max_rows: Option<u32>,
    /// Also show what each row holds in memory, its peak, and how near its limit that came
    #[arg(long)]
    pub(crate) capacity: bool,
    /// Also show what each row lacks: pressure on CPU, memory and I/O, and throttling
    ///
    /// Of containers, pods and cgroups: how long tasks waited for CPU, memory or I/O, how long a
    /// CPU quota throttled them, and their I/O and memory events.
    #[arg(long)]
    pub(crate) pressure: bool,
    /// Also sample these events, such as cycles/freq=99/: columns `sampled_EVENT`
    ///
    /// Each has period=N or freq=N among its terms where the default of 997 samples per second and
    /// CPU is not wanted. The column is what the samples stand for, with its 95% interval.
    #[arg(long, value_name = "EVENTS", add = completions::events())]
    sample: Vec<String>,
    /// The share of a CPU's time that the program which takes samples may take, such as 0.5%
    /// (the default): where it takes more, events are sampled less often
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = sampling::percent,
        requires = "sample",
        hide_short_help = true
    )]
    sample_budget: Option<f64>,
}

pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    if let Some(file) = &args.replayed.replay {
        return replay::run(file, &args);
    }
    args.run.set_windows_on_a_terminal();
    let mut warned = false;
    let warn_of_cost = |plan: &Plan, now: &Snapshot| {
        let message = cost_warning::message(plan, &now.health.cost);
        if let Some(message) = message.filter(|_| !warned) {
            tracing::warn!("{message}");
            warned = true;
        }
    };
    let machine = Arc::new(Machine::this());
    let mut printer = live::WindowPrinter::open(&args.run, warn_of_cost)?;
    count(
        &args.counting,
        &args.run.session,
        WindowContent {
            rows: args.rows.selection(),
            ..WindowContent::default()
        },
        &machine,
        &mut printer,
    )
}

/// What windows show.
#[derive(Default)]
pub(crate) struct WindowContent {
    pub(crate) rows: RowSelection,
    /// Limits for sampled memory accesses; None: none are sampled.
    pub(crate) accesses: Option<Hottest>,
    /// Number of functions shown of each row and sampled event.
    pub(crate) functions: usize,
}

/// Counts, and passes every window to `windows`.
pub(crate) fn count(
    args: &CountingArgs,
    session: &live::SessionArgs,
    shown: WindowContent,
    machine: &Arc<Machine>,
    windows: &mut dyn live::WindowSink,
) -> Result<ExitCode> {
    let by_process = session.by() == By::Process || !shown.rows.pids.is_empty();
    if by_process && args.hook == Hook::CgroupSwitches {
        bail!(
            "--by process needs --hook sched-switch, and so does --pid: switches between processes \
             of one cgroup are not cgroup switches"
        );
    }
    if session.by() == By::Process && args.pressure {
        bail!(
            "--pressure needs rows by container, pod or cgroup: the kernel has no such counts by \
             process"
        );
    }
    let sampling = match args.sample.as_slice() {
        [] => None,
        lists => {
            let budget = args.sample_budget;
            Some(sampling::config(
                lists,
                machine.pmus()?,
                budget,
                shown.functions > 0,
            )?)
        }
    };
    let rates = session.window_length().is_some();
    let plan = plan(args, rates, sampling.as_ref(), machine)?;
    let run = live::LiveRun {
        session,
        hierarchy: machine.hierarchy()?,
        mux_interval: args.rotate.map(Duration::from_millis),
        accesses: shown.accesses,
        hot: shown.functions,
        rows: shown.rows,
        start: |follow, resolver| {
            let mut config = config(args, by_process, plan, follow, resolver);
            // SPE samples only on request, or for metrics of samples. Shares of traffic use
            // counters, which cost less and see more.
            if shown.accesses.is_some() || config.plan.samples() {
                config.spe = Some(SpeConfig::standard(machine.pmus()?)?);
            }
            config.sampling = sampling;
            Ok(Session::start(config, machine)?)
        },
    };
    live::run(run, windows)
}

fn config(
    args: &CountingArgs,
    by_process: bool,
    plan: Plan,
    follow_command: bool,
    resolver: Option<Arc<Resolver>>,
) -> Config {
    let hook = if follow_command && args.hook == Hook::CgroupSwitches {
        tracing::warn!("hook cgroup-switches cannot follow a process tree: using sched-switch");
        Hook::SchedSwitch
    } else {
        args.hook
    };
    Config {
        plan,
        hook,
        by_process: by_process.into(),
        follow_command,
        max_rows: args.max_rows,
        memory: args.capacity,
        pressure: args.pressure,
        resolver,
        ..Config::default()
    }
}

/// The events of `-e` and the metrics of `-M` packed into groups; without these, what fits this
/// machine.
fn plan(
    args: &CountingArgs,
    rates: bool,
    sampling: Option<&SamplingConfig>,
    machine: &Machine,
) -> Result<Plan> {
    let mut catalogue = Catalogue::builtin()?;
    let hardware = resolve_hardware(machine, args.chip);
    let processor = Processor::of_machine(&catalogue, machine, &hardware);
    for path in &args.catalogue {
        catalogue.merge_path(path, &hardware, &processor)?;
    }
    let calibration = match &args.calibration {
        Some(path) => Calibration::read(path, machine)?.used_on(machine),
        None => UsedCalibration::default(),
    };
    let mut wanted = PlanRequest {
        events: args.event.clone(),
        metrics: args.metric.clone(),
        always: "",
        own_weights: false,
        calibration,
        all_weights: false,
        reserve_counters: args.reserve_counters,
        device: args.device.clone(),
        sampled: Vec::new(),
        // The hook cgroup-switches does not see the incoming task.
        waits: args.hook == Hook::SchedSwitch && machine.keeps_waits(),
        rates,
    };
    if let Some(sampling) = sampling {
        wanted.set_sampled(&sampling.events);
    }
    Ok(wanted.plan(machine, &catalogue, hardware)?)
}

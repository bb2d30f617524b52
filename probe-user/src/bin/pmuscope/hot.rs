//! `pmuscope hot`: where in code each container causes an event, by samples of its overflows.

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use probe_user::{
    catalogue::{Catalogue, resolve_hardware},
    event::sampling::default_event,
    join::By,
    machine::Machine,
    plan::PlanRequest,
    session::{Config, Session},
};

use crate::{completions, live, rows::RowArgs, sampling};

/// Arguments of `hot`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope hot                                 # functions of containers, every second
  pmuscope hot -e cache-misses --by process
  pmuscope hot --functions 30 -- make          # of a command")]
pub(crate) struct Args {
    /// Events to sample, in perf's syntax, each with period=N or freq=N among its terms where the
    /// default of 997 samples per second and CPU is not wanted: cycles, cache-misses/period=10000/,
    /// cpu/event=0xc5/pp [default: cycles, or cpu-clock where the machine shows no core PMU]
    ///
    /// Known bias: an address may be some instructions behind the cause (skid), unless the core
    /// samples precisely (:p, :pp); an instruction behind a slow one is sampled in its place
    /// (shadow); counters of the core stand still while a CPU is idle.
    #[arg(short, long = "event", value_name = "EVENTS", add = completions::events())]
    event: Vec<String>,
    /// Functions that are shown of each row and event
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    functions: u32,
    /// The share of a CPU's time that the program which takes samples may take, such as 0.5%
    /// (the default): where it takes more, events are sampled less often
    #[arg(long, value_name = "PERCENT", value_parser = sampling::percent, hide_short_help = true)]
    sample_budget: Option<f64>,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    run: live::Args,
}

pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    args.run.set_windows_on_a_terminal();
    let machine = Arc::new(Machine::this());
    let pmus = machine.pmus()?;
    let mut lists = args.event.clone();
    if lists.is_empty() {
        let event = default_event(pmus);
        if event != "cycles" {
            tracing::info!(
                "this machine shows no core PMU: sampling {event}, the time of each CPU, in place \
                 of cycles"
            );
        }
        lists.push(event.to_owned());
    }
    let sampling = sampling::config(&lists, pmus, args.sample_budget, true)?;
    let mut wanted = PlanRequest {
        events: vec!["task-clock".to_owned()],
        ..PlanRequest::default()
    };
    wanted.set_sampled(&sampling.events);
    let catalogue = Catalogue::builtin()?;
    let plan = wanted.plan(&machine, &catalogue, resolve_hardware(&machine, None))?;
    let selection = args.rows.selection();
    let start = |follow_command, resolver| {
        let config = Config {
            plan,
            by_process: (args.run.session.by() == By::Process || !selection.pids.is_empty()).into(),
            follow_command,
            sampling: Some(sampling),
            resolver,
            ..Config::default()
        };
        Ok(Session::start(config, &machine)?)
    };
    let run = live::LiveRun {
        session: &args.run.session,
        hierarchy: machine.hierarchy()?,
        mux_interval: None,
        accesses: None,
        hot: args.functions as usize,
        rows: selection.clone(),
        start,
    };
    live::run(run, &mut live::WindowPrinter::open(&args.run, |_, _| {})?)
}

//! `pmuscope mem`: memory accesses per container, with their data sources and latencies. They are
//! sampled by SPE, or by events of cores without it.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use probe_user::{
    catalogue::{Catalogue, resolve_hardware},
    event::{
        accesses::{accesses, describe_mechanism},
        sampling::Rate,
        spe::is_spe,
    },
    join::{By, Hottest, RowSelection},
    machine::{Machine, Pmus},
    plan::{Plan, PlanRequest},
    session::{
        Config, SamplingConfig, Session, SpeConfig,
        sampling::DEFAULT_SAMPLE_BUDGET,
        spe::{
            DEFAULT_BUDGET, DEFAULT_FILTERS, DEFAULT_IRQ_MAX, DEFAULT_PERIOD, LOWEST_IN_BUDGET,
            SpeEvents, Timeline, aux_size,
        },
    },
};

use crate::{live, sampling};

/// Arguments of `mem`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Operations from one sample to the next [default: with SPE 32,768 at first, then by the
    /// budget; otherwise 997 samples per second and CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(256..=0xffff_ff00))]
    period: Option<u64>,
    /// What to sample, in the terms of SPE's PMU (see `pmuscope list pmus`) [default:
    /// `load_filter=1,store_filter=1,jitter=1`]
    #[arg(long, value_name = "TERMS")]
    filter: Option<String>,
    /// Only operations that took at least this many cycles
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u16).range(1..))]
    min_latency: Option<u16>,
    /// Also show the N most accessed pages of each process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hot_pages: Option<u32>,
    /// Also show the N cache lines that CPUs and containers share most, with who touches which
    /// bytes of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hot_lines: Option<u32>,
    /// The longest time with interrupts off for the records of a buffer of SPE [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    spe_irq_max: Option<Duration>,
    /// The share of a CPU's time that taking in samples may take, such as 0.5%: the period is
    /// adapted to it, with SPE never below 4,096
    #[arg(
        long,
        value_name = "PERCENT",
        visible_alias = "sample-budget",
        value_parser = sampling::percent
    )]
    spe_budget: Option<f64>,
    #[command(flatten)]
    run: live::Args,
}

/// Pages in the kernel's map, for all processes.
const PAGES: u32 = 65_536;

/// Rows of cache lines in the kernel's map, one for each line, owner and CPU; each takes about 160
/// bytes.
const LINES: u32 = 131_072;

/// Parses a time such as `50us` or `1ms`.
fn parse_time(text: &str) -> Result<Duration, String> {
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

/// The initial period, and the budget that it is adapted to. A period without a budget is fixed.
fn initial_period(period: Option<u64>, budget: Option<f64>) -> Result<(u64, Option<f64>)> {
    match (period, budget) {
        (Some(period), Some(_)) if period < LOWEST_IN_BUDGET => bail!(
            "--period {period} is below {LOWEST_IN_BUDGET}, the least that a period which follows \
             a budget may be: give --period {LOWEST_IN_BUDGET} or more, or leave out --spe-budget \
             and the period stays at {period}"
        ),
        (Some(period), budget) => Ok((period, budget)),
        (None, budget) => Ok((DEFAULT_PERIOD, budget.or(Some(DEFAULT_BUDGET)))),
    }
}

pub(crate) fn run(args: &mut Args) -> Result<ExitCode> {
    args.run.set_windows_on_a_terminal();
    let machine = Arc::new(Machine::this());
    let pmus = machine.pmus()?;
    let mut config = Config {
        plan: Plan::default(),
        by_process: (args.run.session.by() == By::Process).into(),
        ..Config::default()
    };
    match event_sampling(args, pmus)? {
        Some(sampling) => {
            // A sample's owner is known only while something is counted.
            let mut wanted = PlanRequest {
                events: vec!["task-clock".to_owned()],
                ..PlanRequest::default()
            };
            wanted.set_sampled(&sampling.events);
            let hardware = resolve_hardware(&machine, None);
            config.plan = wanted.plan(&machine, &Catalogue::builtin()?, hardware)?;
            config.sampling = Some(sampling);
        }
        None => {
            let period = initial_period(args.period, args.spe_budget)?;
            config.spe = Some(spe_config(args, period, pmus)?);
        }
    }
    let start = |follow_command, resolver| {
        let config = Config {
            follow_command,
            resolver,
            ..config
        };
        Ok(Session::start(config, &machine)?)
    };
    let run = live::LiveRun {
        session: &args.run.session,
        hierarchy: machine.hierarchy()?,
        mux_interval: None,
        accesses: Some(Hottest {
            pages: args.hot_pages.unwrap_or_default() as usize,
            lines: args.hot_lines.unwrap_or_default() as usize,
        }),
        hot: 0,
        rows: RowSelection::default(),
        start,
    };
    live::run(run, &mut live::WindowPrinter::open(&args.run, |_, _| {})?)
}

/// The settings for sampling memory accesses by events. None if the machine has SPE, or no such
/// events.
fn event_sampling(args: &Args, pmus: &Pmus) -> Result<Option<SamplingConfig>> {
    if pmus.names().any(is_spe) {
        return Ok(None);
    }
    let events = accesses(pmus, args.period.map(Rate::Period), args.min_latency)?;
    if events.is_empty() {
        return Ok(None);
    }
    let method = describe_mechanism(pmus).unwrap_or_default();
    let only_spe = [
        ("--filter", args.filter.is_some()),
        ("--hot-lines", args.hot_lines.is_some()),
        ("--spe-irq-max", args.spe_irq_max.is_some()),
    ];
    if let Some((option, _)) = only_spe.iter().find(|(_, given)| *given) {
        bail!("{option} is for Arm's SPE, and this machine samples by {method}: leave it out");
    }
    tracing::info!("sampling by {method}");
    let budget = match (args.period, args.spe_budget) {
        (Some(_), budget) => budget,
        (None, budget) => Some(budget.unwrap_or(DEFAULT_SAMPLE_BUDGET)),
    };
    Ok(Some(SamplingConfig {
        events,
        budget,
        pages: args.hot_pages.is_some(),
        least_weight: args.min_latency.map_or(0, u64::from),
        ..SamplingConfig::default()
    }))
}

/// The settings of SPE.
fn spe_config(args: &Args, (period, budget): (u64, Option<f64>), pmus: &Pmus) -> Result<SpeConfig> {
    let mut filters = args.filter.as_deref().unwrap_or(DEFAULT_FILTERS).to_owned();
    if filters.contains('/') {
        bail!(
            "--filter takes terms such as load_filter=1,jitter=1, without the PMU's name and \
             slashes"
        );
    }
    if let Some(cycles) = args.min_latency {
        filters.push_str(&format!(",min_latency={cycles}"));
    }
    let filters = filters.trim_start_matches(',');
    let mut events = SpeEvents::resolve(pmus, filters, period)?;
    if args.hot_lines.is_some() {
        match events.with_physical(pmus, filters)? {
            Ok(physical) => events = physical,
            Err(reason) => tracing::warn!(
                "cache lines are told apart by virtual addresses, within each process: lines that \
                 several processes share are not seen as one, but for the kernel's own ({reason})"
            ),
        }
    }
    let irq_max = args.spe_irq_max.unwrap_or(DEFAULT_IRQ_MAX);
    Ok(SpeConfig {
        events,
        irq_max,
        aux_size: aux_size(irq_max),
        budget,
        pages: args.hot_pages.map_or(0, |_| PAGES),
        lines: args.hot_lines.map_or(0, |_| LINES),
        max_rows: None,
        timeline: Timeline::Auto,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_that_follows_a_budget_is_4096_at_least() {
        let error = initial_period(Some(1000), Some(0.005))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("--period 1000 is below 4096"), "{error}");
        assert_eq!(
            initial_period(Some(4096), Some(0.01)).unwrap(),
            (4096, Some(0.01))
        );
        // Without a budget any period is allowed.
        assert_eq!(initial_period(Some(1000), None).unwrap(), (1000, None));
        let standard = (DEFAULT_PERIOD, Some(DEFAULT_BUDGET));
        assert_eq!(initial_period(None, None).unwrap(), standard);
    }
}

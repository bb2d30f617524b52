//! `pmuscope list`: the PMUs, events and metrics of this machine.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use probe_user::{
    catalogue::{Catalogue, Chip, Processor, resolve_hardware},
    list::{Inventory, InventoryPart, MetricItem, write_metrics},
    machine::Machine,
};

use crate::{
    completions,
    print::{Format, to_stdout},
};

/// Arguments of `list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope list events
  pmuscope list metrics
  pmuscope list metrics ipc                    # its formula, source and caveats")]
pub(crate) struct Args {
    /// What to list [default: everything]
    #[arg(value_enum)]
    part: Option<InventoryPart>,
    /// After `metrics`: only these, each with its formula, source and caveats; names as in
    /// `stat -M`
    #[arg(value_name = "NAME", add = completions::metrics())]
    names: Option<String>,
    /// Add the metrics of this file in pmuscope's own format, or of this directory in perf's
    /// (tools/perf/pmu-events, intel/perfmon)
    #[arg(long, value_name = "PATH")]
    catalogue: Vec<PathBuf>,
    /// The chip of this machine, if it is not detected or detected wrong
    #[arg(long, value_enum)]
    chip: Option<Chip>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::this();
    let mut catalogue = Catalogue::builtin()?;
    let hardware = resolve_hardware(&machine, args.chip);
    let processor = Processor::of_machine(&catalogue, &machine, &hardware);
    for path in &args.catalogue {
        catalogue.merge_path(path, &hardware, &processor)?;
    }
    let named: Option<Vec<&str>> = match (args.part, &args.names) {
        (Some(InventoryPart::Metrics), Some(names)) => {
            let metrics = catalogue.select(names, &hardware)?;
            Some(metrics.iter().map(|metric| metric.name.as_str()).collect())
        }
        (_, Some(names)) => {
            bail!("only metrics can be listed by their names: `pmuscope list metrics {names}`")
        }
        (_, None) => None,
    };
    let mut inventory = Inventory::of_this_machine(&machine, &catalogue, &hardware)?;
    if let Some(named) = named {
        let wanted = |metric: &MetricItem| named.contains(&metric.name.as_str());
        inventory.metrics.retain(wanted);
        if args.format == Format::Table {
            let metrics: Vec<&MetricItem> = inventory.metrics.iter().collect();
            to_stdout(|out| write_metrics(out, &metrics))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    to_stdout(|out| match args.format {
        Format::Table => inventory.write_text(args.part, out),
        Format::Json => inventory.write_json(args.part, out),
    })?;
    Ok(ExitCode::SUCCESS)
}

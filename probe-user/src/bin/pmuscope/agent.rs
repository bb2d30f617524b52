//! `pmuscope agent`: counts continuously, and serves the last window.

use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::Result;
use probe_user::{
    agent::{self, Options, Sources},
    machine::Machine,
    session::{self, PinPath},
};

use crate::{logging, print::to_stdout};

const EXAMPLES: &str = "Examples:
  pmuscope agent                               # then: curl localhost:9464/metrics
  pmuscope agent --max-overhead 1% --interval 10s
  pmuscope agent --config agent.toml --check-config";

const FILES: &str = "Files:
  /etc/pmuscope/agent.toml   what the agent counts, and where it goes
  /run/pmuscope/off          stops everything at once, as long as it is there
  /run/pmuscope/spe.off      ends the samples of memory accesses, as long as it is there
  /run/pmuscope/state        what outlives a restart of the agent, within one boot (state.path)
  /sys/fs/bpf/pmuscope       pinned programs, links and maps of the agent (pins.path)
  The last two exist only if their key is set, as in the packaged configuration.

Signals:
  SIGHUP    reads the configuration again; counts go on
  SIGTERM   ends the agent, and removes what it pinned unless --keep-pins or pins.keep is set

Privileges:
  CAP_BPF and CAP_PERFMON. SPE's buffers need a limit of locked memory that holds them, or
  CAP_IPC_LOCK.";

/// Arguments of `agent`.
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{FILES}")
)]
pub(crate) struct Args {
    /// The configuration [default: /etc/pmuscope/agent.toml, if it is there]
    ///
    /// Each key can be set by the environment too: `PMUSCOPE_AGENT_HTTP_LISTEN` for `listen` of
    /// `[http]`. Flags override the environment, which overrides the file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration: print all errors, or if there are none the memory that it needs on
    /// this machine
    #[arg(long)]
    check_config: bool,
    /// Where /metrics is served, as 127.0.0.1:9464, or :9464 for all addresses, or off
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Length of a window, the time between two readings of the counters, such as 10s
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// Write each window as a line of JSON to the end of FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Directory of the lock, and of the files `off` and `spe.off`
    #[arg(long, value_name = "DIRECTORY")]
    run_directory: Option<String>,
    /// Maximum number of series; beyond it, the smallest containers are one row together
    #[arg(long, value_name = "N")]
    max_series: Option<String>,
    /// Maximum CPU use of the agent and its eBPF programs together, in percent of one CPU, such as
    /// 1%: above it fewer events are counted, windows get longer, and sampling stops, in this order
    #[arg(long, value_name = "SHARE")]
    max_overhead: Option<String>,
    /// Also show the N processes with the highest counts of the first event in each window
    #[arg(long, value_name = "N")]
    top_processes: Option<String>,
    /// Print messages of pmuscope's BPF programs about rare events, such as a full map, with their
    /// values
    #[arg(long)]
    kernel_log: bool,
    /// Drop all capabilities after counting has started. The agent must then be started again to
    /// count CPUs that come online, to reload what it counts, or to resume after `off`
    #[arg(long)]
    drop_all: bool,
    /// Keep counting in the kernel after SIGTERM too, not only after a kill; the next agent of the
    /// same build continues (needs pins.path)
    #[arg(long)]
    keep_pins: bool,
    /// End counting that an agent left on, and remove its pins
    #[arg(long, conflicts_with_all = ["check_config", "keep_pins"])]
    unpin: bool,
    /// Internal: saves the totals that the parent agent sends on standard input
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    save_state: Option<PathBuf>,
}

/// Builds the command that saves an agent's totals, in a process of its own.
fn save_state(directory: &Path) -> Command {
    // `/proc/self/exe` is the running program, even if its file was replaced since.
    let mut command = Command::new(Machine::this().roots().proc.join("self/exe"));
    command.args(["agent", "--save-state"]).arg(directory);
    command
}

impl Args {
    fn sources(&self) -> Sources {
        let kernel_log = self.kernel_log.then(|| "true".to_owned());
        let flags = [
            ("--listen", "http.listen", &self.listen),
            ("--interval", "interval", &self.interval),
            ("--json", "json.path", &self.json),
            ("--run-directory", "run.directory", &self.run_directory),
            ("--max-overhead", "max_overhead", &self.max_overhead),
            ("--max-series", "series.max", &self.max_series),
            (
                "--top-processes",
                "count.top_processes",
                &self.top_processes,
            ),
            ("--kernel-log", "kernel_log", &kernel_log),
        ];
        Sources {
            file: self.config.clone(),
            environment: env::vars_os().collect(),
            flags: flags
                .into_iter()
                .filter_map(|(flag, key, value)| Some((flag, key, value.clone()?)))
                .collect(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(directory) = &args.save_state {
        agent::save_for_parent(directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let sources = args.sources();
    if args.check_config {
        let config = sources.read()?;
        agent::check_files(&config)?;
        // `--check-config` prints its answer alone, without messages about this machine.
        let quiet = tracing::subscriber::NoSubscriber::default();
        let memory = tracing::subscriber::with_default(quiet, || {
            agent::memory_in_words(&config).unwrap_or_else(|error| {
                format!("its memory use cannot be computed on this machine: {error}")
            })
        });
        to_stdout(|out| writeln!(out, "the configuration is right\n{memory}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.unpin {
        let pin_path = sources
            .read()?
            .pins
            .path
            .map_or_else(PinPath::default, PinPath);
        let (unpinned, pin_path) = (session::unpin(&pin_path)?, pin_path.0.display());
        to_stdout(|out| match unpinned {
            0 => writeln!(out, "there are no pins in {pin_path}"),
            _ => writeln!(out, "removed the pins in {pin_path}: counting ended"),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    agent::run(Options {
        sources,
        drop_all: args.drop_all,
        keep_pins: args.keep_pins,
        save_state,
        show_kernel_log: logging::show_kernel_log,
    })?;
    Ok(ExitCode::SUCCESS)
}

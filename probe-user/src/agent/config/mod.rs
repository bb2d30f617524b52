//! The [`Config`] of an agent: a TOML file, then the environment, then flags. It is validated as a
//! whole, and every error names its origin and key.

mod error;
mod keys;
mod settings;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

pub use self::error::{ConfigError, Mistake};
use self::settings::ConfigSetting;
use crate::{
    agent::otlp,
    catalogue::Chip,
    join::By,
    names::resolver::{DEFAULT_LABELS, RuntimeEndpoint},
    plan::RESERVE_COUNTERS,
    session::{
        sampling::DEFAULT_SAMPLE_BUDGET,
        spe::{DEFAULT_BUDGET, DEFAULT_PERIOD},
    },
    snapshot::Hook,
};

/// The default configuration file.
const DEFAULT_FILE: &str = "/etc/pmuscope/agent.toml";

/// Prefix of the environment variables that are settings.
pub const PREFIX: &str = "PMUSCOPE_AGENT_";

/// The default `spe.frequency`, in samples per second, CPU and event. Not a round number, so that
/// samples do not run in step with timers.
const DEFAULT_FREQUENCY: u64 = 199;

/// All settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two pulls.
    pub interval: Duration,
    /// Share of a CPU that the eBPF programs and the agent may take together; None: no limit.
    pub max_overhead: Option<f64>,
    /// Whether messages of the eBPF programs are logged.
    pub kernel_log: bool,
    /// What is counted.
    pub count: Count,
    /// Sampling of memory accesses.
    pub spe: Spe,
    /// Names of containers.
    pub names: Names,
    /// What is exported.
    pub series: Series,
    /// The server.
    pub http: Http,
    /// Output of a line of JSON for each window.
    pub json: Option<JsonDestination>,
    /// The OpenTelemetry collector that windows are pushed to.
    pub otlp: Otlp,
    /// Counting that outlives the agent.
    pub pins: Pins,
    /// Directory of the totals that continue after a restart; None: they begin at 0.
    pub state: Option<PathBuf>,
    /// Detection of noisy neighbours.
    pub verdict: Verdict,
    /// The run directory: its lock, and its switch files.
    pub run: PathBuf,
}

/// What is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Lists of events in perf's syntax. If these and `metrics` are empty, the machine's profile is
    /// counted.
    pub events: Vec<String>,
    /// Lists of metrics.
    pub metrics: Vec<String>,
    /// What a row stands for: containers or pods.
    pub by: By,
    /// The file of a calibration of this machine.
    pub calibration: Option<PathBuf>,
    /// The chip, if it is not detected.
    pub chip: Option<Chip>,
    /// Hardware counters of each core that stay free for other users.
    pub reserve_counters: usize,
    /// Kernel hook for accounting.
    pub hook: Hook,
    /// Size of the map of counts in rows; None: by the number of CPUs.
    pub max_rows: Option<u32>,
    /// Number of processes shown in addition to the rows: those with the highest counts of the
    /// first event.
    pub top_processes: usize,
    /// Lists of sampled events.
    pub sample: Vec<String>,
    /// Share of a CPU's time that sampling these events may take.
    pub sample_budget: f64,
}

/// Sampling of memory accesses: by SPE, or by x86's IBS or PEBS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spe {
    /// Whether accesses are sampled.
    pub enabled: Enabled,
    /// With SPE: the initial period, in operations.
    pub period: u64,
    /// Without SPE: the initial rate, in samples per second, CPU and event. Each sample is then an
    /// interrupt, and `period` would cause far too many.
    pub frequency: u64,
    /// Share of a CPU's time that the eBPF programs for these samples may take.
    pub budget: f64,
}

/// Names of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The runtime that is asked.
    pub cri: RuntimeEndpoint,
    /// Directory that the usual paths of runtimes are relative to.
    pub root: PathBuf,
    /// Keys of exported labels of containers and pods.
    pub labels: Vec<String>,
}

/// Whether a part of the agent runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// If the machine can.
    #[default]
    Auto,
    /// Yes; an error if the machine cannot.
    On,
    /// No.
    Off,
}

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The most series; above it the smallest containers are folded into one row.
    pub max: usize,
    /// Labels of every series.
    pub labels: BTreeMap<String, String>,
}

/// The server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Address to listen at; None: no server.
    pub listen: Option<SocketAddr>,
    /// The exporters' web configuration file, for TLS and passwords.
    pub web_config: Option<PathBuf>,
}

/// Counting that outlives the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// A directory on a bpffs; None: counting ends with the agent.
    pub path: Option<PathBuf>,
    /// Whether counting also goes on when a signal ends the agent. After SIGKILL it always does.
    pub keep: bool,
}

/// Detection of containers that run worse than usual because of others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Peak memory bandwidth of a socket in bytes per second; None: only contention for CPUs is
    /// detected, not for memory.
    pub peak_bandwidth: Option<f64>,
}

/// An OpenTelemetry collector.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Otlp {
    /// The address of its gRPC port; None: nothing is pushed.
    pub endpoint: Option<String>,
    /// Headers of each request; their values may be secret.
    pub headers: BTreeMap<String, String>,
    /// Certificates for an endpoint at `https://`.
    pub tls: OtlpTls,
}

/// Files in PEM for TLS to a collector. They are read again for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpTls {
    /// CA certificates to verify the collector with; None: those that this machine trusts.
    pub ca_file: Option<PathBuf>,
    /// The agent's own certificate, followed by its intermediate ones.
    pub cert_file: Option<PathBuf>,
    /// The private key of the certificate in `cert_file`.
    pub key_file: Option<PathBuf>,
}

/// Leaves out the values of headers, which may be secret.
impl std::fmt::Debug for Otlp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        f.debug_struct("Otlp")
            .field("endpoint", &self.endpoint)
            .field("headers", &names)
            .field("tls", &self.tls)
            .finish()
    }
}

/// Output of JSON lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonDestination {
    /// Standard output.
    Stdout,
    /// A file, to which lines are appended.
    File(PathBuf),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            max_overhead: None,
            kernel_log: false,
            count: Count {
                events: Vec::new(),
                metrics: Vec::new(),
                by: By::Container,
                calibration: None,
                chip: None,
                reserve_counters: RESERVE_COUNTERS,
                hook: Hook::SchedSwitch,
                max_rows: None,
                top_processes: 0,
                sample: Vec::new(),
                sample_budget: DEFAULT_SAMPLE_BUDGET,
            },
            spe: Spe {
                enabled: Enabled::Auto,
                period: DEFAULT_PERIOD,
                frequency: DEFAULT_FREQUENCY,
                budget: DEFAULT_BUDGET,
            },
            names: Names {
                cri: RuntimeEndpoint::Auto,
                root: PathBuf::from("/"),
                labels: DEFAULT_LABELS.map(str::to_owned).into(),
            },
            series: Series {
                max: 100_000,
                labels: BTreeMap::new(),
            },
            http: Http {
                listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9464))),
                web_config: None,
            },
            json: None,
            otlp: Otlp::default(),
            pins: Pins::default(),
            state: None,
            verdict: Verdict::default(),
            run: PathBuf::from("/run/pmuscope"),
        }
    }
}

/// Sources of the configuration, which are read again at each reload.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file that the user named.
    pub file: Option<PathBuf>,
    /// Environment variables; those with [`PREFIX`] are settings.
    pub environment: Vec<(OsString, OsString)>,
    /// Each given flag, its key (such as `http.listen`) and its value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

impl Sources {
    /// Reads and validates all sources.
    ///
    /// # Errors
    ///
    /// All mistakes at once.
    pub fn read(&self) -> Result<Config, ConfigError> {
        let (file, text) = self.text().map_err(|mistake| ConfigError(vec![mistake]))?;
        let mut mistakes = Vec::new();
        let mut config = Config::default();
        let from_file = settings::from_file(&file, &text, &mut mistakes);
        let from_environment = settings::from_environment(&self.environment, &mut mistakes);
        let from_flags = settings::from_flags(&self.flags);
        let by_precedence: Vec<ConfigSetting<'_>> = from_file
            .into_iter()
            .chain(from_environment)
            .chain(from_flags)
            .collect();
        // Where each key was set last.
        let mut origins = BTreeMap::new();
        for setting in by_precedence {
            origins.insert(setting.key.clone(), setting.origin.clone());
            if let Err(mistake) = setting.apply(&mut config) {
                mistakes.push(mistake);
            }
        }
        for result in [
            otlp::check_tls(&config.otlp),
            check_processes(&config.count),
        ] {
            if let Err((key, what)) = result {
                mistakes.push(Mistake {
                    origin: origins.remove(key).unwrap_or_default(),
                    key: Some(key.to_owned()),
                    what,
                });
            }
        }
        match mistakes.is_empty() {
            true => Ok(config),
            false => Err(ConfigError(mistakes)),
        }
    }

    /// Name and text of the file. The text is empty if the user named no file and the default one
    /// does not exist.
    fn text(&self) -> Result<(String, String), Mistake> {
        let path = self.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok((name, text)),
            Err(error) if self.file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok((name, String::new()))
            }
            Err(error) => Err(Mistake {
                origin: name,
                key: None,
                what: format!("cannot be read: {error}"),
            }),
        }
    }
}

/// Checks that the hook sees switches between processes, if top processes are configured.
fn check_processes(count: &Count) -> Result<(), (&'static str, String)> {
    if count.top_processes == 0 || count.hook == Hook::SchedSwitch {
        return Ok(());
    }
    let what = "needs count.hook = \"sched-switch\": switches between processes of one cgroup are \
                not cgroup switches";
    Err(("count.top_processes", what.to_owned()))
}

#[cfg(test)]
mod tests;

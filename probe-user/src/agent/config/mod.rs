//! Configuration: a file in TOML, then the environment, then flags. It is validated as a whole:
//! every error names the place and the key.

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
use self::settings::Setting;
use crate::{
    agent::otlp,
    catalogue::Chip,
    join::By,
    names::resolver::{DEFAULT_LABELS, RuntimeEndpoint},
    session::{
        sampling::DEFAULT_SAMPLE_BUDGET,
        spe::{DEFAULT_BUDGET, DEFAULT_PERIOD},
    },
    snapshot::Hook,
};

/// Where the file is looked for unless it is named.
const DEFAULT_FILE: &str = "/etc/pmuscope/agent.toml";

/// How environment variables begin that set something.
pub const PREFIX: &str = "PMUSCOPE_AGENT_";

/// Samples of memory accesses per second, CPU and event, where each is an interrupt. Not in step
/// with timers, which go by round numbers.
const DEFAULT_FREQUENCY: u64 = 199;

/// All settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two pulls.
    pub interval: Duration,
    /// Share of a CPU that the programs and the agent may take together; None: no budget.
    pub max_overhead: Option<f64>,
    /// Whether messages of the kernel's programs are logged.
    pub kernel_log: bool,
    /// What is counted.
    pub count: Count,
    /// Sampling of memory accesses.
    pub spe: Spe,
    /// What containers are called.
    pub names: Names,
    /// What is exported.
    pub series: Series,
    /// The server.
    pub http: Http,
    /// Where a line of JSON goes for each window.
    pub json: Option<JsonTo>,
    /// The OpenTelemetry collector that windows are pushed to.
    pub otlp: Otlp,
    /// Counting that outlives the agent.
    pub pins: Pins,
    /// Directory of the totals that go on after a restart; None: they begin anew.
    pub state: Option<PathBuf>,
    /// When containers are told apart that suffer from others.
    pub verdict: Verdict,
    /// Directory of the lock and of the files that switch the agent off.
    pub run: PathBuf,
}

/// What is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Lists of events in perf's syntax. Without these and metrics: the profile of the machine.
    pub events: Vec<String>,
    /// Lists of metrics.
    pub metrics: Vec<String>,
    /// What a row stands for: containers or pods.
    pub by: By,
    /// The chip, if it is not detected.
    pub chip: Option<Chip>,
    /// Hardware counters of each core that stay free for other users.
    pub reserve_counters: usize,
    /// Kernel hook for accounting.
    pub hook: Hook,
    /// Rows that the map of counts takes; None: by the number of CPUs.
    pub max_rows: Option<u32>,
    /// Processes that are shown beside the rows, those with most of the first event; 0: none.
    pub top_processes: usize,
    /// Lists of events that are sampled.
    pub sample: Vec<String>,
    /// Share of a CPU's time that their samples may take.
    pub sample_budget: f64,
}

/// Sampling of memory accesses: by SPE, or by what x86 has in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spe {
    /// Whether.
    pub enabled: Enabled,
    /// With SPE: operations from one sample to the next, at first.
    pub period: u64,
    /// Elsewhere: samples per second, CPU and event, at first. Each is an interrupt there, so that
    /// no period of SPE's would do.
    pub frequency: u64,
    /// Share of a CPU's time that the program may take.
    pub budget: f64,
}

/// What containers are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Who is asked.
    pub cri: RuntimeEndpoint,
    /// Below which directory the usual places of runtimes are.
    pub root: PathBuf,
    /// Keys of the containers' and pods' labels that are exported.
    pub labels: Vec<String>,
}

/// Whether a part of the agent runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Where the machine has what it needs.
    #[default]
    Auto,
    /// Yes: an error where the machine lacks something.
    On,
    /// No.
    Off,
}

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The most series; above it the smallest containers are one row together.
    pub max: usize,
    /// Labels that every series has.
    pub labels: BTreeMap<String, String>,
}

/// The server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it listens; None: nowhere.
    pub listen: Option<SocketAddr>,
    /// The exporters' web configuration file, for TLS and passwords.
    pub web_config: Option<PathBuf>,
}

/// Counting that outlives the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// A directory on a bpffs; None: counting ends with the agent.
    pub path: Option<PathBuf>,
    /// Whether counting goes on when the agent is told to end. It does where it is killed.
    pub keep: bool,
}

/// When containers are told apart that suffer from others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Bytes per second that the memory of a socket can move; None: there is no verdict.
    pub peak_bandwidth: Option<f64>,
}

/// An OpenTelemetry collector.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Otlp {
    /// The address of its gRPC port; None: nothing is pushed.
    pub endpoint: Option<String>,
    /// Headers of each request; their values may be secret.
    pub headers: BTreeMap<String, String>,
    /// Who speaks TLS, and whom it trusts, where the endpoint is at `https://`.
    pub tls: OtlpTls,
}

/// Files in PEM for TLS to a collector. They are read again for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpTls {
    /// Certificates of the authorities that may sign the collector's; None: those of this machine.
    pub ca_file: Option<PathBuf>,
    /// The agent's own certificate, and those between it and its authority.
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate.
    pub key_file: Option<PathBuf>,
}

/// Without the values of headers.
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

/// Where lines of JSON go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTo {
    /// Standard output.
    Stdout,
    /// The end of a file.
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
                chip: None,
                reserve_counters: 1,
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

/// Where settings come from: it is read again at each reload.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file that the user named.
    pub file: Option<PathBuf>,
    /// Variables of the environment, of which those with our prefix count.
    pub environment: Vec<(OsString, OsString)>,
    /// Flags with what they set, as `http.listen`.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

impl Sources {
    /// Reads all of them.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, at once.
    pub fn read(&self) -> Result<Config, ConfigError> {
        let (file, text) = self.text().map_err(|mistake| ConfigError(vec![mistake]))?;
        let mut mistakes = Vec::new();
        let mut config = Config::default();
        let of_file = settings::of_file(&file, &text, &mut mistakes);
        let of_environment = settings::of_environment(&self.environment, &mut mistakes);
        let of_flags = settings::of_flags(&self.flags);
        let all: Vec<Setting<'_>> = of_file
            .into_iter()
            .chain(of_environment)
            .chain(of_flags)
            .collect();
        // Where each key was set last.
        let mut places = BTreeMap::new();
        for setting in all {
            places.insert(setting.key.clone(), setting.place.clone());
            if let Err(mistake) = setting.apply(&mut config) {
                mistakes.push(mistake);
            }
        }
        for together in [
            otlp::check_tls(&config.otlp),
            check_processes(&config.count),
        ] {
            if let Err((key, what)) = together {
                mistakes.push(Mistake {
                    place: places.remove(key).unwrap_or_default(),
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

    /// Name and text of the file; no text where nobody named one and the default is not there.
    fn text(&self) -> Result<(String, String), Mistake> {
        let path = self.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok((name, text)),
            Err(error) if self.file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok((name, String::new()))
            }
            Err(error) => Err(Mistake {
                place: name,
                key: None,
                what: format!("cannot be read: {error}"),
            }),
        }
    }
}

/// Whether the hook sees processes, where some are shown.
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

//! The results of checks, and their [`Diagnosis`].

use super::CounterProfile;

/// Part of the machine that a check looks at, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Version, configuration, type information.
    Kernel,
    /// Capabilities and sysctls.
    Rights,
    /// The cgroup2 hierarchy.
    Cgroups,
    /// Drivers of counters.
    Pmus,
    /// The Statistical Profiling Extension of Arm.
    Spe,
    /// What limits or extends the counters.
    Counters,
    /// Trials on the running kernel.
    Trials,
}

impl Area {
    /// The name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Rights => "rights",
            Self::Cgroups => "cgroups",
            Self::Pmus => "PMUs",
            Self::Spe => "SPE",
            Self::Counters => "counters",
            Self::Trials => "trials",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The part of the report.
    pub area: Area,
    /// The subject of the check, in a word or two.
    pub check: String,
    /// What was found.
    pub found: String,
    /// Whether what was found suffices.
    pub state: State,
}

/// Whether the finding suffices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is lost.
    Ok,
    /// The subject of the check exists, but does less than it could.
    Degraded(Loss),
    /// The subject of the check does not exist.
    Missing {
        /// The loss without it.
        loss: Loss,
        /// Counting per container cannot work without it.
        needed: bool,
    },
}

/// What does not work, and the remedies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What does not work, as part of a sentence.
    pub lost: String,
    /// Remedies, the best first.
    pub remedies: Vec<Remedy>,
}

/// One way to remedy a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What the commands do; without commands, what to do.
    pub advice: String,
    /// Shell commands, in order.
    pub commands: Vec<String>,
}

impl Loss {
    /// A loss, without remedies yet.
    pub(super) fn new(lost: impl Into<String>) -> Self {
        Self {
            lost: lost.into(),
            remedies: Vec::new(),
        }
    }

    /// Adds a remedy without a command.
    pub(super) fn advise(self, advice: impl Into<String>) -> Self {
        self.remedy(advice, [])
    }

    /// Adds a remedy with a command.
    pub(super) fn run(self, advice: impl Into<String>, command: impl Into<String>) -> Self {
        self.remedy(advice, [command.into()])
    }

    /// Adds a sysctl as a remedy: for now, and for every boot.
    pub(super) fn sysctl(self, name: &str, value: i32) -> Self {
        self.run("at once", format!("sudo sysctl -w {name}={value}"))
            .run(
                "after every boot",
                format!("echo '{name}={value}' | sudo tee -a /etc/sysctl.d/90-pmuscope.conf"),
            )
    }

    /// Adds remedies.
    pub(super) fn with(mut self, remedies: impl IntoIterator<Item = Remedy>) -> Self {
        self.remedies.extend(remedies);
        self
    }

    fn remedy(
        mut self,
        advice: impl Into<String>,
        commands: impl IntoIterator<Item = String>,
    ) -> Self {
        self.remedies.push(Remedy {
            advice: advice.into(),
            commands: commands.into_iter().collect(),
        });
        self
    }
}

impl Area {
    /// A check that found everything.
    pub(super) fn ok(self, check: impl Into<String>, found: impl Into<String>) -> Finding {
        self.finding(check, found, State::Ok)
    }

    /// A check that found less than possible.
    pub(super) fn degraded(
        self,
        check: impl Into<String>,
        found: impl Into<String>,
        loss: Loss,
    ) -> Finding {
        self.finding(check, found, State::Degraded(loss))
    }

    /// A check that lacks something optional.
    pub(super) fn missing(
        self,
        check: impl Into<String>,
        found: impl Into<String>,
        loss: Loss,
    ) -> Finding {
        let needed = false;
        self.finding(check, found, State::Missing { loss, needed })
    }

    /// A check that lacks something that counting per container needs.
    pub(super) fn stops(
        self,
        check: impl Into<String>,
        found: impl Into<String>,
        loss: Loss,
    ) -> Finding {
        let needed = true;
        self.finding(check, found, State::Missing { loss, needed })
    }

    fn finding(self, check: impl Into<String>, found: impl Into<String>, state: State) -> Finding {
        Finding {
            area: self,
            check: check.into(),
            found: found.into(),
            state,
        }
    }
}

impl State {
    /// `ok`, `degraded` or `missing`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded(_) => "degraded",
            Self::Missing { .. } => "missing",
        }
    }

    /// The loss, if there is one.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        match self {
            Self::Ok => None,
            Self::Degraded(loss) | Self::Missing { loss, .. } => Some(loss),
        }
    }

    /// Whether the finding stops counting per container.
    #[must_use]
    pub fn stops_counting(&self) -> bool {
        matches!(self, Self::Missing { needed: true, .. })
    }
}

/// What identifies a machine, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExaminedMachine {
    /// The architecture.
    pub arch: &'static str,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Vendor of the machine, by its firmware. Clouds name themselves here.
    pub vendor: Option<String>,
    /// Product, by its firmware. Some clouds name the instance type here.
    pub product: Option<String>,
}

/// All findings, by area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Which machine was examined.
    pub machine: ExaminedMachine,
    /// The counters of the machine's cores, and what is counted by default; None if the PMUs
    /// cannot be read, or counting is not permitted.
    pub counters: Option<CounterProfile>,
    /// All findings, in the order of the report.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Whether counting per container can work.
    #[must_use]
    pub fn counting_works(&self) -> bool {
        self.stopping().next().is_none()
    }

    /// The last line of the report.
    #[must_use]
    pub fn verdict(&self) -> String {
        let stopping: Vec<&str> = self.stopping().collect();
        if !stopping.is_empty() {
            return format!(
                "counting per container cannot work here: see {}",
                stopping.join(", ")
            );
        }
        let count_of = |name: &str| {
            let same = self.findings.iter().filter(|f| f.state.name() == name);
            same.count()
        };
        match (count_of("degraded"), count_of("missing")) {
            (0, 0) => "counting per container works here, and nothing is lost".to_owned(),
            (degraded, missing) => {
                format!("counting per container works here; {degraded} degraded, {missing} missing")
            }
        }
    }

    /// The checks that stop counting.
    fn stopping(&self) -> impl Iterator<Item = &str> {
        let stopping = self.findings.iter().filter(|f| f.state.stops_counting());
        stopping.map(|finding| finding.check.as_str())
    }
}

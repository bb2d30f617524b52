//! What a check says.

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
    /// What else takes or adds counters.
    Counters,
    /// Counting, tried for real.
    Trials,
}

impl Area {
    /// As the report names it.
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
    /// Where it belongs.
    pub area: Area,
    /// What was looked at, in a word or two.
    pub check: String,
    /// What was found.
    pub found: String,
    /// Whether that is enough.
    pub state: State,
}

/// Whether what was found is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is lost.
    Ok,
    /// It is there but does less than it could.
    Degraded(Loss),
    /// It is not there.
    Missing {
        /// What that costs.
        loss: Loss,
        /// Counting per container cannot work without it.
        needed: bool,
    },
}

/// What does not work, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What does not work, as a part of a sentence.
    pub lost: String,
    /// The remedies, the best first.
    pub remedies: Vec<Remedy>,
}

/// One way to repair a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What the commands do, or what to do where there are none.
    pub advice: String,
    /// Commands for a shell, in their order.
    pub commands: Vec<String>,
}

impl Loss {
    /// A loss without a remedy yet.
    pub(super) fn of(lost: impl Into<String>) -> Self {
        Self {
            lost: lost.into(),
            remedies: Vec::new(),
        }
    }

    /// Adds what to do where no command does it.
    pub(super) fn advise(self, advice: impl Into<String>) -> Self {
        self.mend(advice, [])
    }

    /// Adds a command.
    pub(super) fn run(self, advice: impl Into<String>, command: impl Into<String>) -> Self {
        self.mend(advice, [command.into()])
    }

    /// Adds a setting of the kernel, for now and for every boot.
    pub(super) fn sysctl(self, name: &str, value: i32) -> Self {
        self.run("at once", format!("sudo sysctl -w {name}={value}"))
            .run(
                "after every boot",
                format!("echo '{name}={value}' | sudo tee -a /etc/sysctl.d/90-pmuscope.conf"),
            )
    }

    /// Adds remedies made elsewhere.
    pub(super) fn with(mut self, remedies: impl IntoIterator<Item = Remedy>) -> Self {
        self.remedies.extend(remedies);
        self
    }

    fn mend(
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
    /// A check that found all that is needed.
    pub(super) fn ok(self, check: impl Into<String>, found: impl Into<String>) -> Finding {
        self.finding(check, found, State::Ok)
    }

    /// A check that found less than there could be.
    pub(super) fn degraded(
        self,
        check: impl Into<String>,
        found: impl Into<String>,
        loss: Loss,
    ) -> Finding {
        self.finding(check, found, State::Degraded(loss))
    }

    /// A check that did not find something optional.
    pub(super) fn missing(
        self,
        check: impl Into<String>,
        found: impl Into<String>,
        loss: Loss,
    ) -> Finding {
        let needed = false;
        self.finding(check, found, State::Missing { loss, needed })
    }

    /// A check that did not find something that counting per container needs.
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

    /// What is lost, where something is.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        match self {
            Self::Ok => None,
            Self::Degraded(loss) | Self::Missing { loss, .. } => Some(loss),
        }
    }

    /// Whether counting per container cannot work because of it.
    #[must_use]
    pub fn stops_counting(&self) -> bool {
        matches!(self, Self::Missing { needed: true, .. })
    }
}

/// All findings, by area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// In the order of the report.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Whether counting per container can work.
    #[must_use]
    pub fn counting_works(&self) -> bool {
        self.stopping().next().is_none()
    }

    /// The one line at the end.
    #[must_use]
    pub fn verdict(&self) -> String {
        let stopping: Vec<&str> = self.stopping().collect();
        if !stopping.is_empty() {
            return format!(
                "counting per container cannot work here: see {}",
                stopping.join(", ")
            );
        }
        let of = |name: &str| {
            let same = self.findings.iter().filter(|f| f.state.name() == name);
            same.count()
        };
        match (of("degraded"), of("missing")) {
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

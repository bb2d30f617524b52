//! Makes a plan for this machine from events and metrics by name.

use std::{collections::BTreeSet, sync::Arc};

use super::{Capacity, DefaultsError, Plan, PlanError, ResolvedRequest, default_request};
use crate::{
    calibration::UsedCalibration,
    catalogue::{
        Catalogue, CatalogueError, Hardware, Metric, MetricSettings, MoreWeights, SelectError,
    },
    devices::Devices,
    event::{self, Event, EventError, sampling::SampledEvent},
    machine::{Machine, Pmus, SysfsError, capabilities, cpus::CpuListError},
};

/// What is to be counted, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanRequest {
    /// Lists of events in perf's syntax.
    pub events: Vec<String>,
    /// Lists of metrics.
    pub metrics: Vec<String>,
    /// Events that are always counted, unless the user names them.
    pub always: &'static str,
    /// Whether shares use only these events, so that no counters are opened for shares.
    pub own_weights: bool,
    /// Calibrations of this machine, which divide the traffic of their metrics.
    pub calibration: UsedCalibration,
    /// Whether all weights are counted, not only the calibration's and the best for each kind of
    /// traffic.
    pub all_weights: bool,
    /// Hardware counters of each core that stay free for other users.
    pub reserve_counters: usize,
    /// Sampled events, which hold their counters all the time.
    pub sampled: Vec<SampledEvent>,
    /// The only PCI device to count in metrics of PCIe.
    pub device: Option<String>,
    /// Whether waits for a CPU can be counted ([`Machine::keeps_waits`]), as they are by default
    /// without a PMU.
    pub waits: bool,
    /// Whether the default events are rates, for consecutive windows; else counts.
    pub rates: bool,
}

/// Why this cannot be planned. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanRequestError {
    /// The PMUs of this machine cannot be read.
    #[error(transparent)]
    Pmus(#[from] Arc<SysfsError>),
    /// The list of CPUs cannot be read.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The catalogue has a mistake.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A metric or group is unknown here.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// An event is wrong, or unknown here.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The default events cannot be determined.
    #[error(transparent)]
    Defaults(#[from] DefaultsError),
    /// No event can be counted here. The text is the reason for the first event.
    #[error("{0}")]
    NothingCountable(String),
    /// The request does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no such device.
    #[error("there is no PCI device {0}: `pmuscope list devices` shows those of this machine")]
    NoDevice(String),
    /// No PMU counts the device separately.
    #[error(
        "no PMU of this machine counts {0} by itself: `pmuscope list devices` shows which it can"
    )]
    NotByItself(String),
}

impl PlanRequest {
    /// Sets the sampled events, which counted events must leave counters for.
    pub fn set_sampled(&mut self, sampled: &[SampledEvent]) {
        self.sampled = sampled.to_vec();
    }

    /// The plan for this machine. Without events and metrics it has the default events.
    ///
    /// # Errors
    ///
    /// If a name is unknown here, or events do not fit.
    pub fn plan(
        &self,
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: Hardware,
    ) -> Result<Plan, PlanRequestError> {
        let capacity = self.capacity(machine, catalogue, &hardware)?;
        self.plan_within(&capacity, machine, catalogue, hardware)
    }

    /// The capacity of this machine that the sampled events leave.
    ///
    /// # Errors
    ///
    /// If counting is not permitted, or a PMU has too few counters for the sampled events alone.
    pub(crate) fn capacity(
        &self,
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: &Hardware,
    ) -> Result<Capacity, PlanRequestError> {
        if self.events.is_empty() && self.metrics.is_empty() {
            capabilities::check().map_err(DefaultsError::from)?;
        }
        let (pmus, online) = (machine.pmus()?, machine.online()?);
        let reserve = self.reserve_counters;
        let capacity = Capacity::of_this_machine(catalogue, hardware, pmus, online, reserve);
        Ok(capacity.with_sampled(&self.sampled, pmus)?)
    }

    /// The plan for this machine with a capacity of its PMUs.
    ///
    /// # Errors
    ///
    /// As [`PlanRequest::plan`].
    pub(crate) fn plan_within(
        &self,
        capacity: &Capacity,
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: Hardware,
    ) -> Result<Plan, PlanRequestError> {
        let (pmus, cpus) = (machine.pmus()?, machine.online()?.len());
        let calibration = &self.calibration;
        let mut settings = self.settings(machine, pmus, catalogue)?;
        let traffics = calibration.traffics.iter();
        let events: BTreeSet<_> = traffics.flat_map(|it| it.events.clone()).collect();
        settings.more_weights = match (self.all_weights, events.is_empty()) {
            (true, _) => MoreWeights::All,
            (false, true) => MoreWeights::None,
            (false, false) => MoreWeights::Named(events),
        };
        let mut plan = self.packed(pmus, catalogue, hardware, (capacity, cpus), settings)?;
        if let Some(why) = &plan.weights_in_turns {
            tracing::warn!(
                "the counters that tell whose traffic it is take turns with others, as {why}: \
                 shares have a larger counting error"
            );
        }
        plan.calibrate(calibration);
        let mut metrics = plan.metrics.list.iter();
        if metrics.any(|planned| planned.metric.apportion.is_of_device()) {
            plan.devices = Arc::new(Devices::read(machine, pmus, catalogue));
        }
        Ok(plan)
    }

    /// The plan for this number of CPUs and these PMUs, without devices.
    pub(crate) fn packed(
        &self,
        pmus: &Pmus,
        catalogue: &Catalogue,
        hardware: Hardware,
        (capacity, cpus): (&Capacity, usize),
        mut settings: MetricSettings,
    ) -> Result<Plan, PlanRequestError> {
        settings.own_weights = self.own_weights;
        let mut metrics = self.metrics.join(",");
        let (mut uncountable, mut left_out) = (Vec::new(), Vec::new());
        let mut events = match (self.events.as_slice(), self.metrics.as_slice()) {
            ([], []) => {
                let chosen = default_request(pmus, capacity, (self.waits, self.rates))?;
                chosen.metrics.clone_into(&mut metrics);
                left_out = chosen.left_out;
                chosen.events
            }
            ([], _) => Vec::new(),
            (lists, _) => {
                let (events, missing) = event::parse_countable(&lists.join(","), pmus)?;
                uncountable = missing;
                events
            }
        };
        let metrics = match metrics.as_str() {
            "" => Vec::new(),
            names => catalogue.select(names, &hardware)?,
        };
        if !self.always.is_empty() {
            let is_requested = |event: &Event| {
                events
                    .iter()
                    .any(|group| group.events.iter().any(|other| other.name == event.name))
            };
            let mut always = event::parse(self.always, pmus)?;
            for group in &mut always {
                group.events.retain(|event| !is_requested(event));
            }
            always.retain(|group| !group.events.is_empty());
            events.extend(always);
        }
        // Rates are not offered: the count and the length of its window say the same.
        let is_rate = |metric: &Metric| matches!(metric.unit.as_str(), "1/s" | "thread");
        let offered: Vec<&Metric> = catalogue
            .metrics()
            .filter(|metric| metric.family.fallback && !is_rate(metric))
            .collect();
        let request = ResolvedRequest {
            events: &events,
            metrics: &metrics,
            offered: &offered,
            machine: hardware,
            cpus,
            settings,
        };
        let is_any_left = !events.is_empty() || !metrics.is_empty();
        if let Some(first) = uncountable.first().filter(|_| !is_any_left) {
            return Err(PlanRequestError::NothingCountable(first.reason.clone()));
        }
        let mut plan = Plan::packed(&request, pmus, capacity)?;
        plan.rates_only = self.rates && self.events.is_empty() && self.metrics.is_empty();
        plan.uncountable.append(&mut uncountable);
        plan.left_out = left_out;
        Ok(plan)
    }

    /// The settings, with filters that restrict PMUs to the device.
    fn settings(
        &self,
        machine: &Machine,
        pmus: &Pmus,
        catalogue: &Catalogue,
    ) -> Result<MetricSettings, PlanRequestError> {
        if self.metrics.is_empty() && self.device.is_none() {
            return Ok(MetricSettings::default());
        }
        let devices = Devices::read(machine, pmus, catalogue);
        let for_all_devices = MetricSettings {
            parts: devices.parts(),
            ..MetricSettings::default()
        };
        let Some(name) = &self.device else {
            return Ok(for_all_devices);
        };
        let Some((complex, port, device)) = devices.find(name) else {
            return Err(PlanRequestError::NoDevice(name.clone()));
        };
        let filters = complex.narrowed(port, device);
        if filters.is_empty() {
            return Err(PlanRequestError::NotByItself(name.clone()));
        }
        Ok(MetricSettings {
            device: filters,
            ..for_all_devices
        })
    }
}

#[cfg(test)]
mod tests {
    use test_support::sysfs;

    use super::*;
    use crate::{catalogue::Chip, plan::simulated::SimulatedCore};

    /// Whether tables show rates instead of these events.
    fn rates_only(events: &[&str], rates: bool) -> bool {
        let pmus = Pmus::read(&sysfs("grace")).unwrap();
        let hardware = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
        let catalogue = Catalogue::builtin().unwrap();
        let capacity = Capacity::documented(&catalogue, &hardware, &pmus, 1);
        let wanted = PlanRequest {
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            rates,
            ..PlanRequest::default()
        };
        let settings = MetricSettings::default();
        let plan = wanted.packed(&pmus, &catalogue, hardware, (&capacity, 2), settings);
        plan.unwrap().rates_only
    }

    /// The plan of events and metrics on a tree, with simulated cores and one counter reserved for
    /// others.
    fn planned(
        (tree, chip): (&str, &str),
        core: SimulatedCore,
        (events, metrics): (&[&str], &[&str]),
    ) -> Result<Plan, PlanRequestError> {
        let pmus = Pmus::read(&sysfs(tree)).unwrap();
        let hardware = Hardware::of_chip(Chip::named(chip).unwrap());
        let catalogue = Catalogue::builtin().unwrap();
        let capacity = Capacity::documented(&catalogue, &hardware, &pmus, 1);
        let capacity = capacity.simulated(core, &pmus);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = PlanRequest {
            events: names(events),
            metrics: names(metrics),
            ..PlanRequest::default()
        };
        let settings = MetricSettings::default();
        wanted.packed(&pmus, &catalogue, hardware, (&capacity, 2), settings)
    }

    /// KVM's filter lets a guest open and run hidden events, which count 0.
    #[test]
    fn hidden_events_are_refused_and_their_metrics_have_the_reason() {
        let core = SimulatedCore {
            general: 8,
            fixed: true,
            architectural_only: true,
        };
        let emr = ("emr-guest", "emerald-rapids");
        let stalls = "cpu/event=0xa3,umask=0x05,cmask=5,name=stalls_l2_miss/";
        let error = planned(emr, core, (&[stalls], &[])).unwrap_err();
        let error = error.to_string();
        assert_eq!(
            error,
            "cannot count stalls_l2_miss: the hypervisor hides model-specific events, which would \
             count 0"
        );
        let plan = planned(emr, core, (&[], &["dtlb_walk_ratio,ipc"])).unwrap();
        assert!(!plan.computes("dtlb_walk_ratio"));
        assert!(plan.computes("ipc"));
        let unfiltered = SimulatedCore {
            architectural_only: false,
            ..core
        };
        let plan = planned(emr, unfiltered, (&[stalls], &["dtlb_walk_ratio"])).unwrap();
        assert!(plan.computes("dtlb_walk_ratio"));
    }

    /// A ratio of two events needs both counters, so that none stays free.
    #[test]
    fn two_counters_suffice_for_a_ratio() {
        let core = SimulatedCore {
            general: 2,
            fixed: true,
            architectural_only: false,
        };
        let graviton4 = ("graviton4-small", "neoverse-v2");
        let metrics: &[&str] = &["branch_miss_ratio", "cache_miss_ratio", "ipc"];
        let plan = planned(graviton4, core, (&[], metrics)).unwrap();
        assert!(metrics.iter().all(|name| plan.computes(name)));
        assert_eq!(plan.rotated, 3);
    }

    #[test]
    fn events_that_the_user_names_stay_in_tables() {
        assert!(!rates_only(&["cycles,instructions"], true));
        assert!(!rates_only(&[], false));
        assert!(rates_only(&[], true));
    }
}

//! Wanted: events and metrics by name become a plan of this machine.

use std::sync::Arc;

use super::{Capacity, DefaultsError, Plan, PlanError, Request, default_events};
use crate::{
    catalogue::{Catalogue, CatalogueError, Hardware, Metric, SelectError, Settings},
    devices::Devices,
    event::{self, Event, EventError, sampling::SampledEvent},
    machine::{Machine, Pmus, SysfsError, cpus::CpuListError},
};

/// What is to be counted, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Lists of events in perf's syntax.
    pub events: Vec<String>,
    /// Lists of metrics.
    pub metrics: Vec<String>,
    /// Events that are counted beside these, unless they are among them.
    pub always: &'static str,
    /// Shares go by these events, or there are none.
    pub own_weights: bool,
    /// Hardware counters of each core that stay free for other users.
    pub reserve_counters: usize,
    /// Count only this PCI device in metrics of PCIe.
    pub device: Option<String>,
}

/// Why what is wanted cannot be planned. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WantedError {
    /// The PMUs of this machine.
    #[error(transparent)]
    Pmus(#[from] Arc<SysfsError>),
    /// The list of CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A metric.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// An event.
    #[error(transparent)]
    Event(#[from] EventError),
    /// What is counted where nobody says what.
    #[error(transparent)]
    Defaults(#[from] DefaultsError),
    /// It does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No such device.
    #[error("there is no PCI device {0}: `pmuscope list devices` shows those of this machine")]
    NoDevice(String),
    /// A device that is counted with others only.
    #[error(
        "no PMU of this machine counts {0} by itself: `pmuscope list devices` shows which it can"
    )]
    NotByItself(String),
}

impl Wanted {
    /// Leaves the counters free that these events take, which are sampled.
    pub fn leave_room(&mut self, sampled: &[SampledEvent]) {
        let counters = sampled.iter().map(SampledEvent::counters);
        self.reserve_counters += counters.sum::<usize>();
    }

    /// The plan for this machine. Where neither events nor metrics are named, it is what the PMU
    /// counts at one time.
    ///
    /// # Errors
    ///
    /// Names that are not known here, or what does not fit.
    pub fn plan(
        &self,
        machine: &Machine,
        catalogue: &Catalogue,
        told: Hardware,
    ) -> Result<Plan, WantedError> {
        let (pmus, online) = (machine.pmus()?, machine.online()?);
        let cpus = online.len();
        let capacity =
            Capacity::of_this_machine(catalogue, &told, pmus, online, self.reserve_counters);
        let settings = self.settings(machine, pmus, catalogue)?;
        let mut plan = self.packed(pmus, catalogue, told, (&capacity, cpus), settings)?;
        if let Some(why) = &plan.weights_in_turns {
            tracing::warn!(
                "the counters that tell whose traffic it is take turns with others, as {why}: \
                 shares have a larger counting error"
            );
        }
        let mut metrics = plan.metrics.list.iter();
        if metrics.any(|planned| planned.metric.apportion.is_of_device()) {
            plan.devices = Arc::new(Devices::read(machine, pmus, catalogue));
        }
        Ok(plan)
    }

    /// The same on so many CPUs with these PMUs, where nothing is known of devices.
    pub(crate) fn packed(
        &self,
        pmus: &Pmus,
        catalogue: &Catalogue,
        told: Hardware,
        (capacity, cpus): (&Capacity, usize),
        mut settings: Settings,
    ) -> Result<Plan, WantedError> {
        settings.own_weights = self.own_weights;
        let metrics = match self.metrics.as_slice() {
            [] => Vec::new(),
            lists => catalogue.select(&lists.join(","), &told)?,
        };
        let mut events = match (self.events.as_slice(), self.metrics.as_slice()) {
            ([], []) => default_events(pmus, capacity)?,
            ([], _) => Vec::new(),
            (lists, _) => event::parse(&lists.join(","), pmus)?,
        };
        if !self.always.is_empty() {
            let known = |event: &Event| {
                events
                    .iter()
                    .any(|group| group.events.iter().any(|known| known.name == event.name))
            };
            let mut always = event::parse(self.always, pmus)?;
            for group in &mut always {
                group.events.retain(|event| !known(event));
            }
            always.retain(|group| !group.events.is_empty());
            events.extend(always);
        }
        let general = catalogue.metrics().filter(|metric| metric.family.fallback);
        let general: Vec<&Metric> = general.collect();
        let request = Request {
            events: &events,
            metrics: &metrics,
            offered: &general,
            machine: told,
            cpus,
            settings,
        };
        Ok(Plan::packed(&request, pmus, capacity)?)
    }

    /// The filters that narrow PMUs to the device.
    fn settings(
        &self,
        machine: &Machine,
        pmus: &Pmus,
        catalogue: &Catalogue,
    ) -> Result<Settings, WantedError> {
        if self.metrics.is_empty() && self.device.is_none() {
            return Ok(Settings::default());
        }
        let devices = Devices::read(machine, pmus, catalogue);
        let all = Settings {
            parts: devices.parts(),
            ..Settings::default()
        };
        let Some(name) = &self.device else {
            return Ok(all);
        };
        let Some((complex, port, device)) = devices.find(name) else {
            return Err(WantedError::NoDevice(name.clone()));
        };
        let narrowed = complex.narrowed(port, device);
        if narrowed.is_empty() {
            return Err(WantedError::NotByItself(name.clone()));
        }
        Ok(Settings {
            device: narrowed,
            ..all
        })
    }
}

//! The counter groups to open for a metric on a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{
    error::Unavailable,
    model::{Metric, Per, PmuSpec},
    pci::DeviceSpec,
    template,
};
use crate::{
    catalogue::PmuFilter,
    event::{self},
    machine::{self, Pmus},
};

/// The parts of an IIO unit.
const PARTS: std::ops::Range<u32> = 0..8;

/// Weights to count in addition to the best one for each kind of traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MoreWeights {
    /// None.
    #[default]
    None,
    /// The weights with these names, if the core has them.
    Named(BTreeSet<String>),
    /// All weights that the core has.
    All,
}

impl MoreWeights {
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.contains(name),
            Self::All => true,
        }
    }
}

/// What the user set for counting metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricSettings {
    /// Whether shares use only events that are requested anyway, so that no counters are opened for
    /// shares.
    pub own_weights: bool,
    /// Weights to count in addition to the best one for each kind of traffic.
    pub more_weights: MoreWeights,
    /// Filters by their key in the PMU's `defaults`, such as `root_port` = 0x3.
    pub filters: BTreeMap<String, u64>,
    /// Filters that restrict PMUs to the chosen device, for each PMU that counts it.
    pub device: Vec<PmuFilter>,
    /// For each PMU, the parts of its stack that have devices. Only these are counted, since more
    /// events would only add multiplexing. Of a PMU without an entry, all parts are counted.
    pub parts: BTreeMap<String, BTreeSet<u32>>,
}

impl MetricSettings {
    fn device_filter(&self, pmu: &str) -> Option<&PmuFilter> {
        self.device.iter().find(|filter| filter.pmu == pmu)
    }

    /// The filters of one PMU: its defaults, overridden by the user's and by those of the chosen
    /// device.
    fn filters(&self, pmu: &str, spec: &PmuSpec) -> BTreeMap<String, u64> {
        let devices = spec.devices.as_ref();
        let user_value = |name: &String| self.filters.get(name).copied();
        let mut filters: BTreeMap<String, u64> = spec
            .defaults
            .iter()
            .map(|(name, value)| (name.clone(), user_value(name).unwrap_or(*value)))
            .collect();
        for (name, value) in self
            .device_filter(pmu)
            .iter()
            .flat_map(|filter| &filter.filters)
        {
            if let Some(DeviceSpec {
                ports: Some(ports),
                requester: Some(requester),
                ..
            }) = devices
                && name == requester
            {
                // The hardware filters by port or by requester, not by both.
                filters.insert(ports.clone(), 0);
            }
            filters.insert(name.clone(), *value);
        }
        filters
    }
}

/// Events to open as one group on one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterGroup {
    /// The PMU's name in sysfs.
    pub pmu: String,
    /// The place that its counts are for.
    pub place: MetricPlace,
    /// The events: the name in the formula, and the `-e` string.
    pub events: Vec<(String, String)>,
}

/// The place that a metric's value is for. Counts of groups with equal places are summed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MetricPlace {
    /// The socket of the NUMA node in the PMU's name; if the name has none, the socket of the CPU
    /// that reads the PMU.
    pub socket: Option<u32>,
    /// The PMU's name, if each PMU has its own value.
    pub device: Option<String>,
    /// The other socket, for metrics about a pair of sockets.
    pub peer: Option<u32>,
    /// The part of an IIO unit.
    pub part: Option<u32>,
    /// The filters that are set.
    pub filters: BTreeMap<String, u64>,
}

impl CounterGroup {
    /// The group in perf's syntax, for [`event::parse`].
    #[must_use]
    pub fn text(&self) -> String {
        let events: Vec<&str> = self.events.iter().map(|(_, perf)| perf.as_str()).collect();
        format!("{{{}}}", events.join(","))
    }
}

impl MetricPlace {
    /// The number of root ports that the PMU's filter selects; `None` without such a filter.
    #[must_use]
    pub fn ports(&self, pmu: &PmuSpec) -> Option<u32> {
        let mask = self.filters.get(pmu.ports_term()?);
        // The mask is 0 if the filter selects a device address instead.
        mask.filter(|mask| **mask != 0)
            .map(|mask| mask.count_ones())
    }
}

/// Empty for a whole machine or container.
impl fmt::Display for MetricPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (&self.device, self.socket) {
            (Some(device), _) => parts.push(device.clone()),
            (None, Some(socket)) => parts.push(format!("socket {socket}")),
            (None, None) => {}
        }
        parts.extend(self.peer.map(|peer| format!("to socket {peer}")));
        parts.extend(self.part.map(|part| format!("part {part}")));
        let filters = self.filters.iter();
        parts.extend(filters.map(|(name, value)| format!("{name}={value:#x}")));
        f.write_str(&parts.join(" "))
    }
}

/// Whether any of its events counts writes over a link, by the events' names.
fn counts_writes(group: &CounterGroup) -> bool {
    group.events.iter().any(|(name, _)| name.contains("_WR_"))
}

impl PmuSpec {
    /// The term that selects root ports, or parts of a stack.
    fn ports_term(&self) -> Option<&str> {
        self.devices.as_ref()?.ports.as_deref()
    }

    /// An event without filters as `-e` strings, one for each unit of the PMU.
    pub fn on_each<'a>(
        &'a self,
        event: &'a str,
        pmus: &'a Pmus,
    ) -> impl Iterator<Item = String> + 'a {
        let perf = self.events.get(event).map(|event| event.perf.as_str());
        let units = pmus
            .names()
            .filter(|name| self.pattern.instance(name).is_some());
        units.filter_map(move |unit| {
            let value = |placeholder: &str| (placeholder == "pmu").then(|| unit.to_owned());
            Some(template::fill(perf?, value))
        })
    }
}

impl Metric {
    /// The groups to open, one for each instance (and peer, and part) of its PMU on this machine.
    ///
    /// Core metrics: one group for each core PMU, to be opened on every CPU of that PMU. Uncore
    /// metrics: to be opened on the CPUs of the PMU's `cpumask`. The counts of groups with the same
    /// [`MetricPlace`] are summed; `num_units` is their number.
    ///
    /// # Errors
    /// There is no such PMU here, it lacks an event, or there is no peer socket or device.
    pub fn groups(
        &self,
        pmus: &Pmus,
        settings: &MetricSettings,
    ) -> Result<Vec<CounterGroup>, Unavailable> {
        let pattern = &self.pmu.pattern;
        let mut instances: Vec<_> = if pattern.is_core() {
            pmus.cores()
                .map(|pmu| (pmu.name.clone(), template::Instance::default()))
                .collect()
        } else {
            let instance = |name: &str| {
                let mut instance = pattern.instance(name)?;
                instance.socket = instance.socket.map(|node| pmus.socket_named(node));
                Some((name.to_owned(), instance))
            };
            let is_product = |name: &str| {
                let Some(product) = self.pmu.product else {
                    return true;
                };
                let pmu = pmus.get(name).and_then(Result::ok);
                pmu.and_then(machine::product) == Some(product)
            };
            let aliases = pmus.iter().filter_map(|pmu| pmu.alias.as_deref());
            let names = pmus.names().chain(aliases);
            names
                .filter(|name| is_product(name))
                .filter_map(instance)
                .collect()
        };
        if instances.is_empty() {
            return Err(if pattern.is_core() {
                Unavailable::NoCorePmu
            } else {
                Unavailable::NoPmu(pattern.glob())
            });
        }
        let sockets: BTreeSet<u32> = instances
            .iter()
            .filter_map(|(_, instance)| instance.socket)
            .collect();
        if instances
            .iter()
            .any(|(pmu, _)| settings.device_filter(pmu).is_some())
        {
            instances.retain(|(pmu, _)| settings.device_filter(pmu).is_some());
        }
        let uses = |placeholder: &str| {
            let events = self.events();
            let mut perf = events.iter().map(|event| &self.pmu.events[*event].perf);
            perf.any(|perf| perf.contains(placeholder))
        };
        let (with_peer, with_part) = (uses("{peer}"), uses("{part_mask}"));
        let mut groups = Vec::new();
        for (pmu, instance) in &instances {
            let place = MetricPlace {
                socket: instance.socket,
                device: (self.pmu.per == Per::Device).then(|| pmu.clone()),
                filters: settings.filters(pmu, &self.pmu),
                ..MetricPlace::default()
            };
            let mut places = vec![place];
            if with_peer {
                let sockets = instances.iter().filter_map(|(_, other)| other.socket);
                let peers = sockets.filter(|socket| Some(*socket) != instance.socket);
                places = peers
                    .map(|peer| MetricPlace {
                        peer: Some(peer),
                        ..places[0].clone()
                    })
                    .collect();
            }
            if with_part {
                let at_part = |place: &MetricPlace, part| MetricPlace {
                    part: Some(part),
                    ..place.clone()
                };
                let term = self.pmu.ports_term().unwrap_or_default();
                let mask = places[0].filters.get(term).copied();
                let used_parts = settings.parts.get(pmu);
                let is_counted = |part: &u32| {
                    mask.is_none_or(|mask| mask >> part & 1 == 1)
                        && used_parts.is_none_or(|used| mask.is_some() || used.contains(part))
                };
                places = places
                    .iter()
                    .flat_map(|place| {
                        PARTS
                            .filter(is_counted)
                            .map(move |part| at_part(place, part))
                    })
                    .collect();
                for place in &mut places {
                    place.filters.remove(term);
                }
            }
            groups.extend(places.into_iter().map(|place| self.group(pmu, place)));
        }
        if groups.is_empty() && with_part {
            return Err(Unavailable::NoDevice(pattern.to_string()));
        }
        if groups.is_empty() {
            return Err(Unavailable::NoPeer(pattern.glob()));
        }
        for group in &groups {
            event::parse(&group.text(), pmus).map_err(|error| {
                let peer = pmus.get(&group.pmu).and_then(Result::ok);
                match peer.and_then(|pmu| pmu.peer.clone()) {
                    // The driver of a link to another CPU lists only reads.
                    Some(peer) if peer.starts_with("nr_cpu=") && counts_writes(group) => {
                        Unavailable::CpuPeer(group.pmu.clone())
                    }
                    _ => error.into(),
                }
            })?;
        }
        if sockets.len() > 2 {
            for group in &mut groups {
                let by_socket = self.by_socket(group, &sockets);
                if let Some(by_socket) =
                    by_socket.filter(|it| event::parse(&it.text(), pmus).is_ok())
                {
                    *group = by_socket;
                }
            }
        }
        Ok(groups)
    }

    /// The group with an event for each other socket, in place of one event for all of them; `None`
    /// if the metric has no such events.
    fn by_socket(&self, group: &CounterGroup, sockets: &BTreeSet<u32>) -> Option<CounterGroup> {
        let event = self.from_each_socket.as_ref()?;
        let is_kept = |(name, _): &&(String, String)| Some(name) != self.from_sockets.as_ref();
        let mut events: Vec<_> = group.events.iter().filter(is_kept).cloned().collect();
        let others = sockets
            .iter()
            .filter(|socket| group.place.socket != Some(**socket));
        for socket in others {
            let place = MetricPlace {
                peer: Some(*socket),
                ..group.place.clone()
            };
            events.push((
                self.from_each(*socket)?,
                self.perf(event, &group.pmu, &place),
            ));
        }
        let other_memory = self.other_memory.iter();
        events.extend(other_memory.map(|it| (it.clone(), self.perf(it, &group.pmu, &group.place))));
        Some(CounterGroup {
            events,
            ..group.clone()
        })
    }

    /// An event of the metric's PMU, in perf's syntax.
    fn perf(&self, event: &str, pmu: &str, place: &MetricPlace) -> String {
        let value = |placeholder: &str| match placeholder {
            "pmu" => Some(pmu.to_owned()),
            "peer" => place.peer.map(|peer| peer.to_string()),
            "part_mask" => place.part.map(|part| format!("{:#x}", 1_u32 << part)),
            filter => place.filters.get(filter).map(|value| format!("{value:#x}")),
        };
        let mut text = template::fill(&self.pmu.events[event].perf, value);
        let filters = place.filters.iter();
        for (name, value) in filters.filter(|(name, _)| !self.pmu.defaults.contains_key(*name)) {
            let end = text.trim_end_matches('/').len();
            text.insert_str(end, &format!(",{name}={value:#x}"));
        }
        text
    }

    fn group(&self, pmu: &str, place: MetricPlace) -> CounterGroup {
        let events = self
            .events()
            .into_iter()
            .map(|event| (event.to_owned(), self.perf(event, pmu, &place)))
            .collect();
        CounterGroup {
            pmu: pmu.to_owned(),
            events,
            place,
        }
    }
}

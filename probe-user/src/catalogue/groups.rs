//! What to open for a metric on a machine.

use std::{collections::BTreeMap, fmt};

use super::{
    error::Unavailable,
    model::{Metric, Per},
    template,
};
use crate::event::{self, Pmus};

/// IIO parts of a unit.
const PARTS: std::ops::Range<u32> = 0..8;

/// Filters asked for, such as `root_port` = 0x3, by their key in the PMU's `defaults`.
pub type Settings = BTreeMap<String, u64>;

/// Events to open as one group on one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterGroup {
    /// The PMU's name in sysfs.
    pub pmu: String,
    /// What its counts are for.
    pub place: Place,
    /// Each event by the name that the formula uses, and its `-e` string.
    pub events: Vec<(String, String)>,
}

/// What a value is for. Counts of groups with equal places are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From the PMU's name; where the name has no socket, that of the CPU that is read.
    pub socket: Option<u32>,
    /// The PMU's name, where each PMU has a value of its own.
    pub device: Option<String>,
    /// The other socket, for metrics about a pair of sockets.
    pub peer: Option<u32>,
    /// The part of an IIO unit.
    pub part: Option<u32>,
    /// The filters that were written.
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

impl Place {
    /// The root ports that its filter selects; `None` where it has no such filter.
    #[must_use]
    pub fn ports(&self) -> Option<u32> {
        let masks = ["root_port", "src_rp_mask", "dst_rp_mask"];
        let mask = masks.iter().find_map(|mask| self.filters.get(*mask))?;
        Some(mask.count_ones())
    }
}

/// Empty for a machine or container as a whole.
impl fmt::Display for Place {
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

impl Metric {
    /// The groups to open, one for each instance (and peer, and part) of its PMU on this machine.
    ///
    /// Core metrics: one group for each core PMU, to be opened on every CPU. Uncore metrics: to be
    /// opened on the CPUs of the PMU's `cpumask`. The counts of groups with the same [`Place`] are
    /// added up; how many they are is `num_units`.
    ///
    /// # Errors
    /// There is no such PMU here, it lacks an event, or there is no peer.
    pub fn groups(
        &self,
        pmus: &Pmus,
        settings: &Settings,
    ) -> Result<Vec<CounterGroup>, Unavailable> {
        let pattern = &self.pmu.pattern;
        let instances: Vec<_> = if pattern.is_core() {
            pmus.cores()
                .map(|pmu| (pmu.name.clone(), template::Instance::default()))
                .collect()
        } else {
            let instance = |name: &str| Some((name.to_owned(), pattern.instance(name)?));
            let aliases = pmus.iter().filter_map(|pmu| pmu.alias.as_deref());
            pmus.names().chain(aliases).filter_map(instance).collect()
        };
        if instances.is_empty() {
            return Err(if pattern.is_core() {
                Unavailable::NoCorePmu
            } else {
                Unavailable::NoPmu(pattern.to_string())
            });
        }
        let filters: BTreeMap<String, u64> = self
            .pmu
            .defaults
            .iter()
            .map(|(name, value)| (name.clone(), settings.get(name).copied().unwrap_or(*value)))
            .collect();
        let uses = |placeholder: &str| {
            let events = self.events();
            let mut perf = events.iter().map(|event| &self.pmu.events[*event].perf);
            perf.any(|perf| perf.contains(placeholder))
        };
        let (with_peer, with_part) = (uses("{peer}"), uses("{part_mask}"));
        let mut groups = Vec::new();
        for (pmu, instance) in &instances {
            let place = Place {
                socket: instance.socket,
                device: (self.pmu.per == Per::Device).then(|| pmu.clone()),
                filters: filters.clone(),
                ..Place::default()
            };
            let mut places = vec![place];
            if with_peer {
                let sockets = instances.iter().filter_map(|(_, other)| other.socket);
                let peers = sockets.filter(|socket| Some(*socket) != instance.socket);
                places = peers
                    .map(|peer| Place {
                        peer: Some(peer),
                        ..places[0].clone()
                    })
                    .collect();
            }
            if with_part {
                let part = |place: &Place, part| Place {
                    part: Some(part),
                    ..place.clone()
                };
                places = places
                    .iter()
                    .flat_map(|place| PARTS.map(move |number| part(place, number)))
                    .collect();
            }
            groups.extend(places.into_iter().map(|place| self.group(pmu, place)));
        }
        if groups.is_empty() {
            return Err(Unavailable::NoPeer(pattern.to_string()));
        }
        for group in &groups {
            event::parse(&group.text(), pmus)?;
        }
        Ok(groups)
    }

    fn group(&self, pmu: &str, place: Place) -> CounterGroup {
        let value = |placeholder: &str| match placeholder {
            "pmu" => Some(pmu.to_owned()),
            "peer" => place.peer.map(|peer| peer.to_string()),
            "part_mask" => place.part.map(|part| format!("{:#x}", 1_u32 << part)),
            filter => place.filters.get(filter).map(|value| format!("{value:#x}")),
        };
        let perf = |event: &str| {
            let text = template::fill(&self.pmu.events[event].perf, value);
            (event.to_owned(), text)
        };
        let events = self.events();
        let events = events.into_iter().map(perf).collect();
        CounterGroup {
            pmu: pmu.to_owned(),
            events,
            place,
        }
    }
}

//! The resolver's state: requested ids and known names. It does no I/O.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    ResolverHealth,
    clip::{NAME, TEXT, clip},
    source::{Fault, FoundContainer, FoundPod, SourceAnswer, WantedIds},
};
use crate::names::{
    IdKind, PathId, RuntimeNames,
    runtime_names::{Container, Pod},
};

/// Maximum number of containers, and of pods, that are asked for. It bounds memory, since any user
/// who may create cgroups can create any number of ids.
pub(super) const MAX_IDS: usize = 1 << 16;

/// Delay before an unknown id is asked for the second time. Each further delay is twice the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Maximum delay before an unknown id is asked for again.
const LONGEST_RETRY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdState {
    Waiting { tries: u32, due: Instant },
    Known,
}

type IdStates = HashMap<Arc<str>, IdState>;

/// Ids that are not asked for. Only their hashes are kept, since there may be very many.
#[derive(Debug, Default)]
struct SkippedIds {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

/// Requested ids and known names.
#[derive(Debug)]
pub(super) struct NameCache {
    containers: IdStates,
    pods: IdStates,
    /// Those that did not fit, and were counted.
    skipped: SkippedIds,
    described: Arc<RuntimeNames>,
    /// Keys of the labels to keep.
    labels: Vec<String>,
    health: ResolverHealth,
}

impl NameCache {
    pub(super) fn new(labels: Vec<String>) -> Self {
        Self {
            containers: HashMap::new(),
            pods: HashMap::new(),
            skipped: SkippedIds::default(),
            described: Arc::default(),
            labels,
            health: ResolverHealth::default(),
        }
    }

    pub(super) fn described(&self) -> Arc<RuntimeNames> {
        Arc::clone(&self.described)
    }

    pub(super) fn health(&self) -> ResolverHealth {
        let known = self.described.containers.len() as u64;
        ResolverHealth {
            known,
            waiting: self.containers.len() as u64 - known,
            ..self.health
        }
    }

    /// Adds an id to ask for; returns whether it is new.
    pub(super) fn request(&mut self, wanted: &PathId<'_>, now: Instant) -> bool {
        let states = match wanted.kind {
            IdKind::Container => &mut self.containers,
            IdKind::Pod => &mut self.pods,
        };
        if states.contains_key(&*wanted.id) {
            return false;
        }
        if states.len() >= MAX_IDS {
            self.health.not_asked += u64::from(self.skipped.add(&wanted.id));
            return false;
        }
        let state = IdState::Waiting { tries: 0, due: now };
        states.insert(Arc::from(&*wanted.id), state);
        true
    }

    /// Drops all ids and names except those of `ids` and of the pods of these containers.
    pub(super) fn retain<'a>(&mut self, ids: impl Iterator<Item = PathId<'a>>) {
        let (mut containers, mut pods) = (HashSet::new(), HashSet::new());
        let skipped = mem::take(&mut self.skipped.hashes);
        for PathId { kind, id, .. } in ids {
            let hash = self.skipped.hash(&id);
            self.skipped.hashes.extend(skipped.get(&hash));
            match kind {
                IdKind::Container => containers.insert(id),
                IdKind::Pod => pods.insert(id),
            };
        }
        self.containers.retain(|id, _| containers.contains(&**id));
        let described = &self.described;
        let pods_of_containers: HashSet<&str> = described
            .containers
            .iter()
            .filter(|(id, _)| self.containers.contains_key(*id))
            .filter_map(|(_, it)| it.pod.as_deref())
            .collect();
        self.pods
            .retain(|uid, _| pods.contains(&**uid) || pods_of_containers.contains(&**uid));
        let mut known = described.containers.keys();
        let mut known_pods = described.pods.keys();
        if known.all(|id| self.containers.contains_key(id))
            && known_pods.all(|uid| self.pods.contains_key(uid))
        {
            return;
        }
        let described = Arc::make_mut(&mut self.described);
        described
            .containers
            .retain(|id, _| self.containers.contains_key(id));
        described.pods.retain(|uid, _| self.pods.contains_key(uid));
    }

    /// The time at which the next id is to be asked for; None if no id is waiting.
    pub(super) fn due(&self) -> Option<Instant> {
        let states = self.containers.values().chain(self.pods.values());
        let due = states.filter_map(|state| match state {
            IdState::Waiting { due, .. } => Some(*due),
            IdState::Known => None,
        });
        due.min()
    }

    /// Whether some requested id was not asked for yet.
    pub(super) fn has_unasked(&self) -> bool {
        let mut states = self.containers.values().chain(self.pods.values());
        states.any(|state| matches!(state, IdState::Waiting { tries: 0, .. }))
    }

    /// All ids without a known name, those with the fewest tries first.
    pub(super) fn waiting(&self) -> WantedIds {
        let by_tries = |states: &IdStates| {
            let mut waiting: Vec<_> = states
                .iter()
                .filter_map(|(id, state)| match state {
                    IdState::Waiting { tries, .. } => Some((*tries, Arc::clone(id))),
                    IdState::Known => None,
                })
                .collect();
            waiting.sort();
            waiting.into_iter().map(|(_, id)| id).collect()
        };
        WantedIds::new(by_tries(&self.containers), by_tries(&self.pods))
    }

    /// Schedules the next try of the ids that are still unknown after all sources were asked.
    pub(super) fn schedule_retries(&mut self, wanted: &WantedIds, now: Instant) {
        let schedule = |states: &mut IdStates, ids: &[Arc<str>]| {
            for id in ids {
                if let Some(IdState::Waiting { tries, due }) = states.get_mut(id) {
                    let delay = FIRST_RETRY.saturating_mul(1 << (*tries).min(16));
                    *due = now + delay.min(LONGEST_RETRY);
                    *tries = tries.saturating_add(1);
                }
            }
        };
        schedule(&mut self.containers, wanted.containers());
        schedule(&mut self.pods, wanted.pods());
    }

    /// Counts a runtime's failure to answer.
    pub(super) fn count_fault(&mut self, fault: &Fault) {
        match fault {
            Fault::Timeout => self.health.timeouts += 1,
            Fault::Failed(_) => self.health.errors += 1,
        }
    }

    /// Adds the names of requested ids in a runtime's answer, except empty and conflicting names.
    pub(super) fn apply(&mut self, answer: SourceAnswer, now: Instant) {
        self.health.answers += answer.answers;
        self.health.cut += answer.cut;
        let mut containers = answer.containers;
        containers.retain(|found| self.containers.contains_key(&*found.id));
        let refused = &mut self.health.refused;
        let containers = without_conflicts(
            containers,
            |it| &it.id,
            |a, b| (&a.name, &a.pod) == (&b.name, &b.pod),
            refused,
        );
        let pods = without_conflicts(
            answer.pods,
            |it| &it.uid,
            |a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name),
            refused,
        );
        // Pods are also requested by their containers: not every cgroup path of a container has the
        // uid of its pod.
        for uid in containers.iter().filter_map(|found| found.pod.as_deref()) {
            if uid.len() > NAME || self.pods.contains_key(uid) {
                continue;
            }
            if self.pods.len() >= MAX_IDS {
                self.health.not_asked += u64::from(self.skipped.add(uid));
                continue;
            }
            let state = IdState::Waiting { tries: 0, due: now };
            self.pods.insert(uid.into(), state);
        }
        // If nothing changes, the names stay shared with snapshots.
        let mut described = mem::take(&mut self.described);
        for found in pods {
            if let Some((uid, pod)) = self.accept_pod(found) {
                Arc::make_mut(&mut described).pods.insert(uid, pod);
            }
        }
        for found in containers {
            if let Some((id, container)) = self.accept_container(found) {
                Arc::make_mut(&mut described)
                    .containers
                    .insert(id, container);
            }
        }
        self.described = described;
    }

    fn accept_pod(&mut self, found: FoundPod) -> Option<(Arc<str>, Arc<Pod>)> {
        let uid = mark_known(&mut self.pods, &found.uid, &found.name, &mut self.health)?;
        let cut = &mut self.health.cut;
        let pod = Pod {
            namespace: clip(found.namespace, NAME, cut),
            name: clip(found.name, NAME, cut),
            labels: chosen_labels(&self.labels, found.labels, cut),
        };
        Some((uid, Arc::new(pod)))
    }

    fn accept_container(&mut self, found: FoundContainer) -> Option<(Arc<str>, Arc<Container>)> {
        let id = mark_known(
            &mut self.containers,
            &found.id,
            &found.name,
            &mut self.health,
        )?;
        let cut = &mut self.health.cut;
        let pod = found.pod.and_then(|uid| self.pods.get_key_value(&*uid));
        let container = Container {
            name: clip(found.name, NAME, cut),
            pod: pod.map(|(uid, _)| Arc::clone(uid)),
            runtime: found.runtime,
            image: found.image.map(|image| clip(image, TEXT, cut)),
            labels: chosen_labels(&self.labels, found.labels, cut),
        };
        Some((id, Arc::new(container)))
    }
}

impl SkippedIds {
    /// Adds an id; returns whether it is new.
    fn add(&mut self, id: &str) -> bool {
        self.hashes.insert(self.hash(id))
    }

    fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }
}

/// Marks an id as known and returns it; None if it is not waiting, or if the name is empty.
fn mark_known(
    states: &mut IdStates,
    id: &str,
    name: &str,
    health: &mut ResolverHealth,
) -> Option<Arc<str>> {
    let key = Arc::clone(states.get_key_value(id)?.0);
    let state = states
        .get_mut(id)
        .filter(|state| **state != IdState::Known)?;
    if name.is_empty() {
        health.refused += 1;
        return None;
    }
    *state = IdState::Known;
    Some(key)
}

/// Removes the items whose id also has an item with another name.
fn without_conflicts<T>(
    mut found: Vec<T>,
    id: fn(&T) -> &str,
    is_same: fn(&T, &T) -> bool,
    refused: &mut u64,
) -> Vec<T> {
    let mut first_items: HashMap<&str, &T> = HashMap::with_capacity(found.len());
    let mut disputed: HashSet<String> = HashSet::new();
    for item in &found {
        match first_items.entry(id(item)) {
            Entry::Vacant(entry) => drop(entry.insert(item)),
            Entry::Occupied(entry) if is_same(entry.get(), item) => {}
            Entry::Occupied(entry) => drop(disputed.insert((*entry.key()).to_owned())),
        }
    }
    *refused += disputed.len() as u64;
    found.retain(|item| !disputed.contains(id(item)));
    found
}

/// The labels that the user chose, truncated if too long.
fn chosen_labels(
    keys: &[String],
    mut labels: HashMap<String, String>,
    cut: &mut u64,
) -> BTreeMap<String, String> {
    let chosen = keys.iter().filter_map(|key| {
        let value = labels.remove(key)?;
        Some((key.clone(), clip(value, TEXT, cut)))
    });
    chosen.collect()
}

#[cfg(test)]
mod tests;

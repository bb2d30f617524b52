//! What is wanted and what is known: the resolver's memory, without I/O.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    ResolverHealth,
    clip::{NAME, TEXT, clip},
    source::{Answer, Fault, Found, FoundPod, Wanted},
};
use crate::names::{
    Described, Kind, Named,
    described::{Container, Pod},
};

/// The most containers, and the most pods, that are asked for: whoever may make cgroups could make
/// any number of them.
const MOST: usize = 1 << 16;

/// When an id is asked for again that nobody knew: after this time, then after twice as much each
/// time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { tries: u32, due: Instant },
    Known,
}

type States = HashMap<Arc<str>, State>;

/// What is wanted and what is known.
#[derive(Debug)]
pub(super) struct Book {
    containers: States,
    pods: States,
    described: Arc<Described>,
    /// Keys of the labels that are kept.
    labels: Vec<String>,
    health: ResolverHealth,
}

impl Book {
    pub(super) fn new(labels: Vec<String>) -> Self {
        Self {
            containers: HashMap::new(),
            pods: HashMap::new(),
            described: Arc::default(),
            labels,
            health: ResolverHealth::default(),
        }
    }

    pub(super) fn described(&self) -> Arc<Described> {
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

    /// Adds an id; whether it is new.
    pub(super) fn want(&mut self, named: &Named<'_>, now: Instant) -> bool {
        let states = match named.kind {
            Kind::Container => &mut self.containers,
            Kind::Pod => &mut self.pods,
        };
        if states.contains_key(&*named.id) {
            return false;
        }
        if states.len() >= MOST {
            self.health.not_asked += 1;
            return false;
        }
        let state = State::Waiting { tries: 0, due: now };
        states.insert(Arc::from(&*named.id), state);
        true
    }

    /// Forgets all ids but these.
    pub(super) fn retain<'a>(&mut self, named: impl Iterator<Item = Named<'a>>) {
        let (mut containers, mut pods) = (HashSet::new(), HashSet::new());
        for Named { kind, id, .. } in named {
            match kind {
                Kind::Container => containers.insert(id),
                Kind::Pod => pods.insert(id),
            };
        }
        self.containers.retain(|id, _| containers.contains(&**id));
        let described = &self.described;
        let known = described.containers.iter();
        let known = known.filter(|(id, _)| self.containers.contains_key(*id));
        let of_known: HashSet<&str> = known.filter_map(|(_, it)| it.pod.as_deref()).collect();
        self.pods
            .retain(|uid, _| pods.contains(&**uid) || of_known.contains(&**uid));
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

    /// When something has to be asked next; None where nothing is.
    pub(super) fn due(&self) -> Option<Instant> {
        let states = self.containers.values().chain(self.pods.values());
        let due = states.filter_map(|state| match state {
            State::Waiting { due, .. } => Some(*due),
            State::Known => None,
        });
        due.min()
    }

    /// Whether nobody was asked yet for something that is wanted.
    pub(super) fn has_unasked(&self) -> bool {
        let mut states = self.containers.values().chain(self.pods.values());
        states.any(|state| matches!(state, State::Waiting { tries: 0, .. }))
    }

    /// All that is not known, those first that were asked for least.
    pub(super) fn waiting(&self) -> Wanted {
        let waiting = |states: &States| {
            let waiting = states.iter().filter_map(|(id, state)| match state {
                State::Waiting { tries, .. } => Some((*tries, Arc::clone(id))),
                State::Known => None,
            });
            let mut waiting: Vec<_> = waiting.collect();
            waiting.sort();
            waiting.into_iter().map(|(_, id)| id).collect()
        };
        Wanted::new(waiting(&self.containers), waiting(&self.pods))
    }

    /// Everybody was asked for these: those that are still not known have to wait.
    pub(super) fn asked(&mut self, wanted: &Wanted, now: Instant) {
        let asked = |states: &mut States, ids: &[Arc<str>]| {
            for id in ids {
                if let Some(State::Waiting { tries, due }) = states.get_mut(id) {
                    let wait = FIRST_RETRY.saturating_mul(1 << (*tries).min(16));
                    *due = now + wait.min(LONGEST_RETRY);
                    *tries = tries.saturating_add(1);
                }
            }
        };
        asked(&mut self.containers, wanted.containers());
        asked(&mut self.pods, wanted.pods());
    }

    /// A runtime did not answer.
    pub(super) fn failed(&mut self, fault: &Fault) {
        match fault {
            Fault::Timeout => self.health.timeouts += 1,
            Fault::Failed(_) => self.health.errors += 1,
        }
    }

    /// Takes in what a runtime answered, as far as it is wanted and can be believed.
    pub(super) fn take(&mut self, answer: Answer, now: Instant) {
        self.health.answers += answer.answers;
        self.health.cut += answer.cut;
        let mut containers = answer.containers;
        containers.retain(|found| self.containers.contains_key(&*found.id));
        let refused = &mut self.health.refused;
        let containers = one_each(
            containers,
            |it| &it.id,
            |a, b| (&a.name, &a.pod) == (&b.name, &b.pod),
            refused,
        );
        let pods = one_each(
            answer.pods,
            |it| &it.uid,
            |a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name),
            refused,
        );
        // Not every cgroup path of a container names its pod.
        for uid in containers.iter().filter_map(|found| found.pod.as_deref()) {
            if uid.len() <= NAME && self.pods.len() < MOST && !self.pods.contains_key(uid) {
                let state = State::Waiting { tries: 0, due: now };
                self.pods.insert(uid.into(), state);
            }
        }
        // Untouched, the names of a snapshot stay shared.
        let mut described = mem::take(&mut self.described);
        for found in pods {
            if let Some((uid, pod)) = self.pod(found) {
                Arc::make_mut(&mut described).pods.insert(uid, pod);
            }
        }
        for found in containers {
            if let Some((id, container)) = self.container(found) {
                Arc::make_mut(&mut described)
                    .containers
                    .insert(id, container);
            }
        }
        self.described = described;
    }

    fn pod(&mut self, found: FoundPod) -> Option<(Arc<str>, Arc<Pod>)> {
        let uid = newly_known(&mut self.pods, &found.uid, &found.name, &mut self.health)?;
        let cut = &mut self.health.cut;
        let pod = Pod {
            namespace: clip(found.namespace, NAME, cut),
            name: clip(found.name, NAME, cut),
            labels: chosen(&self.labels, found.labels, cut),
        };
        Some((uid, Arc::new(pod)))
    }

    fn container(&mut self, found: Found) -> Option<(Arc<str>, Arc<Container>)> {
        let id = newly_known(
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
            labels: chosen(&self.labels, found.labels, cut),
        };
        Some((id, Arc::new(container)))
    }
}

/// The id as it is wanted, which is known from here on; None where it is not waited for, or has no
/// name.
fn newly_known(
    states: &mut States,
    id: &str,
    name: &str,
    health: &mut ResolverHealth,
) -> Option<Arc<str>> {
    let own = Arc::clone(states.get_key_value(id)?.0);
    let state = states.get_mut(id).filter(|state| **state != State::Known)?;
    if name.is_empty() {
        health.refused += 1;
        return None;
    }
    *state = State::Known;
    Some(own)
}

/// What was found, but for ids that are called differently: which is right is not known.
fn one_each<T>(
    mut found: Vec<T>,
    id: fn(&T) -> &str,
    is_same: fn(&T, &T) -> bool,
    refused: &mut u64,
) -> Vec<T> {
    let mut first: HashMap<&str, &T> = HashMap::with_capacity(found.len());
    let mut disputed: HashSet<String> = HashSet::new();
    for one in &found {
        match first.entry(id(one)) {
            Entry::Vacant(entry) => drop(entry.insert(one)),
            Entry::Occupied(entry) if is_same(entry.get(), one) => {}
            Entry::Occupied(entry) => drop(disputed.insert((*entry.key()).to_owned())),
        }
    }
    *refused += disputed.len() as u64;
    found.retain(|one| !disputed.contains(id(one)));
    found
}

/// The labels that the user chose.
fn chosen(
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

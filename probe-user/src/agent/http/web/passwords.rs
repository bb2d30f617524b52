//! Users and their passwords, hashed by bcrypt. Guesses are verified one at a time; one per address
//! waits, and [`WAITING`] in all.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv6Addr},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Semaphore, task::spawn_blocking};

use super::Admission;

/// The most guesses that wait.
const WAITING: usize = 64;

/// The most passwords that are remembered: one of each user, but for some that are equal to bcrypt.
const REMEMBERED: usize = 1024;

/// Those that may come in.
pub(super) struct Passwords {
    users: BTreeMap<String, String>,
    /// The highest cost of all users' hashes.
    cost: u32,
    gate: Arc<Gate>,
}

/// What outlives the file that the users are of.
struct Gate {
    /// What was right before, by a keyed hash: bcrypt takes a tenth of a second.
    right: Mutex<HashSet<u64>>,
    key: RandomState,
    /// Held to the end of a hash, even if the client has left: guesses take one CPU at most.
    turn: Arc<Semaphore>,
    waiting: Mutex<BTreeSet<IpAddr>>,
}

impl Passwords {
    /// None where there are no users: everybody comes in. What was right with the users `before`
    /// stays so where its hash is the same.
    pub(super) fn new(users: BTreeMap<String, String>, before: Option<&Self>) -> Option<Self> {
        let cost = users.values().map(|hash| cost(hash)).max()?;
        let gate = before.map_or_else(
            || {
                Arc::new(Gate {
                    right: Mutex::default(),
                    key: RandomState::new(),
                    turn: Arc::new(Semaphore::new(1)),
                    waiting: Mutex::default(),
                })
            },
            |before| Arc::clone(&before.gate),
        );
        Some(Self { users, cost, gate })
    }

    /// Whether this password was right before.
    pub(super) fn is_known(&self, user: &str, password: &[u8]) -> bool {
        locked(&self.gate.right).contains(&self.key(user, password))
    }

    /// Verifies a password that a client at this address gives.
    pub(super) async fn admit(&self, user: &str, password: Vec<u8>, from: IpAddr) -> Admission {
        if self.is_known(user, &password) {
            return Admission::Granted;
        }
        let Some(_waits) = Waits::begin(&self.gate, from) else {
            return Admission::Busy;
        };
        let Ok(turn) = Arc::clone(&self.gate.turn).acquire_owned().await else {
            return Admission::Busy;
        };
        // It may have been verified while this one waited.
        if self.is_known(user, &password) {
            return Admission::Granted;
        }
        let key = self.key(user, &password);
        let (hash, highest) = (self.users.get(user).cloned(), self.cost);
        let gate = Arc::clone(&self.gate);
        let verified = spawn_blocking(move || {
            let _turn = turn;
            let right = verify(&password, hash.as_deref(), highest);
            if right {
                gate.remember(key);
            }
            right
        });
        match verified.await {
            Ok(true) => Admission::Granted,
            _ => Admission::Denied,
        }
    }

    fn key(&self, user: &str, password: &[u8]) -> u64 {
        let hash = self.users.get(user);
        self.gate.key.hash_one((user, hash, password))
    }
}

impl Gate {
    fn remember(&self, key: u64) {
        let mut right = locked(&self.right);
        if right.len() >= REMEMBERED {
            right.clear();
        }
        right.insert(key);
    }
}

/// A guess that waits for its turn, or has it.
struct Waits<'a> {
    gate: &'a Gate,
    from: IpAddr,
}

impl<'a> Waits<'a> {
    /// None where one of this address waits already, or too many do.
    fn begin(gate: &'a Gate, from: IpAddr) -> Option<Self> {
        let from = network(from);
        let mut waiting = locked(&gate.waiting);
        let may = waiting.len() < WAITING && waiting.insert(from);
        may.then(|| Self { gate, from })
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        locked(&self.gate.waiting).remove(&self.from);
    }
}

/// What one client has: of IPv6 the network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

/// Verifies with the work of the highest cost, whoever the user is.
fn verify(password: &[u8], hash: Option<&str>, highest: u32) -> bool {
    let right = hash.is_some_and(|hash| bcrypt::verify(password, hash).unwrap_or(false));
    for cost in wasted(hash.map(cost), highest) {
        drop(bcrypt::hash_with_salt(password, cost, [0; 16]));
    }
    right
}

/// The costs of what is hashed beside a user's own hash: a hash of cost c takes 2^c rounds, so that
/// with those of c, c+1 and so on below the highest the sum is that of the highest.
pub(super) fn wasted(own: Option<u32>, highest: u32) -> Range<u32> {
    match own {
        Some(own) => own..highest,
        None => highest..highest + 1,
    }
}

/// The cost of a hash, which was parsed when it was read.
fn cost(hash: &str) -> u32 {
    let parts = hash.parse::<bcrypt::HashParts>();
    parts.map_or(bcrypt::DEFAULT_COST, |parts| parts.get_cost())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Users and their passwords, hashed by bcrypt. Guesses are verified one at a time. At most one
//! guess per address, and [`MOST_WAITING`] in all, wait or are being verified.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv6Addr},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Semaphore, task::spawn_blocking};

use super::Admission;

/// The most guesses that wait or are being verified.
const MOST_WAITING: usize = 64;

/// Maximum number of remembered passwords. A user usually has one; bcrypt accepts several that it
/// cannot distinguish.
const MOST_VERIFIED: usize = 1024;

/// The users that are admitted.
pub(super) struct Passwords {
    users: BTreeMap<String, String>,
    /// The highest cost of all users' hashes.
    cost: u32,
    state: Arc<PasswordState>,
}

/// State that is kept when the web configuration file is reloaded.
struct PasswordState {
    /// Keyed hashes of verified passwords: verifying one again would take a tenth of a second.
    verified: Mutex<HashSet<u64>>,
    key: RandomState,
    /// Held until a verification ends, even if the client has left, so that guesses take at most
    /// one CPU.
    one_at_a_time: Arc<Semaphore>,
    waiting: Mutex<BTreeSet<IpAddr>>,
}

impl Passwords {
    /// None without users: everybody is admitted. Passwords that were verified `before` stay
    /// verified while the bcrypt hashes of their users are the same.
    pub(super) fn new(users: BTreeMap<String, String>, before: Option<&Self>) -> Option<Self> {
        let cost = users.values().map(|hash| cost(hash)).max()?;
        let state = before.map_or_else(
            || {
                Arc::new(PasswordState {
                    verified: Mutex::default(),
                    key: RandomState::new(),
                    one_at_a_time: Arc::new(Semaphore::new(1)),
                    waiting: Mutex::default(),
                })
            },
            |before| Arc::clone(&before.state),
        );
        Some(Self { users, cost, state })
    }

    /// Whether this password was verified before.
    pub(super) fn is_known(&self, user: &str, password: &[u8]) -> bool {
        lock(&self.state.verified).contains(&self.key(user, password))
    }

    /// Verifies the password of a client at this address.
    pub(super) async fn admit(&self, user: &str, password: Vec<u8>, from: IpAddr) -> Admission {
        if self.is_known(user, &password) {
            return Admission::Granted;
        }
        let Some(_guess) = WaitingGuess::begin(&self.state, from) else {
            return Admission::Busy;
        };
        let Ok(permit) = Arc::clone(&self.state.one_at_a_time).acquire_owned().await else {
            return Admission::Busy;
        };
        // Another request may have verified it meanwhile.
        if self.is_known(user, &password) {
            return Admission::Granted;
        }
        let key = self.key(user, &password);
        let (hash, highest) = (self.users.get(user).cloned(), self.cost);
        let state = Arc::clone(&self.state);
        let verified = spawn_blocking(move || {
            let _permit = permit;
            let is_right = verify(&password, hash.as_deref(), highest);
            if is_right {
                state.remember(key);
            }
            is_right
        });
        match verified.await {
            Ok(true) => Admission::Granted,
            _ => Admission::Denied,
        }
    }

    /// Whether no verification is running.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.state.one_at_a_time.available_permits() > 0
    }

    fn key(&self, user: &str, password: &[u8]) -> u64 {
        let hash = self.users.get(user);
        self.state.key.hash_one((user, hash, password))
    }
}

impl PasswordState {
    fn remember(&self, key: u64) {
        let mut verified = lock(&self.verified);
        if verified.len() >= MOST_VERIFIED {
            verified.clear();
        }
        verified.insert(key);
    }
}

/// A guess that is waiting or being verified.
struct WaitingGuess<'a> {
    state: &'a PasswordState,
    from: IpAddr,
}

impl<'a> WaitingGuess<'a> {
    /// None if a guess of this address is waiting already, or too many guesses are.
    fn begin(state: &'a PasswordState, from: IpAddr) -> Option<Self> {
        let from = network(from);
        let mut waiting = lock(&state.waiting);
        let is_admitted = waiting.len() < MOST_WAITING && waiting.insert(from);
        is_admitted.then(|| Self { state, from })
    }
}

impl Drop for WaitingGuess<'_> {
    fn drop(&mut self) {
        lock(&self.state.waiting).remove(&self.from);
    }
}

/// The address of one client: for IPv6 its network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

/// Verifies a password. The work is that of the highest cost for every user and for unknown ones,
/// so that its time tells nothing about users.
fn verify(password: &[u8], hash: Option<&str>, highest: u32) -> bool {
    let is_right = hash.is_some_and(|hash| bcrypt::verify(password, hash).unwrap_or(false));
    for cost in further_costs(hash.map(cost), highest) {
        drop(bcrypt::hash_with_salt(password, cost, [0; 16]));
    }
    is_right
}

/// The costs of further hashes. A hash of cost c takes 2^c rounds. Further hashes of costs c, c+1,
/// ... up to one below the highest cost h make each verification equally long:
/// 2^c + (2^c + 2^(c+1) + ... + 2^(h-1)) = 2^h. An unknown user has no hash: one of cost h.
pub(super) fn further_costs(own: Option<u32>, highest: u32) -> Range<u32> {
    match own {
        Some(own) => own..highest,
        None => highest..highest + 1,
    }
}

/// The cost of a hash, which was validated when the file was read.
fn cost(hash: &str) -> u32 {
    let parts = hash.parse::<bcrypt::HashParts>();
    parts.map_or(bcrypt::DEFAULT_COST, |parts| parts.get_cost())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

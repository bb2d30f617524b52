//! Users and their passwords, hashed by bcrypt.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError},
};

use tokio::{sync::Semaphore, task::spawn_blocking};

/// Compared with where there is no such user, so that both take the same time.
pub(super) const NOBODY: &str = "$2b$10$CwTycUXWue0Thq9StjUM0uJ8e3fYlE1vP1nC8eYx1d9Gm0x1yW3a2";

/// Those that may come in.
pub(super) struct Passwords {
    users: BTreeMap<String, String>,
    /// What was right before, by a keyed hash: bcrypt takes a tenth of a second.
    right: Mutex<HashSet<u64>>,
    key: RandomState,
    /// One at a time: guesses cannot take more than one CPU.
    turn: Semaphore,
}

impl Passwords {
    /// None where there are no users: everybody comes in.
    pub(super) fn new(users: BTreeMap<String, String>) -> Option<Self> {
        (!users.is_empty()).then(|| Self {
            users,
            right: Mutex::default(),
            key: RandomState::new(),
            turn: Semaphore::new(1),
        })
    }

    pub(super) async fn admit(&self, user: &str, password: Vec<u8>) -> bool {
        let known = self.key.hash_one((user, &password));
        if self.right().contains(&known) {
            return true;
        }
        let Ok(_turn) = self.turn.acquire().await else {
            return false;
        };
        let hash = self.users.get(user).cloned();
        let exists = hash.is_some();
        let hash = hash.unwrap_or_else(|| NOBODY.to_owned());
        let verified = spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
        let right = exists && verified.await.unwrap_or(false);
        if right {
            self.right().insert(known);
        }
        right
    }

    fn right(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

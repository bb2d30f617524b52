//! The ledger in the directory of the state: what was exported goes on after a restart, also of
//! rows that are folded or that ended in one.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::Ledger;
use crate::state::{Encoded, StateError, StateFile};

/// Its file.
const FILE: StateFile = StateFile("exported");

#[derive(Serialize)]
struct Saved<'a> {
    boot: &'a str,
    ledger: &'a Ledger,
}

#[derive(Deserialize)]
struct Loaded {
    boot: String,
    ledger: Ledger,
}

impl Ledger {
    /// Its file. To be saved after the state: what that has more is a gain later.
    pub(in crate::agent) fn encoded(&self, boot: &str) -> io::Result<Encoded> {
        let ledger = self;
        FILE.encoded(&Saved { boot, ledger })
    }

    /// The one that was saved in this boot; an empty one where none was.
    pub(in crate::agent) fn load(boot: &str, directory: &Path) -> Result<Self, StateError> {
        let loaded = FILE.load(directory, |loaded: &Loaded| loaded.boot == boot)?;
        Ok(loaded.map(|it| it.ledger).unwrap_or_default())
    }
}

/// The accounts of all subjects but this program: its own counters begin with its process.
pub(super) mod accounts {
    use std::collections::HashMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::super::Account;
    use crate::derive::Subject;

    pub(in super::super) fn serialize<S: Serializer>(
        accounts: &HashMap<Subject, Account>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let others = accounts.iter();
        let others = others.filter(|(subject, _)| **subject != Subject::Pmuscope);
        // The length is told beforehand.
        serializer.collect_map(others.collect::<Vec<_>>())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<HashMap<Subject, Account>, D::Error> {
        Deserialize::deserialize(deserializer)
    }
}

//! The ledger's file in the state directory: totals continue after a restart, also those of folded
//! rows and of rows that ended while folded.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::Ledger;
use crate::state::{EncodedState, StateError, StateFile};

/// The ledger's file.
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
    /// Encodes the ledger's file. The agent saves it after the state: if only the state was saved,
    /// the next start adds the difference as a gain.
    pub(in crate::agent) fn encoded(&self, boot: &str) -> io::Result<EncodedState> {
        let ledger = self;
        FILE.encoded(&Saved { boot, ledger })
    }

    /// Loads the ledger that was saved in this boot; an empty one if there is no file.
    pub(in crate::agent) fn load(boot: &str, directory: &Path) -> Result<Self, StateError> {
        let loaded = FILE.load(directory, |loaded: &Loaded| loaded.boot == boot)?;
        Ok(loaded.map(|it| it.ledger).unwrap_or_default())
    }
}

/// Saves the accounts of all subjects except this program, whose own counters begin with its
/// process.
pub(super) mod accounts {
    use std::collections::HashMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::super::LedgerAccount;
    use crate::derive::Subject;

    pub(in super::super) fn serialize<S: Serializer>(
        accounts: &HashMap<Subject, LedgerAccount>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let saved = { accounts.iter() }.filter(|(subject, _)| **subject != Subject::Pmuscope);
        // Collected, since postcard needs the length first.
        serializer.collect_map(saved.collect::<Vec<_>>())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<HashMap<Subject, LedgerAccount>, D::Error> {
        Deserialize::deserialize(deserializer)
    }
}

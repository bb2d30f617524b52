//! Rows of samples that are freed before the map is full, since their owners are idle. Those of a
//! CPU are freed while it does not sample: what its program adds to a row after the row was read
//! would be lost, and the kernel may have given its memory to another row by then.

use std::collections::HashMap;

use probe_common::spe::{SpeKey, SpeRow};

use crate::session::{Object, SessionError};

/// Those that a reading frees.
pub(super) struct IdleRows {
    /// Those to be freed, by CPU.
    chosen: HashMap<u16, Vec<SpeKey>>,
    /// As they were when they were freed.
    freed: Vec<(SpeKey, SpeRow)>,
}

impl IdleRows {
    pub(super) fn new(keys: Vec<SpeKey>) -> Self {
        let mut chosen: HashMap<u16, Vec<SpeKey>> = HashMap::new();
        for key in keys {
            chosen.entry(key.cpu).or_default().push(key);
        }
        Self {
            chosen,
            freed: Vec::new(),
        }
    }

    /// Frees those of a CPU that does not sample now.
    pub(super) fn free(&mut self, object: &Object, cpu: u32) -> Result<(), SessionError> {
        let chosen = u16::try_from(cpu).map(|cpu| self.chosen.remove(&cpu));
        for key in chosen.ok().flatten().unwrap_or_default() {
            if let Some(row) = object.maps.spe_rows.take(&key)? {
                self.freed.push((key, row));
            }
        }
        Ok(())
    }

    /// Frees those of CPUs that have no event, and returns all.
    pub(super) fn end(
        mut self,
        object: &Object,
        samples: impl Fn(u32) -> bool,
    ) -> Result<Vec<(SpeKey, SpeRow)>, SessionError> {
        let left: Vec<u32> = self.chosen.keys().map(|cpu| u32::from(*cpu)).collect();
        for cpu in left.into_iter().filter(|cpu| !samples(*cpu)) {
            self.free(object, cpu)?;
        }
        Ok(self.freed)
    }
}

//! Frees rows of idle owners before the map of samples is full. The rows of a CPU are freed while
//! the CPU does not sample. Otherwise its program could add to a row after the row was read: the
//! addition would be lost, or would go to another row that reuses the memory.

use std::collections::HashMap;

use probe_common::spe::{SpeKey, SpeRow};

use crate::session::{EbpfObject, SessionError};

/// The idle rows that a reading frees.
pub(super) struct IdleSpeRows {
    /// Rows to free, by CPU.
    chosen: HashMap<u16, Vec<SpeKey>>,
    /// Freed rows with their last values.
    freed: Vec<(SpeKey, SpeRow)>,
}

impl IdleSpeRows {
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

    /// Frees the rows of a CPU that does not sample at the moment.
    pub(super) fn free(&mut self, object: &EbpfObject, cpu: u32) -> Result<(), SessionError> {
        let chosen = u16::try_from(cpu).map(|cpu| self.chosen.remove(&cpu));
        for key in chosen.ok().flatten().unwrap_or_default() {
            if let Some(row) = object.maps.spe_rows.take(&key)? {
                self.freed.push((key, row));
            }
        }
        Ok(())
    }

    /// Frees the rows of CPUs without an event, and returns all freed rows.
    pub(super) fn finish(
        mut self,
        object: &EbpfObject,
        samples: impl Fn(u32) -> bool,
    ) -> Result<Vec<(SpeKey, SpeRow)>, SessionError> {
        let remaining: Vec<u32> = self.chosen.keys().map(|cpu| u32::from(*cpu)).collect();
        for cpu in remaining.into_iter().filter(|cpu| !samples(*cpu)) {
            self.free(object, cpu)?;
        }
        Ok(self.freed)
    }
}

//! Reads mappings from procfs for processes with missing records.

use std::sync::Arc;

use super::{
    super::maps,
    Mappings,
    process::{Mapped, ProgramImage},
};
use crate::machine::process;

impl Mappings {
    /// Reads procfs for a process if records of it may be missing.
    pub(super) fn refresh(&mut self, pid: u32, time: Option<u64>) {
        let losses = self.losses();
        let last = self
            .processes
            .get(&pid)
            .and_then(|process| process.images.last());
        if last.is_some_and(|last| last.losses_at_read == Some(losses)) || self.gone.contains(&pid)
        {
            return;
        }
        let Some(born) = process::start_time(&self.proc, pid) else {
            self.gone.insert(pid);
            return;
        };
        // The process started after `time`: another process had the id then.
        if time.is_some_and(|time| {
            last.is_none() && time.saturating_add(process::START_TIME_ERROR) < born
        }) {
            return;
        }
        self.read(pid, born);
    }

    /// Reads procfs again for a known process.
    pub(super) fn reread(&mut self, pid: u32) {
        let image = self
            .processes
            .get_mut(&pid)
            .and_then(|process| process.images.last_mut());
        if let Some(image) = image {
            image.losses_at_read = None;
            self.refresh(pid, None);
        }
    }

    /// Reads the mappings of a process that started at `born`, in ns of `CLOCK_MONOTONIC`.
    fn read(&mut self, pid: u32, born: u64) {
        let lines = maps::lines(&self.proc, pid);
        if lines.is_empty() {
            if maps::are_refused(&self.proc, pid) {
                self.mark_refused(pid, born);
            }
            return;
        }
        let parent = process::parent(&self.proc, pid);
        let process = self.processes.get(&pid);
        let last = process.and_then(|process| process.images.last());
        // The process has no image yet, or records were lost and the id was reused.
        if last.is_none_or(|last| {
            last.losses_at_read.is_some()
                && last.since.saturating_add(process::START_TIME_ERROR) < born
        }) {
            self.start_image(pid, ProgramImage::new(born, None));
        }
        let losses = self.losses();
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.parent = process.parent.or(parent);
        let Some(image) = process.images.last_mut() else {
            return;
        };
        let is_resync = image.losses_at_read.is_some();
        let last = image.mappings.last().map(|last| last.since);
        // Mappings that are new in procfs get the time of the last known mapping.
        let since = last.filter(|_| is_resync).unwrap_or(image.since);
        let found = lines
            .into_iter()
            .filter(|line| line.mapping.executable)
            .map(|line| Mapped {
                start: line.mapping.start,
                end: line.mapping.end,
                offset: line.mapping.offset,
                name: line.name.into(),
                build_id: None,
                inode: (line.inode.number != 0).then_some(line.inode),
                since,
            });
        let mut dropped = 0;
        if is_resync {
            for mapped in found {
                // Of overlapping mappings only the last one is current.
                let current = { &image.mappings }
                    .iter()
                    .rev()
                    .find(|known| known.overlaps(&mapped));
                if current.is_none_or(|current| !current.is_same_as(&mapped)) {
                    dropped += image.push(&Arc::new(mapped));
                }
            }
        } else {
            let recorded = std::mem::take(&mut image.mappings);
            for mapped in found.map(Arc::new).chain(recorded.iter().cloned()) {
                dropped += image.push(&mapped);
            }
        }
        image.losses_at_read = Some(losses);
        self.counts.dropped_mappings += dropped;
        self.counts.read += 1;
    }

    /// Marks a process with unreadable mappings, so that it is not read again.
    fn mark_refused(&mut self, pid: u32, born: u64) {
        if !self.processes.contains_key(&pid) {
            self.start_image(pid, ProgramImage::new(born, None));
        }
        let losses = self.losses();
        let process = self.processes.get_mut(&pid);
        if let Some(image) = process.and_then(|process| process.images.last_mut()) {
            image.losses_at_read = Some(losses);
            self.counts.refused += 1;
        }
    }
}

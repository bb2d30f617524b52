//! What procfs says of processes that the kernel's records did not tell of, or not all.

use std::sync::Arc;

use super::{
    super::maps,
    Mappings,
    process::{Image, Mapped},
};
use crate::machine::process;

impl Mappings {
    /// Asks procfs for a process that records did not tell of, or not all.
    pub(super) fn ask(&mut self, pid: u32, time: Option<u64>) {
        let untold = self.untold();
        let last = self
            .processes
            .get(&pid)
            .and_then(|process| process.images.last());
        if last.is_some_and(|last| last.asked == Some(untold)) || self.gone.contains(&pid) {
            return;
        }
        let Some(born) = process::born(&self.proc, pid) else {
            self.gone.insert(pid);
            return;
        };
        // Another process had the number then.
        if time.is_some_and(|time| last.is_none() && time.saturating_add(process::TICK) < born) {
            return;
        }
        self.read(pid, born);
    }

    pub(super) fn ask_again(&mut self, pid: u32) {
        let image = self
            .processes
            .get_mut(&pid)
            .and_then(|process| process.images.last_mut());
        if let Some(image) = image {
            image.asked = None;
            self.ask(pid, None);
        }
    }

    fn read(&mut self, pid: u32, born: u64) {
        let lines = maps::lines(&self.proc, pid);
        if lines.is_empty() {
            if maps::are_refused(&self.proc, pid) {
                self.refused(pid, born);
            }
            return;
        }
        let parent = process::parent(&self.proc, pid);
        let process = self.processes.get(&pid);
        let last = process.and_then(|process| process.images.last());
        // The number was given out again, or it has executed another program: its records are lost.
        if last.is_none_or(|last| {
            last.asked.is_some() && last.since.saturating_add(process::TICK) < born
        }) {
            self.begin(pid, Image::new(born, None));
        }
        let untold = self.untold();
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.parent = process.parent.or(parent);
        let Some(image) = process.images.last_mut() else {
            return;
        };
        let healed = image.asked.is_some();
        let last = image.mappings.last().map(|last| last.since);
        // What was mapped since the last record that was not lost.
        let since = last.filter(|_| healed).unwrap_or(image.since);
        let found = lines.into_iter().filter(|line| line.mapping.executable);
        let found = found.map(|line| Mapped {
            start: line.mapping.start,
            end: line.mapping.end,
            offset: line.mapping.offset,
            name: line.name.into(),
            build_id: None,
            inode: (line.inode.number != 0).then_some(line.inode),
            since,
        });
        let mut dropped = 0;
        if healed {
            for mapped in found {
                // Under another one it is not what is there now.
                let top = { &image.mappings }
                    .iter()
                    .rev()
                    .find(|known| known.meets(&mapped));
                if top.is_none_or(|top| !top.is(&mapped)) {
                    dropped += image.push(&Arc::new(mapped));
                }
            }
        } else {
            let later = std::mem::take(&mut image.mappings);
            for mapped in found.map(Arc::new).chain(later.iter().cloned()) {
                dropped += image.push(&mapped);
            }
        }
        image.asked = Some(untold);
        self.counts.dropped_mappings += dropped;
        self.counts.read += 1;
    }

    /// What it has now is not asked for again.
    fn refused(&mut self, pid: u32, born: u64) {
        if !self.processes.contains_key(&pid) {
            self.begin(pid, Image::new(born, None));
        }
        let untold = self.untold();
        let process = self.processes.get_mut(&pid);
        if let Some(image) = process.and_then(|process| process.images.last_mut()) {
            image.asked = Some(untold);
            self.counts.refused += 1;
        }
    }
}

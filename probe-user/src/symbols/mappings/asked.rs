//! What procfs says of processes that the kernel's records did not tell of, or not all.

use std::sync::Arc;

use super::{
    super::maps,
    Mappings,
    process::{Image, Mapped, push},
};
use crate::machine::process;

impl Mappings {
    /// Asks procfs for a process that records did not tell of, or not all.
    pub(super) fn ask(&mut self, pid: u32, time: Option<u64>) {
        let lost = self.counts.lost;
        let last = self
            .processes
            .get(&pid)
            .and_then(|process| process.images.last());
        if last.is_some_and(|last| last.asked == Some(lost)) {
            return;
        }
        let Some(born) = process::born(&self.proc, pid) else {
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
            self.begin(
                pid,
                Image {
                    since: born,
                    mappings: Arc::default(),
                    asked: None,
                },
            );
        }
        let lost = self.counts.lost;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.parent = process.parent.or(parent);
        let Some(image) = process.images.last_mut() else {
            return;
        };
        let healed = image.asked.is_some();
        let since = image.mappings.last().map_or(image.since, |last| last.since);
        let found = lines.into_iter().filter(|line| line.mapping.executable);
        let found = found.map(|line| Mapped {
            start: line.mapping.start,
            end: line.mapping.end,
            offset: line.mapping.offset,
            name: line.name.into(),
            build_id: None,
            inode: (line.inode.number != 0).then_some(line.inode),
            // What was mapped since the last record that was not lost.
            since: if healed { since } else { image.since },
        });
        let mappings = Arc::make_mut(&mut image.mappings);
        let mut dropped = 0;
        if healed {
            for mapped in found {
                // Under another one it is not what is there now.
                let top = { &*mappings }
                    .iter()
                    .rev()
                    .find(|known| known.start < mapped.end && mapped.start < known.end);
                if top.is_none_or(|top| !top.is(&mapped)) {
                    dropped += push(mappings, &Arc::new(mapped));
                }
            }
        } else {
            let later = std::mem::take(mappings);
            for mapped in found.map(Arc::new).chain(later) {
                dropped += push(mappings, &mapped);
            }
        }
        image.asked = Some(lost);
        self.counts.dropped_mappings += dropped;
        self.counts.read += 1;
    }

    /// What it has now is not asked for again.
    fn refused(&mut self, pid: u32, born: u64) {
        if !self.processes.contains_key(&pid) {
            let image = Image {
                since: born,
                mappings: Arc::default(),
                asked: None,
            };
            self.begin(pid, image);
        }
        let process = self.processes.get_mut(&pid);
        if let Some(image) = process.and_then(|process| process.images.last_mut()) {
            image.asked = Some(self.counts.lost);
            self.counts.refused += 1;
        }
    }
}

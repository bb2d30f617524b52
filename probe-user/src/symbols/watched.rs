//! What is known of processes and their files, as the thread that follows them and those who ask
//! for names share it.

use std::path::Path;

use super::{files::Files, mappings::Mappings};
use crate::sys::records::Event;

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) mappings: Mappings,
    pub(super) files: Files,
    /// BPF programs came or went since the kernel's symbols were read.
    pub(super) kernel_changed: bool,
}

impl Watched {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            mappings: Mappings::new(proc),
            files: Files::new(proc),
            kernel_changed: false,
        }
    }

    pub(super) fn learn(&mut self, event: &Event<'_>, time: u64) {
        self.kernel_changed |= matches!(event, Event::KernelCode | Event::Lost(_));
        self.mappings.learn(event, time);
    }

    /// Opens the files that were mapped, while their processes live.
    pub(super) fn keep_new(&mut self) {
        for (pid, mapped) in self.mappings.take_new() {
            self.files.keep(pid, &mapped);
        }
    }
}

//! The mappings and files of processes. The thread that watches processes updates them, and lookups
//! of names read them.

use std::path::Path;

use super::{files::ModuleFiles, mappings::Mappings};
use crate::sys::records::PerfRecord;

#[derive(Debug)]
pub(super) struct WatchedProcesses {
    pub(super) mappings: Mappings,
    pub(super) files: ModuleFiles,
    /// Whether BPF programs or trampolines may have been loaded or removed since the kernel's
    /// symbols were read.
    pub(super) kernel_changed: bool,
}

impl WatchedProcesses {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            mappings: Mappings::new(proc),
            files: ModuleFiles::new(proc),
            kernel_changed: false,
        }
    }

    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>, time: u64) {
        self.kernel_changed |= matches!(event, PerfRecord::KernelCode | PerfRecord::Lost(_));
        self.mappings.on_record(event, time);
    }

    /// Opens newly mapped files while their processes run.
    pub(super) fn open_new_files(&mut self) {
        for (pid, mapped) in self.mappings.take_new() {
            self.files.open(pid, &mapped);
        }
    }
}

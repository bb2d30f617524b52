//! Where an address lies, by name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What an instruction's address means. Names are as files and processes have them: an emitter
/// escapes what a terminal acts on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The function as the source has it; None where the file is stripped, gone or unreadable.
    pub function: Option<Arc<str>>,
    /// The file as its process sees it; or `[kernel.kallsyms]`, a module of the kernel or `[bpf]`
    /// in brackets as kallsyms has them, `[vdso]`, `[jit]` for code without a file, `[unknown]`.
    pub module: Arc<str>,
    /// Of the file, or of the kernel, where it has one.
    pub build_id: Option<Arc<[u8]>>,
    /// Of the address, in bytes: from the beginning of the file, of the kernel, or of the vDSO; the
    /// address itself where nothing is known of it or it has no file.
    pub offset: u64,
}

/// What naming functions could not do, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NameCounts {
    /// Records about processes that the kernel lost, since its rings were full. Processes that live
    /// are read from procfs again.
    pub lost: u64,
    /// Processes whose mappings were read from procfs.
    pub read: u64,
    /// Processes that were forgotten, since there were too many.
    pub dropped_processes: u64,
    /// Mappings that were forgotten, since their process had too many.
    pub dropped_mappings: u64,
    /// Mappings whose file could not be read when it was asked for.
    pub unreadable: u64,
    /// Programs whose mappings the kernel did not let this process read, and such mappings of which
    /// it did not let it read the file.
    pub refused: u64,
    /// Functions of perf map files that were not kept, since there were too many.
    pub dropped_code: u64,
}

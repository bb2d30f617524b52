//! The location of an address in code: function, module and offset.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The location of an instruction. Names are unescaped, as files and processes have them: emitters
/// escape terminal control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeLocation {
    /// The demangled function; None if the file is stripped, gone or unreadable.
    pub function: Option<Arc<str>>,
    /// The file as its process sees it; or `[kernel.kallsyms]`, a module of the kernel or `[bpf]`
    /// in brackets as kallsyms has them, `[vdso]`, `[jit]` for code without a file, `[unknown]`.
    pub module: Arc<str>,
    /// Build id of the file or the kernel, if it has one.
    pub build_id: Option<Arc<[u8]>>,
    /// Offset of the address in bytes from the beginning of the file, the kernel or the vDSO; the
    /// address itself in other modules, or if that offset is unknown.
    pub offset: u64,
}

/// Statistics of symbolization, since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NameCounts {
    /// Records about processes that the kernel lost because its rings were full. Running processes
    /// are read from procfs again.
    pub lost: u64,
    /// Reads of a process's mappings from procfs.
    pub read: u64,
    /// Processes dropped because there were too many.
    pub dropped_processes: u64,
    /// Mappings dropped because their process had too many.
    pub dropped_mappings: u64,
    /// Mappings with a file that could not be read when it was needed.
    pub unreadable: u64,
    /// Processes or mapped files the kernel denied access to.
    pub refused: u64,
    /// Functions of perf map files dropped because there were too many.
    pub dropped_code: u64,
}

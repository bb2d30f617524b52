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

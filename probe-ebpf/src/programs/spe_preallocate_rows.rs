//! `spe_preallocate_rows`: makes a CPU ready to sample.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{
    kernel::Task,
    spe::{
        account, now,
        timeline::{SPE_WITH_TIMELINE, note},
    },
};

/// Before a CPU samples: the first entry of its timeline, and rows at hand for its first chunk.
/// Never attached: user space runs it there once.
#[raw_tracepoint]
fn spe_preallocate_rows(_ctx: RawTracePointContext) -> i32 {
    if SPE_WITH_TIMELINE.load() == 1 {
        note(Task::current(), now());
    }
    account::preallocate_rows();
    0
}

//! `spe_preallocate_rows`: prepares a CPU for SPE sampling.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{
    kernel::Task,
    spe::{
        account, now,
        timeline::{SPE_WITH_TIMELINE, record_switch},
    },
};

/// Records the first entry of a CPU's timeline, and preallocates rows for its first chunk. Never
/// attached: user space runs it once on each CPU, before the CPU samples.
#[raw_tracepoint]
fn spe_preallocate_rows(_ctx: RawTracePointContext) -> i32 {
    if SPE_WITH_TIMELINE.load() == 1 {
        record_switch(Task::current(), now());
    }
    account::preallocate_rows();
    0
}

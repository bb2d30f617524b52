//! `spe_chunk_kprobe`: the end of a chunk of AUX data, by a kprobe.

use aya_ebpf::{macros::kprobe, programs::ProbeContext};

use crate::spe::chunk::chunk;

/// For kernels on which fentry does not attach (arm64 before 6.4).
#[kprobe(function = "perf_aux_output_end")]
fn spe_chunk_kprobe(ctx: ProbeContext) -> u32 {
    if let (Some(handle), Some(size)) = (ctx.arg(0), ctx.arg(1)) {
        chunk(handle, size);
    }
    0
}

//! `spe_chunk`: the end of a chunk of AUX data, by fentry.

use aya_ebpf::{macros::fentry, programs::FEntryContext};

use crate::spe::chunk::chunk;

#[fentry(function = "perf_aux_output_end")]
fn spe_chunk(ctx: FEntryContext) -> i32 {
    chunk(ctx.arg(0), ctx.arg(1));
    0
}

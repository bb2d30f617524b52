//! `marker`: an observed program calls a function of pmuscope.h. The link's cookie is the kind of
//! marker (kernel 5.15). The program may sleep (kernel 6.0), so that every name can be read.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_get_attach_cookie, bpf_ktime_get_ns},
    },
    macros::uprobe,
    programs::ProbeContext,
};
use probe_common::MarkerKind;

use crate::markers::{emit, new_record, observed, read_name};

#[uprobe(sleepable)]
fn marker(ctx: ProbeContext) -> u32 {
    // SAFETY: the helpers have no preconditions but a context.
    let (time, kind) = unsafe { (bpf_ktime_get_ns(), bpf_get_attach_cookie(ctx.as_ptr())) };
    let ids = bpf_get_current_pid_tgid();
    let (tgid, tid) = ((ids >> 32) as u32, ids as u32);
    if !observed(tgid) {
        return 0;
    }
    let mut record = new_record(MarkerKind::Stop, time, tgid, tid);
    if kind != MarkerKind::Stop as u64 {
        record.kind = kind as u32;
        if kind == MarkerKind::Tag as u64 {
            record.start = ctx.arg(1).unwrap_or_default();
            record.end = ctx.arg(2).unwrap_or_default();
        }
        read_name(&mut record, ctx.arg(0).unwrap_or_default());
    }
    emit(&record);
    0
}

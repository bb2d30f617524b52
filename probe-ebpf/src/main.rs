//! pmuscope's eBPF programs, one file each in `programs`. They only sum counts: user space does
//! names, ratios and scaling.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "helpers and map keys have fixed widths, and checked conversions have a panic path"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "aya's macros hand contexts over by value"
)]

mod account;
mod asm;
mod counters;
mod iterator;
mod kernel;
mod kernel_log;
mod lifecycle;
mod markers;
mod owner;
mod programs;
mod sample;
mod slice;
mod spe;
mod state;
mod waits;

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

//! What pmuscope's eBPF programs and its user space share.
#![no_std]
#![forbid(unsafe_code)]

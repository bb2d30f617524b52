//! bpf(2) commands that aya 0.14 does not wrap: a perf event's descriptor as a map value
//! (aya has it from 0.15), batch look-up, and look-up with deletion.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use aya_obj::generated::{bpf_attr, bpf_cmd};

/// Calls bpf(2).
///
/// # Safety
///
/// Every pointer in `attr` is valid for what `command` reads and writes through it.
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: the caller's promise; the size is that of the union.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn zeroed() -> bpf_attr {
    // SAFETY: bpf_attr is a union of plain integers; all zeros is what the kernel wants of unused bytes.
    unsafe { std::mem::zeroed() }
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Puts a perf event into slot `index` of a perf event array; the map keeps the event alive.
pub(crate) fn set_perf_event(
    map: BorrowedFd<'_>,
    index: u32,
    event: BorrowedFd<'_>,
) -> io::Result<()> {
    let value = raw(event);
    let mut attr = zeroed();
    // SAFETY: writing plain integers to the union's fields.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = raw(map);
    element.key = std::ptr::from_ref(&index) as u64;
    element.__bindgen_anon_1.value = std::ptr::from_ref(&value) as u64;
    // SAFETY: key and value are u32s that outlive the call, the sizes that the map has.
    unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Removes a row and returns its last value; None where there is no such row.
///
/// Needs kernel 5.14 for hash maps.
pub(crate) fn take<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    key: &[u64; K],
) -> io::Result<Option<[u64; V]>> {
    let mut value = [0; V];
    let mut attr = zeroed();
    // SAFETY: writing plain integers to the union's fields.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = raw(map);
    element.key = std::ptr::from_ref(key) as u64;
    element.__bindgen_anon_1.value = std::ptr::from_mut(&mut value) as u64;
    // SAFETY: key and value are arrays of the map's sizes (its users define both) that outlive the call.
    match unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM, &mut attr) } {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every row of a hash map, in a few calls (kernel 5.6).
///
/// Rows that are inserted meanwhile may be missing; no row that was there before is.
pub(crate) fn lookup_all<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
) -> io::Result<Vec<([u64; K], [u64; V])>> {
    let mut rows = Vec::new();
    let mut chunk = 4096_usize;
    let mut keys = vec![[0_u64; K]; chunk];
    let mut values = vec![[0_u64; V]; chunk];
    let mut position = 0_u32;
    let mut first = true;
    loop {
        let mut next = 0_u32;
        let mut attr = zeroed();
        // SAFETY: writing plain integers to the union's fields.
        let batch = unsafe { &mut attr.batch };
        batch.map_fd = raw(map);
        batch.in_batch = if first {
            0
        } else {
            std::ptr::from_ref(&position) as u64
        };
        batch.out_batch = std::ptr::from_mut(&mut next) as u64;
        batch.keys = keys.as_mut_ptr() as u64;
        batch.values = values.as_mut_ptr() as u64;
        batch.count = u32::try_from(chunk).unwrap_or(u32::MAX);
        // SAFETY: both buffers hold `chunk` elements of the map's key and value sizes; hash maps
        // keep their position in a u32.
        let result = unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) };
        // SAFETY: reading a plain integer that the kernel wrote.
        let count = unsafe { attr.batch.count } as usize;
        let done = match result {
            Ok(_) => false,
            Err(error) => match error.raw_os_error() {
                // The end of the map; the last rows came with it.
                Some(libc::ENOENT) => true,
                // One bucket holds more rows than the buffer: nothing was read, ask again with more room.
                Some(libc::ENOSPC) => {
                    chunk *= 2;
                    keys.resize(chunk, [0; K]);
                    values.resize(chunk, [0; V]);
                    continue;
                }
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            },
        };
        rows.extend(keys.iter().copied().zip(values.iter().copied()).take(count));
        if done {
            return Ok(rows);
        }
        position = next;
        first = false;
    }
}

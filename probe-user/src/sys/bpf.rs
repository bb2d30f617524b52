//! bpf(2) commands that aya 0.14 does not wrap: a perf event's descriptor as a map value
//! (aya has it from 0.15), batch look-up, and look-up with deletion.
//!
//! A call on a hash map or queue may fail to get the map's lock: if its CPU is already in a call on
//! the same map (EBUSY), and since Linux 6.15 after a quarter of a second or on a deadlock
//! (ETIMEDOUT, EDEADLK: rqspinlock). Such a call is retried.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use aya::Pod;
use aya_obj::generated::{BPF_NOEXIST, bpf_attach_type, bpf_attr, bpf_cmd, bpf_prog_info};

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

/// Maximum number of attempts per call: eight seconds if each waits a quarter of a second for a
/// lock.
const TRIES: u32 = 32;

/// Number of retries.
static RETRIES: AtomicU64 = AtomicU64::new(0);

/// Number of times that this process retried a map call because the map was busy.
pub(crate) fn retries() -> u64 {
    RETRIES.load(Ordering::Relaxed)
}

/// Retries a map call while the map is busy.
pub(crate) fn retry_busy<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_busy = |error: &io::Error| {
        let errno = error.raw_os_error();
        matches!(errno, Some(libc::EBUSY | libc::ETIMEDOUT | libc::EDEADLK))
    };
    for _ in 1..TRIES {
        match call() {
            Err(error) if is_busy(&error) => {
                RETRIES.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
            result => return result,
        }
    }
    call().map_err(|error| {
        if !is_busy(&error) {
            return error;
        }
        let text = format!(
            "its lock was held at each of {TRIES} tries ({error}); start pmuscope again, and \
             please \
             report it if that does not help"
        );
        io::Error::new(error.kind(), text)
    })
}

fn zeroed() -> bpf_attr {
    // SAFETY: bpf_attr is a union of plain integers; the kernel requires unused bytes to be zero.
    unsafe { std::mem::zeroed() }
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Number of runs of a program that the kernel skipped because the program was already running on
/// that CPU (kernel 5.12).
pub(crate) fn skipped_runs(program: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: the structure is plain integers; zeros request nothing.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut attr = zeroed();
    // SAFETY: writing plain integers to the union's fields.
    let request = unsafe { &mut attr.info };
    request.bpf_fd = raw(program);
    request.info_len = u32::try_from(size_of::<bpf_prog_info>()).unwrap_or_default();
    request.info = std::ptr::from_mut(&mut info) as u64;
    // SAFETY: `info` is valid for its length until the call returns.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info.recursion_misses)
}

/// Puts a perf event into slot `index` of a perf event array; the map keeps the event alive.
pub(crate) fn set_perf_event(
    map: BorrowedFd<'_>,
    index: u32,
    event: BorrowedFd<'_>,
) -> io::Result<()> {
    put(map, &index, &raw(event))
}

/// Attaches a program to the overflows of a perf event until the link is closed. The program can
/// read `cookie` (kernel 5.15).
pub(crate) fn link_event(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = raw(program);
    attr.link_create.__bindgen_anon_2.target_fd = raw(event);
    attr.link_create.attach_type = bpf_attach_type::BPF_PERF_EVENT as u32;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    // SAFETY: the attributes hold no pointer.
    let link = unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr) }?;
    let link = RawFd::try_from(link).map_err(io::Error::other)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// The attributes of a call about one element of a map.
fn element(map: BorrowedFd<'_>, key: u64, value: u64) -> bpf_attr {
    let mut attr = zeroed();
    // SAFETY: writing plain integers to the union's fields.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = raw(map);
    element.key = key;
    element.__bindgen_anon_1.value = value;
    attr
}

/// A value of zeros, which the kernel overwrites.
fn blank<T: Pod>() -> T {
    // SAFETY: plain old data, for which all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

/// Adds a row to a hash map, or replaces it.
pub(crate) fn put<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    let (key, value) = (std::ptr::from_ref(key), std::ptr::from_ref(value));
    let mut attr = element(map, key as u64, value as u64);
    // SAFETY: key and value are of the map's types (the callers ensure that) and outlive the call.
    retry_busy(|| unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) }).map(drop)
}

/// Adds a row to a hash map unless the map has a row with that key.
pub(crate) fn add<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    let (key, value) = (std::ptr::from_ref(key), std::ptr::from_ref(value));
    let mut attr = element(map, key as u64, value as u64);
    attr.__bindgen_anon_2.flags = BPF_NOEXIST.into();
    // SAFETY: key and value are of the map's types (the callers ensure that) and outlive the call.
    match retry_busy(|| unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) }) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result.map(drop),
    }
}

/// A row of a hash map; None if there is no such row.
pub(crate) fn lookup<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<Option<V>> {
    fetch(bpf_cmd::BPF_MAP_LOOKUP_ELEM, map, Some(key))
}

/// Removes a row and returns its last value; None if there is no such row (kernel 5.14).
pub(crate) fn take<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<Option<V>> {
    fetch(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM, map, Some(key))
}

/// Removes the first element of a queue; None if it is empty.
pub(crate) fn pop<V: Pod>(map: BorrowedFd<'_>) -> io::Result<Option<V>> {
    fetch::<u64, V>(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_ELEM, map, None)
}

fn fetch<K: Pod, V: Pod>(
    command: bpf_cmd,
    map: BorrowedFd<'_>,
    key: Option<&K>,
) -> io::Result<Option<V>> {
    let mut value = blank();
    let key = key.map_or(0, |key| std::ptr::from_ref(key) as u64);
    let mut attr = element(map, key, std::ptr::from_mut::<V>(&mut value) as u64);
    // SAFETY: key and value are of the map's types (the callers ensure that) and outlive the call.
    // A queue has no key.
    match retry_busy(|| unsafe { bpf(command, &mut attr) }) {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every row of a hash map, in a few calls (kernel 5.6).
///
/// All rows from before the call are returned; rows that are inserted meanwhile may be missing.
/// `row` converts key and value while the CPU has them in its cache.
pub(crate) fn lookup_all<K: Pod, V: Pod, R>(
    map: BorrowedFd<'_>,
    row: impl Fn(&K, &V) -> R,
) -> io::Result<Vec<R>> {
    // SAFETY: the attributes are those of `batches`, whose pointers are valid.
    let call = |attr: &mut bpf_attr| unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, attr) };
    batches(raw(map), row, call)
}

/// [`lookup_all`] with a `call` that behaves as the kernel's `BPF_MAP_LOOKUP_BATCH`.
fn batches<K: Pod, V: Pod, R>(
    map: u32,
    row: impl Fn(&K, &V) -> R,
    mut call: impl FnMut(&mut bpf_attr) -> io::Result<i64>,
) -> io::Result<Vec<R>> {
    let mut rows = Vec::new();
    let mut chunk = 4096_usize;
    let mut keys = vec![blank::<K>(); chunk];
    let mut values = vec![blank::<V>(); chunk];
    let mut position = 0_u32;
    let mut is_first = true;
    loop {
        let mut next = 0_u32;
        let mut attr = zeroed();
        let result = retry_busy(|| {
            // A retry reads again from the same position.
            // SAFETY: writing plain integers to the union's fields.
            let batch = unsafe { &mut attr.batch };
            batch.map_fd = map;
            batch.in_batch = if is_first {
                0
            } else {
                std::ptr::from_ref(&position) as u64
            };
            batch.out_batch = std::ptr::from_mut(&mut next) as u64;
            // Both buffers hold `chunk` elements of the map's key and value sizes; hash maps keep
            // their position in a u32.
            batch.keys = keys.as_mut_ptr() as u64;
            batch.values = values.as_mut_ptr() as u64;
            batch.count = u32::try_from(chunk).unwrap_or(u32::MAX);
            call(&mut attr)
        });
        // SAFETY: reading a plain integer that the kernel wrote.
        let count = unsafe { attr.batch.count } as usize;
        let done = match result {
            Ok(_) => false,
            Err(error) => match error.raw_os_error() {
                // The end of the map: this call returned the last rows.
                Some(libc::ENOENT) => true,
                // A bucket has more rows than the buffer, so nothing was read. Retries with a
                // larger buffer.
                Some(libc::ENOSPC) => {
                    chunk *= 2;
                    keys.resize(chunk, blank());
                    values.resize(chunk, blank());
                    continue;
                }
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            },
        };
        let pairs = keys.iter().zip(&values).take(count);
        rows.extend(pairs.map(|(key, value)| row(key, value)));
        if done {
            return Ok(rows);
        }
        position = next;
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUSY: [i32; 3] = [libc::EBUSY, libc::ETIMEDOUT, libc::EDEADLK];

    #[test]
    fn a_call_on_a_busy_map_is_retried() {
        for errno in BUSY {
            let mut attempts_left = 5;
            let before = retries();
            let result = retry_busy(|| {
                attempts_left -= 1;
                match attempts_left {
                    0 => Ok("read"),
                    _ => Err(io::Error::from_raw_os_error(errno)),
                }
            });
            assert_eq!(result.unwrap(), "read");
            // Other tests of this process may have added retries.
            assert!(retries() >= before + 4);
        }
    }

    #[test]
    fn a_map_that_stays_busy_is_reported() {
        for errno in BUSY {
            let mut calls = 0;
            let error = retry_busy(|| -> io::Result<()> {
                calls += 1;
                Err(io::Error::from_raw_os_error(errno))
            });
            let text = error.unwrap_err().to_string();
            assert_eq!(calls, TRIES);
            assert!(
                text.starts_with("its lock was held at each of 32 tries"),
                "{text}"
            );
            assert!(text.contains("start pmuscope again"), "{text}");
        }
        // A call with another error is not retried.
        let mut calls = 0;
        let error = retry_busy(|| -> io::Result<()> {
            calls += 1;
            Err(io::Error::from_raw_os_error(libc::E2BIG))
        });
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::E2BIG));
        assert_eq!(calls, 1);
    }

    /// A hash map that is read in batches as by the kernel: whole buckets, as many as fit.
    struct Buckets<'a> {
        buckets: &'a [Vec<u64>],
        /// For each call: after how many buckets a lock is refused, and with which errno; None:
        /// never.
        refusals: Vec<Option<(usize, i32)>>,
    }

    impl Buckets<'_> {
        fn call(&mut self, attr: &mut bpf_attr) -> io::Result<i64> {
            let mut refusal = self.refusals.pop().flatten();
            // SAFETY: the attributes are those of `batches`: the pointers are valid, the buffers
            // hold `count` elements, and `in_batch` is null or the position.
            unsafe {
                let batch = &mut attr.batch;
                let (capacity, mut total) = (batch.count, 0);
                batch.count = 0;
                let from = (batch.in_batch as *const u32).as_ref();
                let mut at = from.map_or(0, |from| *from as usize);
                let result = loop {
                    let Some(bucket) = self.buckets.get(at) else {
                        break Err(io::Error::from_raw_os_error(libc::ENOENT));
                    };
                    if let Some((after, errno)) = &mut refusal {
                        if *after == 0 {
                            break Err(io::Error::from_raw_os_error(*errno));
                        }
                        *after -= 1;
                    }
                    if total as usize + bucket.len() > capacity as usize {
                        break match total {
                            0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                            _ => Ok(0),
                        };
                    }
                    for key in bucket {
                        (batch.keys as *mut u64).add(total as usize).write(*key);
                        (batch.values as *mut u64).add(total as usize).write(!key);
                        total += 1;
                    }
                    at += 1;
                };
                batch.count = total;
                (batch.out_batch as *mut u32).write(u32::try_from(at).unwrap());
                result
            }
        }
    }

    proptest! {
        /// Each row is read once, whichever locks are refused and however many rows a bucket has.
        #[test]
        fn each_row_is_read_once_despite_refused_locks(
            sizes in prop::collection::vec(0..3000_usize, 1..12),
            refusals in prop::collection::vec(
                prop::option::of((0..6_usize, prop::sample::select(&BUSY))),
                0..20,
            ),
        ) {
            let mut keys = 0_u64..;
            let buckets: Vec<Vec<u64>> =
                sizes.iter().map(|size| keys.by_ref().take(*size).collect()).collect();
            let mut map = Buckets { buckets: &buckets, refusals };
            let row = |key: &u64, value: &u64| (*key, *value);
            let rows = batches(0, row, |attr| map.call(attr)).unwrap();
            let expected: Vec<_> = buckets.concat().iter().map(|key| (*key, !key)).collect();
            prop_assert_eq!(rows, expected);
        }
    }
}

//! The NUMA memory policy of a thread.

use std::io;

/// Lets the kernel allocate this thread's pages on these NUMA nodes only.
///
/// # Errors
///
/// The system call fails: a node does not exist or has no memory (`EINVAL`), a seccomp filter
/// forbids the call (`EPERM`), or the kernel has no NUMA (`ENOSYS`).
pub(crate) fn bind_to_nodes(nodes: &[u32]) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let words = nodes
        .iter()
        .max()
        .map_or(0, |last| *last as usize / BITS + 1);
    let mut mask: Vec<libc::c_ulong> = vec![0; words];
    for node in nodes {
        mask[*node as usize / BITS] |= 1 << (*node as usize % BITS);
    }
    // The kernel reads `bits - 1` bits.
    let bits = words * BITS + 1;
    // SAFETY: `mask` has `bits - 1` bits, and the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_BIND,
            mask.as_ptr(),
            bits,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn only_nodes_with_memory_are_accepted() {
        // A thread of its own: the policy stays until the thread ends.
        let bound = thread::spawn(|| {
            let missing = bind_to_nodes(&[1000]).unwrap_err();
            (bind_to_nodes(&[0]), missing.kind())
        });
        let (node_0, missing) = bound.join().unwrap();
        if missing == io::ErrorKind::Unsupported {
            println!("skipped: this kernel has no NUMA");
            return;
        }
        node_0.unwrap();
        assert_eq!(missing, io::ErrorKind::InvalidInput);
    }
}

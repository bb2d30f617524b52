//! The LIFECYCLE ring: creation and removal of cgroups, exits of processes, and other events that
//! cannot wait for a pull. From its records even a cgroup that lived for 50 ms gets a name.

/// Longest path in a record; the kernel's own `cgroup_mkdir` event cuts paths at 1,024 bytes too.
pub const LIFECYCLE_PATH: usize = 1024;

/// Bytes before the path in a record.
pub const LIFECYCLE_HEADER: usize = 16;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LifecycleKind {
    /// A cgroup of the default hierarchy was created; the text is its path from the hierarchy's
    /// root.
    CgroupMade = 0,
    /// A cgroup of the default hierarchy was removed; no text.
    CgroupRemoved = 1,
    /// The last thread of a process exited; the id is the tgid, the text the command name.
    ProcessExited = 2,
    /// The first switch on a CPU that the `sched_switch` program did not see; the id is the CPU, no
    /// text.
    SwitchMissed = 3,
    /// A CPU found the map of counts full; the id is the CPU, no text. One in
    /// [`Self::FULL_EVERY`] such events is reported.
    RowsFull = 4,
}

impl LifecycleKind {
    /// A CPU that finds the map full reports that once in this many times. It tries to insert at
    /// most a hundred times a second.
    pub const FULL_EVERY: u64 = 4;
}

/// A record of the ring; a sent record ends after `len` bytes of text.
#[repr(C)]
pub struct LifecycleRecord {
    /// cgroup id, tgid or CPU.
    pub id: u64,
    /// A [`LifecycleKind`].
    pub kind: u32,
    /// Bytes of text that follow.
    pub len: u32,
    /// The text, not terminated.
    pub text: [u8; LIFECYCLE_PATH],
}

impl LifecycleRecord {
    /// Kind, id and text of the record that the kernel wrote as `bytes`; None for an invalid one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(LifecycleKind, u64, &[u8])> {
        let (id, rest) = bytes.split_first_chunk::<8>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let (len, text) = rest.split_first_chunk::<4>()?;
        let kind = match u32::from_ne_bytes(*kind) {
            0 => LifecycleKind::CgroupMade,
            1 => LifecycleKind::CgroupRemoved,
            2 => LifecycleKind::ProcessExited,
            3 => LifecycleKind::SwitchMissed,
            4 => LifecycleKind::RowsFull,
            _ => return None,
        };
        let text = text.get(..u32::from_ne_bytes(*len) as usize)?;
        Some((kind, u64::from_ne_bytes(*id), text))
    }
}

const _: () = assert!(size_of::<LifecycleRecord>() == LIFECYCLE_HEADER + LIFECYCLE_PATH);

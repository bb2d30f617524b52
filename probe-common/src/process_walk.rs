//! A walk over all processes of the machine: the `WALK` map has its request, the `PROCESSES` map
//! its results.

use crate::pod::pod;

pod! {
    /// A process that user space asks about.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WalkedProcess {
        /// Number ([`ProcessWalk::number`]) of the last walk that found the process alive or still
        /// exiting; 0: none.
        pub last_walk: u64,
        /// Threads that had not begun to exit at that walk; 0 while the process ends.
        pub live: u64,
        /// Its command name at that walk, up to the first NUL.
        pub comm: [u8; 16],
    }
}

impl WalkedProcess {
    /// Its command name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        let end = self.comm.iter().position(|byte| *byte == 0);
        &self.comm[..end.unwrap_or(self.comm.len())]
    }
}

pod! {
    /// The state of a walk over all processes of all pid namespaces.
    ///
    /// User space fills in the first three fields, the program all others.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ProcessWalk {
        /// Number of the walk, from 1.
        pub number: u64,
        /// [`Self::SPE_TASKS`] or [`Self::WAITS`]: the map that every thread is added to; 0:
        /// threads are not visited.
        pub thread_map: u64,
        /// A process id to look for, in the pid namespace of the reader; 0: none.
        pub wanted: u64,
        /// Id of the `wanted` process in the initial pid namespace; 0: not found.
        pub found: u64,
        /// 1 once every process was visited.
        pub complete: u64,
        /// Address of the reader's pid namespace.
        pub namespace: u64,
        /// Depth of the reader's pid namespace.
        pub level: u64,
        /// The list entry at which the walk began.
        pub first: u64,
        /// The next process's list entry.
        pub node: u64,
        /// Head of the list of the current process's threads.
        pub head: u64,
        /// The next thread's list entry; `head` after the last.
        pub thread: u64,
        /// Processes visited.
        pub visited: u64,
    }
}

impl ProcessWalk {
    /// Threads are added to SPE's task map.
    pub const SPE_TASKS: u64 = 1;
    /// Threads get a [`WaitTask`](crate::WaitTask).
    pub const WAITS: u64 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_survives_the_conversion_to_words() {
        let walk = ProcessWalk {
            number: 7,
            thread_map: ProcessWalk::SPE_TASKS,
            wanted: 42,
            ..ProcessWalk::default()
        };
        assert_eq!(ProcessWalk::from_words(&walk.to_words()), walk);
        let words = core::array::from_fn(|at| at as u64);
        assert_eq!(ProcessWalk::from_words(&words).visited, 11);
    }

    #[test]
    fn a_name_ends_at_its_nul() {
        let words = |name: &[u8; 16]| {
            let [first, second] = [&name[..8], &name[8..]];
            [first, second].map(|half| u64::from_ne_bytes(half.try_into().unwrap()))
        };
        let named = |name| {
            let [first, second] = words(name);
            WalkedProcess::from_words(&[1, 1, first, second])
        };
        assert_eq!(named(b"load\0\0\0\0\0\0\0\0\0\0\0\0").name(), b"load");
        assert_eq!(named(b"sixteen letters!").name(), b"sixteen letters!");
        assert_eq!(WalkedProcess::default().name(), b"");
    }
}

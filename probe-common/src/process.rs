//! The questions to a walk over all processes of the machine, and its answers: the `WALK` and
//! `PROCESSES` maps.

use crate::words::words;

words! {
    /// A process that user space asks about.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Process {
        /// Number of the last walk that met it before its last thread had ended; 0: none did.
        pub met: u64,
        /// Its threads that had not begun to exit then: 0 while it ends.
        pub live: u64,
        /// Its command name then, up to the first NUL.
        pub comm: [u8; 16],
    }
}

impl Process {
    /// Its command name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        let end = self.comm.iter().position(|byte| *byte == 0);
        &self.comm[..end.unwrap_or(self.comm.len())]
    }
}

words! {
    /// A walk over all processes, whatever pid namespace they are in.
    ///
    /// User space fills the first three, the program the rest.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Walk {
        /// Its number, from 1.
        pub number: u64,
        /// 1: every thread goes into the task map of SPE.
        pub threads: u64,
        /// A process id to look for, in the pid namespace of the reader; 0: none.
        pub wanted: u64,
        /// That process' id in the initial pid namespace; 0: there is none.
        pub found: u64,
        /// 1 once every process was visited.
        pub complete: u64,
        /// The pid namespace of the reader: its address, with its depth in `level`.
        pub namespace: u64,
        /// See [`Self::namespace`].
        pub level: u64,
        /// The list entry that the walk began at.
        pub first: u64,
        /// The next process' list entry.
        pub node: u64,
        /// Head of the list of the current process' threads.
        pub head: u64,
        /// The next thread's list entry; `head` after the last.
        pub thread: u64,
        /// Processes visited.
        pub visited: u64,
    }
}

impl Walk {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_read_as_it_was_begun() {
        let walk = Walk {
            number: 7,
            threads: 1,
            wanted: 42,
            ..Walk::default()
        };
        assert_eq!(Walk::from_words(&walk.to_words()), walk);
        let words = core::array::from_fn(|at| at as u64);
        assert_eq!(Walk::from_words(&words).visited, 11);
    }

    #[test]
    fn a_name_ends_at_its_nul() {
        let words = |name: &[u8; 16]| {
            let [first, second] = [&name[..8], &name[8..]];
            [first, second].map(|half| u64::from_ne_bytes(half.try_into().unwrap()))
        };
        let named = |name| {
            let [first, second] = words(name);
            Process::from_words(&[1, 1, first, second])
        };
        assert_eq!(named(b"load\0\0\0\0\0\0\0\0\0\0\0\0").name(), b"load");
        assert_eq!(named(b"sixteen letters!").name(), b"sixteen letters!");
        assert_eq!(Process::default().name(), b"");
    }
}

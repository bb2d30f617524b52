//! Names the functions that were sampled.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use probe_common::sample::{AddressKey, AddressRow};

use crate::{
    machine::Machine,
    snapshot::{CodeKey, CodeLocation, NameCounts},
    symbols::{AddressOwner, Symbols},
    sys::clock::thread_time,
};

/// Approximate limit of the CPU time of a round of naming, for which a pull waits. A file or a map
/// of code that is being read when the time is over is still read up to its own limit.
const ROUND_TIME: Duration = Duration::from_millis(500);

/// Maximum number of addresses that wait for the next round.
const MAX_WAITING: usize = 65_536;

/// Names sampled instructions, and keeps their names.
pub(crate) struct FunctionNames {
    symbols: Symbols,
    /// Whether this process sees processes under the same ids as the programs do.
    sees_processes: bool,
    /// CPUs on which the mappings of processes are watched.
    cpus: BTreeSet<u32>,
    /// Whether some of `cpus` could not be watched: then each round retries them.
    has_unfollowed: bool,
    pub(crate) codes: CodeNames,
    /// `CLOCK_MONOTONIC` nanoseconds of the last round.
    last: u64,
    /// Code that a round had no time to name, with the time of its first sample.
    waiting: HashMap<CodeKey, u64>,
    /// Limit of a round's CPU time.
    round_time: Duration,
    /// Whether the user was warned about refusals of the kernel.
    warned: bool,
}

impl FunctionNames {
    /// Watches the mappings of processes on these CPUs.
    pub(crate) fn start(machine: &Machine, cpus: &[u32]) -> Self {
        let mut names = Self {
            symbols: Symbols::new(machine.roots()),
            sees_processes: machine.is_in_initial_pid_namespace(),
            cpus: cpus.iter().copied().collect(),
            has_unfollowed: false,
            codes: CodeNames::default(),
            last: 0,
            waiting: HashMap::new(),
            round_time: ROUND_TIME,
            warned: false,
        };
        if !names.sees_processes {
            tracing::warn!(
                "functions of processes have no names: pmuscope is in a pid namespace of its own, \
                 where processes have other numbers; run it in the host's (--pid=host, hostPID)"
            );
        }
        names.follow_all();
        if let Some(why) = names.symbols.kernel_hidden() {
            tracing::warn!("{why}");
        }
        names
    }

    /// Also watches this CPU.
    pub(crate) fn follow(&mut self, cpu: u32) {
        if self.cpus.insert(cpu) {
            self.follow_all();
        }
    }

    /// Stops watching all CPUs for which `keep` is false.
    pub(crate) fn retain_cpus(&mut self, keep: impl Fn(u32) -> bool) {
        let before = self.cpus.len();
        self.cpus.retain(|cpu| keep(*cpu));
        if self.cpus.len() != before {
            self.follow_all();
        }
    }

    fn follow_all(&mut self) {
        if !self.sees_processes {
            return;
        }
        let cpus: Vec<u32> = self.cpus.iter().copied().collect();
        let followed = self.symbols.follow(&cpus);
        let was_reported = std::mem::replace(&mut self.has_unfollowed, followed.is_err());
        if let Some(error) = followed.err().filter(|_| !was_reported) {
            tracing::warn!("{error}");
        }
    }

    /// Names the instructions without a name, at the time `now` of the programs' clock. Returns for
    /// each address the number of its code (the third part of a [`CodeKey`]). The number is 0 for
    /// data pages, and for code of processes if this process sees them under other ids.
    pub(crate) fn name(&mut self, addresses: &[(AddressKey, AddressRow)], now: u64) -> Vec<u64> {
        if self.has_unfollowed {
            self.follow_all();
        }
        self.symbols.catch_up();
        let began = thread_time();
        // Waiting addresses come first: otherwise new addresses could take the time of each round.
        self.name_waiting(1, began, self.round_time / 2);
        let mut image_of = |(key, row): &(AddressKey, AddressRow)| {
            if key.page != 0 {
                return 0;
            }
            let (tgid, space) = match AddressKey::is_kernel(key.address) {
                true => (0, AddressOwner::Kernel),
                false => (key.tgid, AddressOwner::Process(key.tgid)),
            };
            if tgid != 0 && !self.sees_processes {
                return 0;
            }
            let image = self.symbols.code(space, key.address, Some(row.first));
            self.name_one(
                (tgid, key.address, image),
                row.first,
                began,
                self.round_time,
            )
        };
        // Addresses with the most samples come first.
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(addresses[*at].1.samples));
        let mut images = vec![0; addresses.len()];
        for at in order {
            images[at] = image_of(&addresses[at]);
        }
        self.name_waiting(0, began, self.round_time);
        // Mappings stay as long as waiting addresses need them.
        let oldest = self.waiting.values().min();
        let until = oldest.map_or(self.last, |oldest| self.last.min(*oldest));
        self.symbols.end_round(until);
        self.last = now;
        if self.counts().refused > 0 && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                "functions of some processes have no names: the kernel does not let pmuscope read \
                 what they have mapped (/proc/PID/maps and root): run it as root or with \
                 CAP_SYS_PTRACE"
            );
        }
        images
    }

    /// Counts of addresses and processes that could not be named.
    pub(crate) fn counts(&self) -> NameCounts {
        self.symbols.counts()
    }

    /// Names waiting addresses, the oldest first: the first `at_least` in any case, and further
    /// ones until this round has taken `limit`.
    fn name_waiting(&mut self, at_least: usize, began: Duration, limit: Duration) {
        let mut waited: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        waited.sort_unstable_by_key(|(_, first)| *first);
        for (at, (code, first)) in waited.into_iter().enumerate() {
            let limit = if at < at_least { Duration::MAX } else { limit };
            self.name_one(code, first, began, limit);
        }
    }

    /// Names the code at an address, which was first sampled at `first`, unless the round has taken
    /// `limit` already. Returns the number of the code.
    fn name_one(&mut self, code: CodeKey, first: u64, began: Duration, limit: Duration) -> u64 {
        if self.codes.is_final(code) {
            return self.codes.number(code);
        }
        if thread_time().saturating_sub(began) >= limit {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.insert(code, first);
            }
            return self.codes.number(code);
        }
        let (tgid, address, _) = code;
        let space = match tgid {
            0 => AddressOwner::Kernel,
            process => AddressOwner::Process(process),
        };
        let name = || self.symbols.name(space, address, Some(first));
        self.codes.name(code, name)
    }
}

/// The functions at each address. An address can have several functions in succession.
#[derive(Debug, Default)]
pub(crate) struct CodeNames {
    pub(crate) places: HashMap<CodeKey, CodeLocation>,
    /// The current number of the code at an address, if it replaced other code of the same program.
    replaced: HashMap<CodeKey, u64>,
}

impl CodeNames {
    /// Names an address, unless its name is final. Returns the number of its current code: the
    /// number of the program, or a new one if a compiler or the kernel has put another function at
    /// the address since.
    fn name(&mut self, program: CodeKey, name: impl FnOnce() -> CodeLocation) -> u64 {
        let (tgid, address, _) = program;
        let image = self.number(program);
        let key = (tgid, address, image);
        let Some(current) = self.places.get_mut(&key) else {
            self.places.insert(key, name());
            return image;
        };
        if is_final(current) {
            return image;
        }
        let now = name();
        let is_same = (&now.function, &now.module) == (&current.function, &current.module);
        if is_same || &*now.module == UNKNOWN {
            // The code did not change, or the process has ended.
            return image;
        }
        if current.function.is_none() {
            // The file can be read now, or a perf map file has a name for the code.
            *current = now;
            return image;
        }
        let new_image = image + 1;
        self.replaced.insert(program, new_image);
        self.places.insert((tgid, address, new_image), now);
        new_image
    }

    /// The number of the current code of a program at an address.
    fn number(&self, program: CodeKey) -> u64 {
        self.replaced.get(&program).copied().unwrap_or(program.2)
    }

    /// Whether the name of an address is final.
    fn is_final(&self, program: CodeKey) -> bool {
        let key = (program.0, program.1, self.number(program));
        self.places.get(&key).is_some_and(is_final)
    }

    /// Removes the names of all addresses except those in `keep`.
    pub(crate) fn retain(&mut self, keep: &HashSet<CodeKey>) {
        self.places.retain(|place, _| keep.contains(place));
        let places = &self.places;
        self.replaced
            .retain(|(tgid, address, _), image| places.contains_key(&(*tgid, *address, *image)));
    }
}

/// The module of an unknown address.
const UNKNOWN: &str = "[unknown]";

/// Whether a name is final as long as the process executes the same program. A name is not final if
/// its function may be found later, or if it is of JIT-compiled code, a kernel module or a BPF
/// program.
fn is_final(place: &CodeLocation) -> bool {
    let module = &*place.module;
    let is_unchanging =
        !module.starts_with('[') || ["[kernel.kallsyms]", "[vdso]"].contains(&module);
    is_unchanging && place.function.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(function: Option<&str>, module: &str) -> CodeLocation {
        CodeLocation {
            function: function.map(Into::into),
            module: module.into(),
            build_id: None,
            offset: 5,
        }
    }

    /// A function of this test to be named.
    #[inline(never)]
    extern "C" fn known() {
        std::hint::black_box(());
    }

    #[test]
    fn addresses_beyond_a_rounds_time_are_named_in_the_next() {
        let mut names = FunctionNames::start(&Machine::this(), &[]);
        names.sees_processes = true;
        names.round_time = Duration::ZERO;
        let moment = || crate::sys::clock::nanos(crate::sys::clock::now());
        let sample = |address: u64| {
            let key = AddressKey {
                cgroup: probe_common::CgroupId(7),
                address,
                tgid: std::process::id(),
                event: 0,
                page: 0,
                cpu: 0,
                generation: 1,
            };
            let row = AddressRow {
                samples: 1,
                periods: 1,
                first: moment(),
                ..AddressRow::ZERO
            };
            (key, row)
        };
        let address = known as *const () as u64;
        let pid = std::process::id();
        let image = names.name(&[sample(address)], moment())[0];
        assert!(names.codes.places.is_empty());
        // New addresses come with each round.
        let later: Vec<_> = (1..100).map(|at| sample(address + at)).collect();
        names.name(&later, moment());
        assert_eq!(names.codes.places.len(), 1);
        let place = &names.codes.places[&(pid, address, image)];
        let function = place.function.as_deref();
        assert!(
            function.is_some_and(|name| name.ends_with("known")),
            "{place:?}"
        );
        assert_eq!(names.waiting.len(), later.len());
        names.round_time = ROUND_TIME * 100;
        names.name(&[], moment());
        assert!(names.waiting.is_empty());
    }

    #[test]
    fn another_program_at_an_address_has_another_name() {
        let mut codes = CodeNames::default();
        let [first, second] = [(7, 0x1000, 20), (7, 0x1000, 60)];
        assert_eq!(codes.name(first, || place(Some("pa"), "/bin/a")), 20);
        assert_eq!(codes.name(second, || place(Some("pb"), "/bin/b")), 60);
        // Late samples of the old program keep its name.
        let no_lookup = || -> CodeLocation { unreachable!("it has its name") };
        assert_eq!(codes.name(first, no_lookup), 20);
        assert_eq!(codes.places[&first].function.as_deref(), Some("pa"));
        assert_eq!(codes.places[&second].function.as_deref(), Some("pb"));
    }

    #[test]
    fn an_address_gets_its_name_once_it_is_known() {
        let mut codes = CodeNames::default();
        let key = (7, 0x1000, 20);
        for (place, function) in [
            (place(None, UNKNOWN), None),
            (place(None, "[jit]"), None),
            (place(Some("a"), "[jit]"), Some("a")),
            // The process has ended.
            (place(None, UNKNOWN), Some("a")),
        ] {
            assert_eq!(codes.name(key, || place), 20);
            assert_eq!(codes.places[&key].function.as_deref(), function);
        }
    }

    #[test]
    fn code_that_is_compiled_or_loaded_again_gets_a_new_number() {
        for (tgid, module) in [(7, "[jit]"), (0, "[nft]"), (0, "[bpf]")] {
            let mut codes = CodeNames::default();
            let key = (tgid, 0x1000, 20);
            let mut name = |function| codes.name(key, || place(Some(function), module));
            assert_eq!(
                [name("a"), name("b"), name("b"), name("a")],
                [20, 21, 21, 22]
            );
            let names = [20, 21, 22].map(|at| codes.places[&(tgid, 0x1000, at)].function.clone());
            assert_eq!(names.map(Option::unwrap), ["a", "b", "a"].map(Into::into));
            codes.retain(&[(tgid, 0x1000, 21)].into());
            assert!(codes.replaced.is_empty() && codes.places.len() == 1);
        }
    }
}

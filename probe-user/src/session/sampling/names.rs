//! Names of the functions that samples were in.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use probe_common::sample::{AddressKey, AddressRow};

use crate::{
    machine::Machine,
    snapshot::{CodeKey, NameCounts, Place},
    symbols::{Space, Symbols},
    sys::clock::thread_time,
};

/// The CPU time of a round of names, about: a pull waits for it. A file or a map of code that is
/// read is read to its own bound.
const ROUND: Duration = Duration::from_millis(500);
/// Addresses that wait for the next round at most.
const WAITING: usize = 65_536;

/// Who names addresses, and the names so far.
pub(crate) struct Names {
    symbols: Symbols,
    /// Processes have the same ids here as in the kernel's programs.
    processes: bool,
    cpus: BTreeSet<u32>,
    /// Some of these could not be followed: they are tried again with every round.
    unfollowed: bool,
    pub(crate) codes: Codes,
    /// `CLOCK_MONOTONIC` nanoseconds of the last round.
    last: u64,
    /// What a round had no time for, with the time of its first sample.
    waiting: HashMap<CodeKey, u64>,
    round: Duration,
    /// The user was told of what the kernel refuses.
    told: bool,
}

impl Names {
    /// Follows processes on these CPUs.
    pub(crate) fn start(machine: &Machine, cpus: &[u32]) -> Self {
        let mut names = Self {
            symbols: Symbols::new(machine.roots()),
            processes: machine.is_in_initial_pid_namespace(),
            cpus: cpus.iter().copied().collect(),
            unfollowed: false,
            codes: Codes::default(),
            last: 0,
            waiting: HashMap::new(),
            round: ROUND,
            told: false,
        };
        if !names.processes {
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

    /// Also follows processes on this CPU.
    pub(crate) fn follow(&mut self, cpu: u32) {
        if self.cpus.insert(cpu) {
            self.follow_all();
        }
    }

    /// Follows processes no longer on other CPUs.
    pub(crate) fn keep_cpus(&mut self, keep: impl Fn(u32) -> bool) {
        let before = self.cpus.len();
        self.cpus.retain(|cpu| keep(*cpu));
        if self.cpus.len() != before {
            self.follow_all();
        }
    }

    fn follow_all(&mut self) {
        if !self.processes {
            return;
        }
        let cpus: Vec<u32> = self.cpus.iter().copied().collect();
        let followed = self.symbols.follow(&cpus);
        let known = std::mem::replace(&mut self.unfollowed, followed.is_err());
        if let Some(error) = followed.err().filter(|_| !known) {
            tracing::warn!("{error}");
        }
    }

    /// Names those instructions that have no name yet, at the time `now` of the programs' clock.
    /// Returns which code each is of ([`CodeKey`]); of data pages 0.
    pub(crate) fn name(&mut self, addresses: &[(AddressKey, AddressRow)], now: u64) -> Vec<u64> {
        if self.unfollowed {
            self.follow_all();
        }
        self.symbols.catch_up();
        let began = thread_time();
        // New ones would leave those that wait no time, round after round.
        self.name_waiting(1, began, self.round / 2);
        let mut of = |(key, row): &(AddressKey, AddressRow)| {
            if key.page != 0 {
                return 0;
            }
            let (tgid, space) = match AddressKey::is_kernel(key.address) {
                true => (0, Space::Kernel),
                false => (key.tgid, Space::Process(key.tgid)),
            };
            if tgid != 0 && !self.processes {
                return 0;
            }
            let image = self.symbols.code(space, key.address, Some(row.first));
            self.name_one((tgid, key.address, image), row.first, began, self.round)
        };
        // Those with most samples first.
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(addresses[*at].1.samples));
        let mut images = vec![0; addresses.len()];
        for at in order {
            images[at] = of(&addresses[at]);
        }
        self.name_waiting(0, began, self.round);
        // What waits is asked for yet.
        let oldest = self.waiting.values().min();
        let until = oldest.map_or(self.last, |oldest| self.last.min(*oldest));
        self.symbols.forget(until);
        self.last = now;
        if self.counts().refused > 0 && !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                "functions of some processes have no names: the kernel does not let pmuscope read \
                 what they have mapped (/proc/PID/maps and root): run it as root or with \
                 CAP_SYS_PTRACE"
            );
        }
        images
    }

    /// What it could not do.
    pub(crate) fn counts(&self) -> NameCounts {
        self.symbols.counts()
    }

    /// Names what earlier rounds had no time for, the oldest first: some in any case, more until
    /// this one has taken so long.
    fn name_waiting(&mut self, some: usize, began: Duration, most: Duration) {
        let mut waited: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        waited.sort_unstable_by_key(|(_, first)| *first);
        for (at, (code, first)) in waited.into_iter().enumerate() {
            let most = if at < some { Duration::MAX } else { most };
            self.name_one(code, first, began, most);
        }
    }

    /// Names the code of a program, first sampled at a moment, if the round has not taken so long.
    fn name_one(&mut self, code: CodeKey, first: u64, began: Duration, most: Duration) -> u64 {
        if self.codes.is_settled(code) {
            return self.codes.number(code);
        }
        if thread_time().saturating_sub(began) >= most {
            if self.waiting.len() < WAITING {
                self.waiting.insert(code, first);
            }
            return self.codes.number(code);
        }
        let (tgid, address, _) = code;
        let space = match tgid {
            0 => Space::Kernel,
            process => Space::Process(process),
        };
        let name = || self.symbols.name(space, address, Some(first));
        self.codes.name(code, name)
    }
}

/// What was at each address, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    pub(crate) places: HashMap<CodeKey, Place>,
    /// Of code that took the place of other code of the same program: its number.
    replaced: HashMap<CodeKey, u64>,
}

impl Codes {
    /// Takes the name of an address, unless it is known for good. Returns the number of the code
    /// that is there: that of the program, or another one where a compiler or the kernel has put
    /// another function there since.
    fn name(&mut self, program: CodeKey, name: impl FnOnce() -> Place) -> u64 {
        let (tgid, address, _) = program;
        let image = self.number(program);
        let key = (tgid, address, image);
        let Some(known) = self.places.get_mut(&key) else {
            self.places.insert(key, name());
            return image;
        };
        if is_settled(known) {
            return image;
        }
        let now = name();
        let same = (&now.function, &now.module) == (&known.function, &known.module);
        if same || &*now.module == UNKNOWN {
            // Nothing new, or its process has ended.
            return image;
        }
        if known.function.is_none() {
            // Its file can be read now, or its map has a name for it.
            *known = now;
            return image;
        }
        let next = image + 1;
        self.replaced.insert(program, next);
        self.places.insert((tgid, address, next), now);
        next
    }

    /// The number of the code that a program has at an address now.
    fn number(&self, program: CodeKey) -> u64 {
        self.replaced.get(&program).copied().unwrap_or(program.2)
    }

    /// Whether it needs no name any more.
    fn is_settled(&self, program: CodeKey) -> bool {
        let key = (program.0, program.1, self.number(program));
        self.places.get(&key).is_some_and(is_settled)
    }

    /// Forgets the names of all others.
    pub(crate) fn keep(&mut self, kept: &HashSet<CodeKey>) {
        self.places.retain(|place, _| kept.contains(place));
        let places = &self.places;
        self.replaced
            .retain(|(tgid, address, _), image| places.contains_key(&(*tgid, *address, *image)));
    }
}

/// The module of an address of which nothing is known.
const UNKNOWN: &str = "[unknown]";

/// Whether an address has this name for as long as its process executes the same program: not where
/// a function may be named later, nor in what a compiler makes at run time, a module of the kernel
/// or a BPF program.
fn is_settled(place: &Place) -> bool {
    let module = &*place.module;
    let stays = !module.starts_with('[') || ["[kernel.kallsyms]", "[vdso]"].contains(&module);
    stays && place.function.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(function: Option<&str>, module: &str) -> Place {
        Place {
            function: function.map(Into::into),
            module: module.into(),
            build_id: None,
            offset: 5,
        }
    }

    /// Code of this test.
    #[inline(never)]
    extern "C" fn known() {
        std::hint::black_box(());
    }

    #[test]
    fn what_a_round_has_no_time_for_is_named_in_the_next() {
        let mut names = Names::start(&Machine::this(), &[]);
        names.processes = true;
        names.round = Duration::ZERO;
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
        // New ones come with each round.
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
        names.round = ROUND * 100;
        names.name(&[], moment());
        assert!(names.waiting.is_empty());
    }

    #[test]
    fn another_program_at_an_address_has_another_name() {
        let mut codes = Codes::default();
        let [first, second] = [(7, 0x1000, 20), (7, 0x1000, 60)];
        assert_eq!(codes.name(first, || place(Some("pa"), "/bin/a")), 20);
        assert_eq!(codes.name(second, || place(Some("pb"), "/bin/b")), 60);
        // Samples of the old one that are read late.
        let settled = || -> Place { unreachable!("it has its name") };
        assert_eq!(codes.name(first, settled), 20);
        assert_eq!(codes.places[&first].function.as_deref(), Some("pa"));
        assert_eq!(codes.places[&second].function.as_deref(), Some("pb"));
    }

    #[test]
    fn a_function_that_is_named_late_has_its_name() {
        let mut codes = Codes::default();
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
    fn code_that_is_compiled_anew_or_loaded_anew_is_another_one() {
        for (tgid, module) in [(7, "[jit]"), (0, "[nft]"), (0, "[bpf]")] {
            let mut codes = Codes::default();
            let key = (tgid, 0x1000, 20);
            let mut name = |function| codes.name(key, || place(Some(function), module));
            assert_eq!(
                [name("a"), name("b"), name("b"), name("a")],
                [20, 21, 21, 22]
            );
            let names = [20, 21, 22].map(|at| codes.places[&(tgid, 0x1000, at)].function.clone());
            assert_eq!(names.map(Option::unwrap), ["a", "b", "a"].map(Into::into));
            codes.keep(&[(tgid, 0x1000, 21)].into());
            assert!(codes.replaced.is_empty() && codes.places.len() == 1);
        }
    }
}

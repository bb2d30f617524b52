//! Events to be sampled, in perf's syntax: those of `-e`, with `period=N` or `freq=N` among their
//! terms, and `:p` for precise ones.

use std::collections::HashSet;

use super::{
    Accesses, Counter, Event, EventError, Exclude, Scope, Source, parse_sampled,
    syntax::{self, EventSpec, Head, Item},
};
use crate::machine::{Pmus, terms::Term};
pub use crate::sys::perf::max_sample_rate;

/// Samples per second and CPU where the user does not say: not in step with the timers of the
/// kernel and of programs, which go by round numbers.
pub const DEFAULT_FREQUENCY: u64 = 997;

/// The kernel's least period of its clocks, in ns (`perf_swevent_start_hrtimer`).
const LEAST_CLOCK_PERIOD: u64 = 10_000;

/// AMD's PMU that samples every so many operations.
const IBS: &str = "ibs_op";

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Every so many events.
    Period(u64),
    /// So many times a second: the period follows what is counted.
    Frequency(u64),
}

/// An event that is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledEvent {
    /// As the user wrote it, without what is about sampling.
    pub name: String,
    /// What to open.
    pub counter: Counter,
    /// At which levels nothing is sampled.
    pub exclude: Exclude,
    /// How often.
    pub rate: Rate,
    /// Number of the letters `p`: 0 where the address may be behind the instruction (skid).
    pub precise: u8,
    /// What must lead its group: the kernel refuses the event without.
    pub leader: Option<Counter>,
    /// Whether its samples are memory accesses, and what they stand for.
    pub accesses: Option<Accesses>,
}

/// Why an event cannot be sampled. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The event itself.
    #[error(transparent)]
    Event(#[from] EventError),
    /// More than the programs tell apart.
    #[error("{0} events are to be sampled, and at most {max} can be: leave some out",
        max = probe_common::sample::SAMPLED_EVENTS)]
    TooMany(usize),
    /// The same metric twice.
    #[error(
        "`{0}` is to be sampled twice, and its samples would be of one metric: keep one rate and \
         one precision"
    )]
    Twice(String),
    /// Groups are not sampled.
    #[error("`{0}` is a group, and events are sampled each by itself: leave out the braces")]
    Group(String),
    /// The event is of a socket.
    #[error(
        "cannot sample `{0}`: its PMU counts for a whole socket and interrupts no CPU; count it \
         by `pmuscope stat -e`"
    )]
    Uncore(String),
    /// The wall clock.
    #[error("cannot sample `{0}`: it is no counter; sample cpu-clock instead")]
    NoCounter(String),
    /// SPE has its own verb.
    #[error("cannot sample `{0}` so: SPE's samples are those of `pmuscope mem`")]
    Spe(String),
    /// Not a number.
    #[error("`{term}={value}` of `{event}` is no number above 0: write {term}=N")]
    Number {
        /// The event.
        event: String,
        /// `period` or `freq`.
        term: String,
        /// What stands there.
        value: String,
    },
    /// Both.
    #[error("`{0}` has both period= and freq=: keep one")]
    Both(String),
    /// Too short for the kernel's timers.
    #[error(
        "period {period} of `{event}` is below the {LEAST_CLOCK_PERIOD} ns that the kernel allows \
         at least: give period={LEAST_CLOCK_PERIOD} or more"
    )]
    Period {
        /// The event.
        event: String,
        /// In ns.
        period: u64,
    },
    /// More often than the kernel allows.
    #[error(
        "`{event}` asks for {rate} samples a second, and kernel.perf_event_max_sample_rate allows \
         {max}: give freq={max} or less, or raise it by `sysctl`"
    )]
    Rate {
        /// The event.
        event: String,
        /// Samples a second.
        rate: u64,
        /// The kernel's limit.
        max: u64,
    },
    /// The PMU has no such precise samples.
    #[error(
        "cannot sample `{event}` at precision {asked}: {pmu} allows {most} at most \
         (caps/max_precise); leave out {}",
        if *most == 0 { "the letters p, and addresses may be some instructions behind" }
        else { "a letter p" }
    )]
    Precise {
        /// The event.
        event: String,
        /// Letters `p`.
        asked: u8,
        /// The PMU.
        pmu: String,
        /// What it allows.
        most: u8,
    },
}

impl SampledEvent {
    /// Whether it is a clock of the kernel's, whose count is in ns.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        self.counter.is_clock()
    }

    /// Whether its count leaves out the levels that its samples leave out: a clock of the kernel's
    /// runs on at all of them.
    #[must_use]
    pub fn counts_as_it_samples(&self) -> bool {
        !self.is_clock() || !(self.exclude.user || self.exclude.kernel)
    }

    /// The counters of a core that it holds all the time, that of its leader first. None for one
    /// that is sampled elsewhere: by the kernel itself, by a PMU beside the core's, or by AMD's
    /// IBS, to which the kernel takes precise events of cores that sample none precisely.
    pub(crate) fn counters(&self, pmus: &Pmus) -> Vec<&Counter> {
        let named = self.counter.pmu.as_deref();
        let of_core = match named {
            Some(name) => pmus.cores().any(|core| core.name == name),
            None => self.counter.is_hardware(),
        };
        let by_ibs = || {
            let ibs = pmus.get(IBS).is_some();
            ibs && self.precise > most_precise(&self.counter, pmus)
        };
        if !of_core || by_ibs() {
            return Vec::new();
        }
        self.leader.iter().chain([&self.counter]).collect()
    }

    /// Whether every sample may be some instructions behind the one that caused it.
    #[must_use]
    pub fn skids(&self) -> bool {
        self.precise == 0 && self.counter.is_hardware()
    }
}

/// Reads a list of events to be sampled and resolves it against the PMUs of the machine.
/// `max_rate` is the kernel's limit of samples per second, where it is known.
///
/// # Errors
/// The first thing wrong with the text, with an event on this machine, or with its rate.
pub fn sampled(
    text: &str,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<Vec<SampledEvent>, SamplingError> {
    let mut all = Vec::new();
    for item in syntax::parse(text)? {
        let Item::Event(spec) = item else {
            return Err(SamplingError::Group(item.to_string()));
        };
        all.extend(of_spec(spec, pmus, max_rate)?);
    }
    let mut names = HashSet::new();
    if let Some(twice) = all.iter().find(|event| !names.insert(&event.name)) {
        return Err(SamplingError::Twice(twice.name.clone()));
    }
    match all.len() {
        0..=probe_common::sample::SAMPLED_EVENTS => Ok(all),
        many => Err(SamplingError::TooMany(many)),
    }
}

/// One event, or one for each kind of core.
fn of_spec(
    mut spec: EventSpec,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<Vec<SampledEvent>, SamplingError> {
    let written = spec.to_string();
    let rate = take_rate(&mut spec, &written)?;
    if let Head::Pmu { pmu, terms } = &spec.head
        && terms.is_empty()
        && pmus.get(pmu).is_none()
    {
        spec.head = Head::Name(pmu.clone());
    }
    let letters = spec.modifiers.len();
    spec.modifiers.retain(|letter| letter != 'p');
    let precise = u8::try_from(letters - spec.modifiers.len()).unwrap_or(u8::MAX);
    let events = parse_sampled(&spec.to_string(), pmus)?;
    let events = events.into_iter().flat_map(|group| group.events);
    events
        .map(|event| resolved(event, rate, precise, pmus, max_rate))
        .collect()
}

fn resolved(
    event: Event,
    rate: Option<Rate>,
    precise: u8,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<SampledEvent, SamplingError> {
    let name = event.name;
    let counter = match event.source {
        Source::DurationTime => return Err(SamplingError::NoCounter(name)),
        Source::Counter(counter) => counter,
    };
    if let Scope::Uncore { .. } = counter.scope {
        return Err(SamplingError::Uncore(name));
    }
    let pmu = counter
        .pmu
        .clone()
        .unwrap_or_else(|| "the CPU's PMU".into());
    if super::spe::is_spe(&pmu) {
        return Err(SamplingError::Spe(name));
    }
    let most = most_precise(&counter, pmus);
    // AMD's cores say 0, and the kernel takes what it can to IBS (`amd_pmu_hw_config`).
    let may_be_ibs = counter.is_hardware() && pmus.get(IBS).is_some();
    if precise > most && !may_be_ibs {
        return Err(SamplingError::Precise {
            event: name,
            asked: precise,
            pmu,
            most,
        });
    }
    let mut sampled = SampledEvent {
        name,
        counter,
        exclude: event.exclude,
        rate: rate.unwrap_or(Rate::Frequency(DEFAULT_FREQUENCY)),
        precise,
        leader: None,
        accesses: None,
    };
    if sampled.is_clock() {
        // The kernel samples its clocks by a period in any case.
        let period = match sampled.rate {
            Rate::Period(period) => period,
            Rate::Frequency(frequency) => 1_000_000_000 / frequency,
        };
        if period < LEAST_CLOCK_PERIOD {
            let event = sampled.name;
            return Err(SamplingError::Period { event, period });
        }
        check_rate(&sampled.name, 1_000_000_000 / period, max_rate)?;
        sampled.rate = Rate::Period(period);
    } else if let Rate::Frequency(frequency) = sampled.rate {
        check_rate(&sampled.name, frequency, max_rate)?;
    }
    Ok(sampled)
}

fn check_rate(event: &str, rate: u64, max_rate: Option<u64>) -> Result<(), SamplingError> {
    match max_rate {
        Some(max) if rate > max => Err(SamplingError::Rate {
            event: event.to_owned(),
            rate,
            max,
        }),
        _ => Ok(()),
    }
}

/// How precise samples of the counter's PMU may be; of a generic event that of the cores.
fn most_precise(counter: &Counter, pmus: &Pmus) -> u8 {
    let named = counter.pmu.as_deref().and_then(|name| pmus.get(name)?.ok());
    let pmu = named.or_else(|| pmus.cores().next().filter(|_| counter.is_hardware()));
    let most = pmu.and_then(|pmu| pmu.caps.get("max_precise")?.trim().parse().ok());
    most.unwrap_or(0)
}

/// Takes the terms about the rate out of an event.
fn take_rate(spec: &mut EventSpec, written: &str) -> Result<Option<Rate>, SamplingError> {
    let Head::Pmu { terms, .. } = &mut spec.head else {
        return Ok(None);
    };
    let is_rate = |term: &mut Term| matches!(term.name.as_str(), "period" | "freq");
    let mut rates = terms.extract_if(.., is_rate);
    let Some(term) = rates.next() else {
        return Ok(None);
    };
    if rates.next().is_some() {
        return Err(SamplingError::Both(written.to_owned()));
    }
    let value = term.value.as_deref().unwrap_or_default();
    let number = value.parse::<u64>().ok();
    // The kernel takes no period beyond 63 bits.
    match number.filter(|number| (1..1 << 63).contains(number)) {
        Some(number) if term.name == "freq" => Ok(Some(Rate::Frequency(number))),
        Some(number) => Ok(Some(Rate::Period(number))),
        None => Err(SamplingError::Number {
            event: written.to_owned(),
            term: term.name.clone(),
            value: value.to_owned(),
        }),
    }
}

/// What `hot` samples where the user does not say: cycles, or the clock where the machine shows no
/// core PMU.
#[must_use]
pub fn default_event(pmus: &Pmus) -> &'static str {
    match pmus.cores().next() {
        Some(_) => "cycles",
        None => "cpu-clock",
    }
}

#[cfg(test)]
mod tests;

//! Sampled events, in the syntax of `-e`, with `period=N` or `freq=N` among the terms, and `:p` for
//! precise samples. The entry is [`sampled`].

use std::collections::HashSet;

use super::{
    AccessScaling, Counter, Event, EventError, Exclude, Scope, Source, resolve_sampled,
    syntax::{self, EventHead, ListItem, WrittenEvent},
};
use crate::machine::{Pmus, terms::Term};
pub use crate::sys::perf::max_sample_rate;

/// Default samples per second and CPU. Not a round number, so that samples do not run in lockstep
/// with timers of the kernel and of programs.
pub const DEFAULT_FREQUENCY: u64 = 997;

/// The kernel's minimum period of its clocks, in ns (`perf_swevent_start_hrtimer`).
const LEAST_CLOCK_PERIOD: u64 = 10_000;

/// AMD's PMU that samples by number of operations.
const IBS: &str = "ibs_op";

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Events from one sample to the next.
    Period(u64),
    /// Samples per second: the kernel adjusts the period.
    Frequency(u64),
}

/// A sampled event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledEvent {
    /// As written, without the terms and letters about sampling.
    pub name: String,
    /// The attributes to open.
    pub counter: Counter,
    /// The levels that are not sampled.
    pub exclude: Exclude,
    /// Its period or frequency.
    pub rate: Rate,
    /// Number of letters `p`; with 0 the address may be behind the instruction (skid).
    pub precise: u8,
    /// The leader of its group; `None` if the kernel requires none.
    pub leader: Option<Counter>,
    /// What a sample represents; `None` if its samples are no memory accesses.
    pub accesses: Option<AccessScaling>,
}

/// Why an event cannot be sampled. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The event is wrong.
    #[error(transparent)]
    Event(#[from] EventError),
    /// More events than the programs distinguish.
    #[error("{0} events are to be sampled, and at most {max} can be: leave some out",
        max = probe_common::sample::SAMPLED_EVENTS)]
    TooMany(usize),
    /// The same metric is requested twice.
    #[error(
        "`{0}` is to be sampled twice, and its samples would be of one metric: keep one rate and \
         one precision"
    )]
    Twice(String),
    /// Groups are not sampled.
    #[error("`{0}` is a group, and events are sampled each by itself: leave out the braces")]
    Group(String),
    /// The PMU counts for a socket.
    #[error(
        "cannot sample `{0}`: its PMU counts for a whole socket and interrupts no CPU; count it \
         by `pmuscope stat -e`"
    )]
    Uncore(String),
    /// A scheduler event, which pmuscope's program counts at each switch.
    #[error(
        "cannot sample `{0}`: pmuscope's own program counts it at switches; count it (`-e {0}`)"
    )]
    Scheduler(String),
    /// The wall clock.
    #[error("cannot sample `{0}`: it is no counter; sample cpu-clock instead")]
    NoCounter(String),
    /// SPE, which has a verb of its own.
    #[error("cannot sample `{0}` so: SPE's samples are those of `pmuscope mem`")]
    Spe(String),
    /// The rate is no number above 0.
    #[error("`{term}={value}` of `{event}` is no number above 0: write {term}=N")]
    Number {
        /// The event.
        event: String,
        /// `period` or `freq`.
        term: String,
        /// The value as written.
        value: String,
    },
    /// Both a period and a frequency.
    #[error("`{0}` has both period= and freq=: keep one")]
    Both(String),
    /// The period is too short for the kernel's timers.
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
    /// The frequency is above the kernel's limit.
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
    /// The PMU does not support the precision.
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
        /// The PMU's maximum.
        most: u8,
    },
}

impl SampledEvent {
    /// Whether it is a clock of the kernel, which counts ns.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        self.counter.is_clock()
    }

    /// Whether it counts only events that it samples. A clock of the kernel and AMD's IBS count at
    /// all privilege levels. IBS also counts operations that its filters (`config1`: `ldlat`,
    /// `fetchlat`) leave out of the samples (`arch/x86/events/amd/ibs.c`).
    #[must_use]
    pub fn counts_as_it_samples(&self) -> bool {
        let is_filtered = self.exclude.user || self.exclude.kernel;
        let is_ibs = (self.counter.pmu.as_deref()).is_some_and(|pmu| pmu.starts_with("ibs_"));
        match (self.is_clock(), is_ibs) {
            (true, _) => !is_filtered,
            (_, true) => !is_filtered && self.counter.config1 == 0,
            _ => true,
        }
    }

    /// The core counters that it occupies all the time, its leader's first. Empty if it is sampled
    /// elsewhere: by the kernel itself, by another PMU, or by AMD's IBS, which the kernel uses for
    /// precise events of cores without precise sampling.
    pub(crate) fn counters(&self, pmus: &Pmus) -> Vec<&Counter> {
        let pmu = self.counter.pmu.as_deref();
        let is_on_core = match pmu {
            Some(name) => pmus.cores().any(|core| core.name == name),
            None => self.counter.is_hardware(),
        };
        let is_on_ibs = || {
            let ibs = pmus.get(IBS).is_some();
            ibs && self.precise > most_precise(&self.counter, pmus)
        };
        if !is_on_core || is_on_ibs() {
            return Vec::new();
        }
        self.leader.iter().chain([&self.counter]).collect()
    }

    /// Whether samples may be some instructions behind their cause.
    #[must_use]
    pub fn skids(&self) -> bool {
        self.precise == 0 && self.counter.is_hardware()
    }
}

/// Parses a list of sampled events and resolves it against the PMUs of the machine. `max_rate` is
/// the kernel's limit of samples per second, if known.
///
/// # Errors
/// The first error in the text, of an event on this machine, or of its rate.
pub fn sampled(
    text: &str,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<Vec<SampledEvent>, SamplingError> {
    let mut all = Vec::new();
    for item in syntax::parse(text)? {
        let ListItem::Event(spec) = item else {
            return Err(SamplingError::Group(item.to_string()));
        };
        all.extend(resolve_item(spec, pmus, max_rate)?);
    }
    let mut names = HashSet::new();
    if let Some(repeated) = all.iter().find(|event| !names.insert(&event.name)) {
        return Err(SamplingError::Twice(repeated.name.clone()));
    }
    match all.len() {
        0..=probe_common::sample::SAMPLED_EVENTS => Ok(all),
        many => Err(SamplingError::TooMany(many)),
    }
}

/// Resolves an item to one event, or to one for each kind of core.
fn resolve_item(
    mut spec: WrittenEvent,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<Vec<SampledEvent>, SamplingError> {
    let written = spec.to_string();
    let rate = take_rate(&mut spec, &written)?;
    if let EventHead::Pmu { pmu, terms } = &spec.head
        && terms.is_empty()
        && pmus.get(pmu).is_none()
    {
        spec.head = EventHead::Name(pmu.clone());
    }
    let letter_count = spec.modifiers.len();
    spec.modifiers.retain(|letter| letter != 'p');
    let precise = u8::try_from(letter_count - spec.modifiers.len()).unwrap_or(u8::MAX);
    let groups = resolve_sampled(&[ListItem::Event(spec.clone())], pmus)?;
    let events = groups.into_iter().flat_map(|group| group.events);
    events
        .map(|event| check_sampling(event, rate, precise, pmus, max_rate))
        .collect()
}

fn check_sampling(
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
    if counter.is_of_scheduler() {
        return Err(SamplingError::Scheduler(name));
    }
    let pmu = counter
        .pmu
        .clone()
        .unwrap_or_else(|| "the CPU's PMU".into());
    if super::spe::is_spe(&pmu) {
        return Err(SamplingError::Spe(name));
    }
    let most = most_precise(&counter, pmus);
    // AMD's cores state 0, and the kernel moves precise events to IBS if it can
    // (`amd_pmu_hw_config`).
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
        // The kernel always samples its clocks by a period.
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

/// Maximum precision of the counter's PMU, or of the core PMU for a generic event.
fn most_precise(counter: &Counter, pmus: &Pmus) -> u8 {
    let own_pmu = counter.pmu.as_deref().and_then(|name| pmus.get(name)?.ok());
    let pmu = own_pmu.or_else(|| pmus.cores().next().filter(|_| counter.is_hardware()));
    let most = pmu.and_then(|pmu| pmu.caps.get("max_precise")?.trim().parse().ok());
    most.unwrap_or(0)
}

/// Removes the term of the rate from an event. `None` if the event has no such term.
fn take_rate(spec: &mut WrittenEvent, written: &str) -> Result<Option<Rate>, SamplingError> {
    let EventHead::Pmu { terms, .. } = &mut spec.head else {
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
    // The kernel accepts periods of up to 63 bits.
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

/// Default event of `hot`: cycles, or the clock if the machine shows no core PMU.
#[must_use]
pub fn default_event(pmus: &Pmus) -> &'static str {
    match pmus.cores().next() {
        Some(_) => "cycles",
        None => "cpu-clock",
    }
}

#[cfg(test)]
mod tests;

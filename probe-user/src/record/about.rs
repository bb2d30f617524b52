//! What is known of a recording when it begins: the metadata of its file.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::{Config, Recorder, Sampling, method::Means, time_namespace};
use crate::{
    event::spe::SpeEvent,
    machine::{Machine, cpus::CpuList},
    sys::clock::{at_one_moment, nanos, now},
};

/// The key of the size of a ring, in bytes: every file of samples has it in its metadata, and no
/// other file.
pub(crate) const RING_BYTES: &str = "ring_bytes_per_buffer";

impl Recorder {
    /// Names and values: how this recording is made, and on what. `command` is how this program was
    /// called.
    #[must_use]
    pub fn about(&self, command: &[String]) -> Vec<(String, String)> {
        of_recording(&self.machine, &self.config, &self.means, command)
    }
}

/// The same of a recording that is made so.
fn of_recording(
    machine: &Machine,
    config: &Config,
    means: &Means,
    command: &[String],
) -> Vec<(String, String)> {
    let buffers = &config.buffers;
    let mut about = means.about();
    about.push((RING_BYTES, buffers.ring.0.to_string()));
    if let Means::Spe(sampling, events) = means {
        about.push(("aux_bytes_per_buffer", buffers.aux.0.to_string()));
        about.push(("per_thread", config.per_thread.to_string()));
        let (periods, means) = periods(machine, sampling, events);
        about.push(("periods", Value::Object(periods).to_string()));
        about.push(("mean_periods", Value::Object(means).to_string()));
    }
    let owned = about.into_iter();
    of_machine(machine, command)
        .into_iter()
        .chain(owned.map(|(name, value)| (name.to_owned(), value)))
        .collect()
}

/// The period that each CPU has, by lists of CPUs, and the mean one, to which jitter adds.
fn periods(
    machine: &Machine,
    sampling: &Sampling,
    events: &[SpeEvent],
) -> (Map<String, Value>, Map<String, Value>) {
    let asked = sampling.period;
    let least = |pmu: &str| {
        let pmu = machine.pmus().ok()?.get(pmu)?.ok()?;
        Some(crate::event::spe::min_interval(pmu))
    };
    let periods = events.iter().map(|event| {
        let least = least(&event.pmu).unwrap_or(0);
        let period = Sampling::effective_period(asked, least);
        (event.cpus.to_string(), period, event.jitter)
    });
    #[expect(clippy::cast_precision_loss, reason = "a period is below 2^32")]
    periods
        .map(|(cpus, period, jitter)| {
            let mean = period as f64 + jitter;
            ((cpus.clone(), json!(period)), (cpus, json!(mean)))
        })
        .unzip()
}

/// The same of every recording: names and values of this program, how it was called, and what it
/// runs on.
#[must_use]
pub fn of_machine(machine: &Machine, command: &[String]) -> Vec<(String, String)> {
    let mut about = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("command", json!(command).to_string()),
    ];
    about.extend(midrs(machine).map(|midrs| ("midr", midrs.to_string())));
    let kernel = |name: &str| machine.proc(&format!("sys/kernel/{name}"));
    for (name, file) in [("kernel", "osrelease"), ("host", "hostname")] {
        about.extend(kernel(file).map(|text| (name, text)));
    }
    about.extend(wall_clock(machine).map(|anchor| ("wall_clock", anchor.to_string())));
    let owned = about.into_iter();
    owned
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// `MIDR_EL1` by lists of CPUs; none where no CPU has one.
fn midrs(machine: &Machine) -> Option<Value> {
    let online = machine.online().ok()?;
    let of = |cpu| machine.midr(cpu).map(|midr| (cpu, midr));
    let cpus: Vec<(u32, u64)> = online.iter().filter_map(of).collect();
    let mut kinds: Vec<u64> = cpus.iter().map(|(_, midr)| *midr).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kinds = kinds.into_iter().map(|kind| {
        let same = cpus.iter().filter(|(_, midr)| *midr == kind);
        let list: CpuList = same.map(|(cpu, _)| *cpu).collect();
        (list.to_string(), json!(format!("{kind:#018x}")))
    });
    let kinds: Map<String, Value> = kinds.collect();
    (!kinds.is_empty()).then_some(Value::Object(kinds))
}

/// One moment in the clock of `time_ns` and in that of the wall, both in ns; none where the former
/// is not known.
fn wall_clock(machine: &Machine) -> Option<Value> {
    let ahead = time_namespace::ahead(machine.procfs())?;
    let wall = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, nanos)
    };
    let (monotonic, unix) = at_one_moment(|| nanos(now()), wall);
    let time = monotonic.wrapping_add_signed(ahead.wrapping_neg());
    // As texts: they are larger than numbers that every reader of JSON takes.
    Some(json!({"time_ns": time.to_string(), "unix_ns": unix.to_string()}))
}

/// What recordings by SPE and by events say of themselves, for the tests of those who read files.
#[cfg(test)]
pub(crate) fn of_each_method() -> [Vec<(String, String)>; 2] {
    use super::{AccessSampling, Buffers, Method, Size, Target};

    let spe = Sampling {
        period: 4096,
        terms: "load_filter=1".to_owned(),
    };
    let size = Size(1 << 19);
    let config = Config {
        method: Method::Spe(spe.clone()),
        buffers: Buffers {
            ring: size,
            aux: size,
            watermark: None,
        },
        target: Target::Process(7),
        per_thread: false,
        drains: std::num::NonZeroUsize::MIN,
        regions: None,
    };
    let means = [
        Means::Spe(spe, Vec::new()),
        Means::Events(AccessSampling::default(), Vec::new()),
    ];
    means.map(|means| of_recording(&Machine::this(), &config, &means, &[]))
}

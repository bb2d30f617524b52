//! Metadata of a recording's file that is known when the recording starts.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::{RecordConfig, Recorder, SpeOptions, backend::Backend, time_namespace};
use crate::{
    event::spe::SpeEvent,
    machine::{Machine, cpus::CpuList},
    sys::clock::{at_one_moment, nanos, now},
};

/// Metadata key of the ring size in bytes. It identifies files of samples: no other file has it.
pub(crate) const RING_BYTES: &str = "ring_bytes_per_buffer";

impl Recorder {
    /// Metadata (keys and values) of this recording and its machine; `command` is the command line.
    #[must_use]
    pub fn about(&self, command: &[String]) -> Vec<(String, String)> {
        recording_metadata(&self.machine, &self.config, &self.backend, command)
    }
}

/// Metadata of a recording with this configuration.
fn recording_metadata(
    machine: &Machine,
    config: &RecordConfig,
    backend: &Backend,
    command: &[String],
) -> Vec<(String, String)> {
    let buffers = &config.buffers;
    let mut about = backend.about();
    about.push((RING_BYTES, buffers.ring.0.to_string()));
    if let Backend::Spe(sampling, events) = backend {
        about.push(("aux_bytes_per_buffer", buffers.aux.0.to_string()));
        about.push(("per_thread", config.per_thread.to_string()));
        let (periods, means) = periods(machine, sampling, events);
        about.push(("periods", Value::Object(periods).to_string()));
        about.push(("mean_periods", Value::Object(means).to_string()));
    }
    let owned = about.into_iter();
    machine_metadata(machine, command)
        .into_iter()
        .chain(owned.map(|(name, value)| (name.to_owned(), value)))
        .collect()
}

/// By CPU list: the effective period, and the mean period including jitter.
fn periods(
    machine: &Machine,
    sampling: &SpeOptions,
    events: &[SpeEvent],
) -> (Map<String, Value>, Map<String, Value>) {
    let requested = sampling.period;
    let minimum = |pmu: &str| {
        let pmu = machine.pmus().ok()?.get(pmu)?.ok()?;
        Some(crate::event::spe::min_interval(pmu))
    };
    let periods = events.iter().map(|event| {
        let minimum = minimum(&event.pmu).unwrap_or(0);
        let period = SpeOptions::effective_period(requested, minimum);
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

/// Metadata of any recording: version, command line and machine.
#[must_use]
pub fn machine_metadata(machine: &Machine, command: &[String]) -> Vec<(String, String)> {
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

/// `MIDR_EL1` by CPU list; None if no CPU has one.
fn midrs(machine: &Machine) -> Option<Value> {
    let online = machine.online().ok()?;
    let with_midr = |cpu| machine.midr(cpu).map(|midr| (cpu, midr));
    let cpus: Vec<(u32, u64)> = online.iter().filter_map(with_midr).collect();
    let mut distinct: Vec<u64> = cpus.iter().map(|(_, midr)| *midr).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let kinds: Map<String, Value> = distinct
        .into_iter()
        .map(|kind| {
            let of_kind = cpus.iter().filter(|(_, midr)| *midr == kind);
            let list: CpuList = of_kind.map(|(cpu, _)| *cpu).collect();
            (list.to_string(), json!(format!("{kind:#018x}")))
        })
        .collect();
    (!kinds.is_empty()).then_some(Value::Object(kinds))
}

/// The current time, in ns of the clock of `time_ns` and in ns of Unix time; None if the offset of
/// this time namespace is unknown.
fn wall_clock(machine: &Machine) -> Option<Value> {
    let offset = time_namespace::monotonic_offset(machine.procfs())?;
    let wall = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, nanos)
    };
    let (monotonic, unix) = at_one_moment(|| nanos(now()), wall);
    let time = monotonic.wrapping_add_signed(offset.wrapping_neg());
    // Times are texts, since numbers of 64 bits are too large for some JSON readers.
    Some(json!({"time_ns": time.to_string(), "unix_ns": unix.to_string()}))
}

/// Unix time in ns at which the clock of `time_ns` was 0, from a file's metadata; None if the
/// metadata does not have it.
pub(crate) fn boot_time(about: &[(String, String)]) -> Option<i128> {
    let (_, text) = about.iter().find(|(key, _)| key == "wall_clock")?;
    let anchor: Value = serde_json::from_str(text).ok()?;
    let nanos = |key: &str| anchor[key].as_str()?.parse::<i128>().ok();
    Some(nanos("unix_ns")? - nanos("time_ns")?)
}

/// Metadata of recordings by SPE and by events, for tests of readers.
#[cfg(test)]
pub(crate) fn metadata_of_each_method() -> [Vec<(String, String)>; 2] {
    use super::{AccessSampling, Buffers, RecordTarget, SamplingMethod, Size};

    let spe = SpeOptions {
        period: 4096,
        terms: "load_filter=1".to_owned(),
    };
    let size = Size(1 << 19);
    let config = RecordConfig {
        method: SamplingMethod::Spe(spe.clone()),
        buffers: Buffers {
            ring: size,
            aux: size,
            watermark: None,
        },
        target: RecordTarget::Process(7),
        per_thread: false,
        drains: std::num::NonZeroUsize::MIN,
        regions: None,
    };
    let backends = [
        Backend::Spe(spe, Vec::new()),
        Backend::Events(AccessSampling::default(), Vec::new()),
    ];
    backends.map(|backend| recording_metadata(&Machine::this(), &config, &backend, &[]))
}

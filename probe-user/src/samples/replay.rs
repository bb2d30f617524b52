//! Decodes given bytes as a recording does, to measure the cost of a sample, and for tests on
//! machines without sampling.

use std::{io, sync::Mutex};

use super::{
    AuxPosition, RecordCounts, Sink,
    clock::{RecordClock, TickClock},
    drain::{Attribution, AuxOwner, Drain, SampleFilter, SharedInputs},
    machine::DataSourceTables,
    tasks::Tasks,
};
use crate::machine::Machine;

/// Decodes the AUX bytes of a CPU, and passes the samples to `sink` as thread `thread`. Thread
/// names and data-source tables are those of `machine`.
///
/// # Errors
///
/// If the sink fails.
pub fn replay(
    bytes: &[u8],
    cpu: u32,
    ticks: TickClock,
    machine: &Machine,
    thread: usize,
    sink: &dyn Sink,
) -> io::Result<RecordCounts> {
    let clock = Some(RecordClock::fixed(ticks));
    with_shared(clock, machine, sink, |shared| {
        let mut drain = Drain::new(thread);
        let position = AuxPosition {
            area: cpu,
            offset: 0,
            cpu: Some(cpu),
            tid: None,
        };
        let copied = drain.take_aux(position, shared, |into| into.extend_from_slice(bytes))?;
        let owner = AuxOwner {
            cpu: Some(cpu),
            ..AuxOwner::default()
        };
        drain.decode(&copied, 0, owner, shared)?;
        drain.done(copied, shared)?;
        Ok(drain.counts)
    })
}

/// Decodes ring records of memory-access events (x86), and passes the samples to `sink` as thread
/// `thread`. Thread names are those of `machine`.
///
/// # Errors
///
/// If the sink fails.
pub fn replay_events(
    bytes: &[u8],
    machine: &Machine,
    thread: usize,
    sink: &dyn Sink,
) -> io::Result<RecordCounts> {
    with_shared(None, machine, sink, |shared| {
        let mut drain = Drain::new(thread);
        drain.decode_events(|into| into.extend_from_slice(bytes), shared)?;
        Ok(drain.counts)
    })
}

fn with_shared(
    clock: Option<RecordClock>,
    machine: &Machine,
    sink: &dyn Sink,
    run: impl FnOnce(&SharedInputs<'_>) -> io::Result<RecordCounts>,
) -> io::Result<RecordCounts> {
    let tasks = Mutex::new(Tasks::new(machine.procfs()));
    run(&SharedInputs {
        clock,
        attribution: Attribution {
            by_context: true,
            by_aux_record: false,
        },
        sources: &DataSourceTables::for_machine(machine),
        filter: SampleFilter::default(),
        tasks: &tasks,
        region_index: None,
        sink,
        is_last_round: true,
    })
}

//! Bytes from elsewhere, decoded as a recording's own: to measure what a sample costs, and to test
//! on machines that have none.

use std::{io, sync::Mutex};

use super::{
    AuxPlace, Counts, Sink,
    clock::{Clock, TickClock},
    drain::{Attribution, Drain, Owner, Shared, Wanted},
    machine::Sources,
    tasks::Tasks,
};
use crate::machine::Machine;

/// Decodes the bytes of a CPU's buffer and hands the samples to `sink` as thread `thread`, with the
/// names that `machine` has for the threads in them and its tables of data sources.
///
/// # Errors
///
/// Where the sink fails.
pub fn replay(
    bytes: &[u8],
    cpu: u32,
    ticks: TickClock,
    machine: &Machine,
    thread: usize,
    sink: &dyn Sink,
) -> io::Result<Counts> {
    let clock = Some(Clock::fixed(ticks));
    with_shared(clock, machine, sink, |shared| {
        let mut drain = Drain::new(thread);
        let place = AuxPlace {
            area: cpu,
            offset: 0,
            cpu: Some(cpu),
            tid: None,
        };
        let taken = drain.take(place, shared, |into| into.extend_from_slice(bytes))?;
        let owner = Owner {
            cpu: Some(cpu),
            ..Owner::default()
        };
        drain.decode(&taken, 0, owner, shared)?;
        drain.done(taken, shared)?;
        Ok(drain.counts)
    })
}

/// Reads the records that a ring of events of memory accesses has, as x86 has them, and hands the
/// samples to `sink` as thread `thread`, with the names that `machine` has for their threads.
///
/// # Errors
///
/// Where the sink fails.
pub fn replay_events(
    bytes: &[u8],
    machine: &Machine,
    thread: usize,
    sink: &dyn Sink,
) -> io::Result<Counts> {
    with_shared(None, machine, sink, |shared| {
        let mut drain = Drain::new(thread);
        drain.events(|into| into.extend_from_slice(bytes), shared)?;
        Ok(drain.counts)
    })
}

fn with_shared(
    clock: Option<Clock>,
    machine: &Machine,
    sink: &dyn Sink,
    run: impl FnOnce(&Shared<'_>) -> io::Result<Counts>,
) -> io::Result<Counts> {
    let tasks = Mutex::new(Tasks::new(machine.procfs()));
    run(&Shared {
        clock,
        attribution: Attribution {
            by_context: true,
            by_aux_record: false,
        },
        sources: &Sources::of(machine),
        wanted: Wanted::default(),
        tasks: &tasks,
        book: None,
        sink,
        last: true,
    })
}

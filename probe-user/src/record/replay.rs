//! AUX bytes from elsewhere, on the way of a recording's own: they measure what a sample costs, and
//! test on machines without SPE.

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
    let tasks = Mutex::new(Tasks::new(machine.procfs()));
    let shared = Shared {
        clock: Some(Clock::fixed(ticks)),
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
    };
    let mut drain = Drain::new(thread);
    let place = AuxPlace {
        area: cpu,
        offset: 0,
        cpu: Some(cpu),
        tid: None,
    };
    let taken = drain.take(place, &shared, |into| into.extend_from_slice(bytes))?;
    let owner = Owner {
        cpu: Some(cpu),
        ..Owner::default()
    };
    drain.decode(&taken, 0, owner, &shared)?;
    drain.done(taken, &shared)?;
    Ok(drain.counts)
}

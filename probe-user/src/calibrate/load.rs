//! Runs a calibration kernel on several CPUs during a measurement.

use std::{
    io,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::{
    process::setpriority_process,
    thread::{CpuSet, sched_setaffinity},
};

use super::{CalibrateError, kernels::Kernel};
use crate::roofline::kernels::Vectors;

/// Sizes of one thread's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadBytes {
    /// Bytes that exceed all caches.
    pub(super) memory: u64,
    /// Bytes that fit the core's caches.
    pub(super) cached: u64,
}

/// Calls `during` while the kernel runs on each of the CPUs. All threads touch the kernel's memory
/// before that.
pub(super) fn run<T>(
    kernel: Kernel,
    cpus: &[u32],
    bytes: ThreadBytes,
    during: impl FnOnce() -> Result<T, CalibrateError>,
) -> Result<T, CalibrateError> {
    let running = AtomicBool::new(true);
    let touched = Barrier::new(cpus.len() + 1);
    thread::scope(|scope| {
        let (running, touched) = (&running, &touched);
        let threads: Vec<_> = (cpus.iter().copied())
            .map(|cpu| {
                let work = move || -> Result<(), CalibrateError> {
                    let ready = prepare(kernel, cpu, bytes);
                    // A thread that failed waits too, because the others wait for all threads.
                    touched.wait();
                    let mut kernel = ready?;
                    let vectors = Vectors::detect();
                    while running.load(Ordering::Relaxed) {
                        kernel.step(vectors);
                    }
                    Ok(())
                };
                scope.spawn(work)
            })
            .collect();
        touched.wait();
        let result = during();
        running.store(false, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("kernels do not panic")?;
        }
        result
    })
}

/// Pins this thread to the CPU, and maps and touches the kernel's memory.
fn prepare(
    kernel: Kernel,
    cpu: u32,
    bytes: ThreadBytes,
) -> Result<super::kernels::Running, CalibrateError> {
    let mut set = CpuSet::new();
    if usize::try_from(cpu).is_ok_and(|cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    sched_setaffinity(None, &set).map_err(|error| CalibrateError::Thread {
        cpu,
        error: io::Error::from(error),
    })?;
    // The lowest priority, so that the counting thread gets the CPU first and a pull is short.
    // Linux may refuse it.
    let _least = setpriority_process(None, 19);
    let memory = kernel.with_memory(bytes.memory, bytes.cached);
    let mut running = memory.map_err(|error| CalibrateError::Memory {
        bytes: bytes.memory,
        error,
    })?;
    running.touch();
    Ok(running)
}

//! Runs a calibration kernel on several CPUs during a measurement.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, Builder},
};

use rustix::process::setpriority_process;

use super::{
    CalibrateError,
    kernels::{Kernel, Running},
};
use crate::{
    roofline::kernels::Vectors,
    sys::{memory_policy::bind_to_nodes, threads},
};

/// Sizes of one thread's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadBytes {
    /// Bytes that exceed all caches.
    pub(super) memory: u64,
    /// Bytes that fit the core's caches.
    pub(super) cached: u64,
}

/// Calls `during` while the kernel runs on each of the CPUs. All threads touch the kernel's memory
/// before that, on these NUMA nodes; without nodes, near their CPU.
pub(super) fn run<T>(
    kernel: Kernel,
    cpus: &[u32],
    nodes: &[u32],
    bytes: ThreadBytes,
    during: impl FnOnce() -> Result<T, CalibrateError>,
) -> Result<T, CalibrateError> {
    let builder = |cpu: u32| Builder::new().name(format!("calibrate {cpu}"));
    run_in(builder, kernel, cpus, nodes, bytes, during)
}

/// [`run`] in threads of this builder.
fn run_in<T>(
    builder: impl Fn(u32) -> Builder,
    kernel: Kernel,
    cpus: &[u32],
    nodes: &[u32],
    bytes: ThreadBytes,
    during: impl FnOnce() -> Result<T, CalibrateError>,
) -> Result<T, CalibrateError> {
    let running = AtomicBool::new(true);
    let stop = || running.store(false, Ordering::Relaxed);
    let (ready, all_ready) = mpsc::channel();
    thread::scope(|scope| {
        let thread = |cpu: u32| {
            let (running, ready) = (&running, ready.clone());
            let work = move || match prepare(kernel, cpu, nodes, bytes) {
                Ok(mut kernel) => {
                    // Nobody receives it if another thread failed.
                    let _sent = ready.send(Ok(()));
                    drop(ready);
                    let vectors = Vectors::detect();
                    while running.load(Ordering::Relaxed) {
                        kernel.step(vectors);
                    }
                }
                Err(error) => {
                    let _sent = ready.send(Err(error));
                }
            };
            (builder(cpu), work)
        };
        threads::spawn_all(scope, cpus.iter().copied().map(thread), stop)
            .map_err(CalibrateError::Start)?;
        // The last sender ends with its thread, so that a thread that panics blocks nobody.
        drop(ready);
        let ready = all_ready.iter().take(cpus.len()).collect();
        let result = Result::and_then(ready, |()| during());
        stop();
        result
    })
}

/// Pins this thread to the CPU, and maps and touches the kernel's memory.
fn prepare(
    kernel: Kernel,
    cpu: u32,
    nodes: &[u32],
    bytes: ThreadBytes,
) -> Result<Running, CalibrateError> {
    threads::pin(cpu).map_err(|error| CalibrateError::Thread { cpu, error })?;
    if !nodes.is_empty() {
        bind_to_nodes(nodes).map_err(|error| CalibrateError::Nodes {
            nodes: nodes.to_vec(),
            error,
        })?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: ThreadBytes = ThreadBytes {
        memory: 1 << 16,
        cached: 1 << 12,
    };

    #[test]
    fn a_thread_that_cannot_start_ends_the_others() {
        let cpu = crate::roofline::allowed_cpus().unwrap();
        let cpu = cpu.iter().next().unwrap();
        let started = std::cell::Cell::new(0);
        // The second thread cannot start: no address space has its stack.
        let builder = |_: u32| {
            let stacks = [1 << 20, 1 << 60];
            let stack = stacks[started.replace(started.get() + 1)];
            Builder::new().stack_size(stack)
        };
        let never = || -> Result<(), _> { panic!("the threads do not run") };
        let error = run_in(builder, Kernel::Copy, &[cpu, cpu], &[], BYTES, never).unwrap_err();
        assert!(matches!(error, CalibrateError::Start(_)), "{error}");
    }

    #[test]
    fn a_missing_cpu_is_named_and_blocks_no_thread() {
        let cpu = crate::roofline::allowed_cpus().unwrap();
        let cpu = cpu.iter().next().unwrap();
        let never = || -> Result<(), _> { panic!("the threads do not run") };
        let error = run(Kernel::Copy, &[cpu, 999_999], &[], BYTES, never).unwrap_err();
        let CalibrateError::Thread { cpu: 999_999, .. } = error else {
            panic!("{error}");
        };
    }

    #[test]
    fn the_kernel_runs_on_all_cpus_until_the_measurement_ends() {
        let cpu = crate::roofline::allowed_cpus().unwrap();
        let cpu = cpu.iter().next().unwrap();
        let result = run(Kernel::CachedRead, &[cpu; 3], &[], BYTES, || Ok(7));
        assert_eq!(result.unwrap(), 7);
    }
}

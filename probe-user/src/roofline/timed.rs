//! Times a [`Work`] on several CPUs at once: [`timed`] pins one thread to each CPU and starts all
//! of them together.

use std::{
    hint,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use super::RooflineError;
use crate::sys::{clock, threads};

/// The work of one thread.
pub(super) trait Work: Send {
    /// Writes its memory, so that first touch places it near the thread's CPU.
    fn touch(&mut self);
    /// Does the work `iterations` times, at least once.
    fn work(&mut self, iterations: u64);
}

/// Number and length of the runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    /// The largest number of runs.
    pub(super) runs: usize,
    /// The least length of a run.
    pub(super) min_run_time: Duration,
    /// After this time no new run begins, once [`MIN_RUNS`] are done.
    pub(super) max_total_time: Duration,
}

/// The number of runs that are done however long they take.
pub(super) const MIN_RUNS: usize = 3;

/// One run of all threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimedRun {
    /// Seconds from the first start to the last end, divided by the iterations of the work.
    pub(super) seconds_per_iteration: f64,
    /// Seconds of all threads together.
    pub(super) wall: f64,
    /// The part of `wall` in which the threads waited for their CPUs.
    pub(super) waited: f64,
}

/// Times the work of all threads, each on its CPU. Returns the runs.
///
/// # Errors
///
/// A thread cannot be pinned to its CPU, or cannot start.
pub(super) fn timed<W: Work>(
    work: Vec<(u32, W)>,
    repeat: Repeat,
) -> Result<Vec<TimedRun>, RooflineError> {
    let barrier = SpinBarrier::new(work.len());
    let control = RunControl {
        barrier: &barrier,
        iterations: &AtomicU64::new(1),
        stop: &AtomicBool::new(false),
        repeat,
    };
    // The first thread decides for all threads how many iterations a run has, and when to stop.
    let spans = thread::scope(|scope| {
        let thread = |(at, (cpu, work)): (usize, (u32, W))| {
            let control = control.clone();
            let builder = thread::Builder::new().name(format!("roofline {cpu}"));
            (builder, move || control.thread(at == 0, cpu, work))
        };
        let work = work.into_iter().enumerate().map(thread);
        let threads = threads::spawn_all(scope, work, || barrier.release());
        let threads = threads.map_err(RooflineError::Thread)?.into_iter();
        let joined = threads.map(|thread| thread.join().expect("work does not panic"));
        joined.collect::<Result<Vec<Vec<ThreadSpan>>, _>>()
    })?;
    let iterations = control.iterations.load(Ordering::Relaxed);
    let runs = spans.iter().map(Vec::len).min().unwrap_or(0);
    Ok((0..runs)
        .map(|run| {
            let run_spans: Vec<ThreadSpan> = spans.iter().map(|spans| spans[run]).collect();
            merge_spans(&run_spans, iterations)
        })
        .collect())
}

/// One run of one thread.
#[derive(Clone, Copy, Debug)]
struct ThreadSpan {
    start: Duration,
    end: Duration,
    cpu_time: Duration,
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn merge_spans(spans: &[ThreadSpan], iterations: u64) -> TimedRun {
    let start = spans.iter().map(|span| span.start).min();
    let end = spans.iter().map(|span| span.end).max();
    let length = end.zip(start).map_or(Duration::ZERO, |(end, start)| {
        end.saturating_sub(start).max(Duration::from_nanos(1))
    });
    let wall = |span: &ThreadSpan| span.end.saturating_sub(span.start);
    let waited = |span: &ThreadSpan| wall(span).saturating_sub(span.cpu_time).as_secs_f64();
    TimedRun {
        seconds_per_iteration: length.as_secs_f64() / iterations as f64,
        wall: spans.iter().map(|span| wall(span).as_secs_f64()).sum(),
        waited: spans.iter().map(waited).sum(),
    }
}

/// What the threads share.
#[derive(Clone)]
struct RunControl<'a> {
    barrier: &'a SpinBarrier,
    /// Iterations of each run.
    iterations: &'a AtomicU64,
    stop: &'a AtomicBool,
    repeat: Repeat,
}

impl RunControl<'_> {
    fn thread(
        &self,
        is_leader: bool,
        cpu: u32,
        mut work: impl Work,
    ) -> Result<Vec<ThreadSpan>, RooflineError> {
        // A thread that cannot be pinned still joins every barrier, since other threads wait there.
        let pinned = threads::pin(cpu).map_err(|error| RooflineError::Pin { cpu, error });
        work.touch();
        self.barrier.wait();
        if is_leader {
            let iterations_in = calibrate(&mut |iterations| {
                let before = clock::now();
                work.work(iterations);
                clock::now().saturating_sub(before)
            });
            self.iterations
                .store(iterations_in(self.repeat.min_run_time), Ordering::Relaxed);
        }
        let began = clock::now();
        let mut spans = Vec::with_capacity(self.repeat.runs);
        for run in 0..self.repeat.runs {
            let is_late = clock::now().saturating_sub(began) > self.repeat.max_total_time;
            if is_leader && run >= MIN_RUNS && is_late {
                self.stop.store(true, Ordering::Relaxed);
            }
            self.barrier.wait();
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let iterations = self.iterations.load(Ordering::Relaxed);
            let (start, before) = (clock::now(), clock::thread_time());
            work.work(iterations);
            spans.push(ThreadSpan {
                cpu_time: clock::thread_time().saturating_sub(before),
                start,
                end: clock::now(),
            });
        }
        pinned.map(|()| spans)
    }
}

/// Times trials of growing length. Returns a function from a duration to the number of iterations
/// that fill it, by the fastest trial: the others may have been interrupted.
fn calibrate(time_of: &mut dyn FnMut(u64) -> Duration) -> impl Fn(Duration) -> u64 + use<> {
    const LONG_ENOUGH: Duration = Duration::from_micros(200);
    let (mut iterations, mut fastest) = (1, f64::MAX);
    loop {
        let took = time_of(iterations);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let seconds_each = took.as_secs_f64() / iterations as f64;
        fastest = fastest.min(seconds_each);
        if took >= LONG_ENOUGH || iterations >= 1 << 40 {
            break;
        }
        iterations *= 4;
    }
    move |duration| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number, bounded"
        )]
        let count = (duration.as_secs_f64() / fastest.max(1e-12))
            .ceil()
            .min(1e12) as u64;
        count.max(1)
    }
}

/// A barrier on which threads spin, since a thread that sleeps starts late. Every 1024 spins they
/// yield the CPU.
struct SpinBarrier {
    threads: usize,
    arrived: AtomicUsize,
    /// Number of times that all threads have passed.
    generation: AtomicUsize,
    released: AtomicBool,
}

impl SpinBarrier {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            released: AtomicBool::new(false),
        }
    }

    /// Lets all threads pass from now on: one of them could not start.
    fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    fn wait(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
            return;
        }
        let mut spins = 0_u32;
        while self.generation.load(Ordering::Acquire) == generation
            && !self.released.load(Ordering::Acquire)
        {
            spins += 1;
            if spins.is_multiple_of(1024) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts the calls of `touch`, and the iterations.
    struct CountingWork<'a>(&'a AtomicU64, &'a AtomicU64);

    impl Work for CountingWork<'_> {
        fn touch(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn work(&mut self, iterations: u64) {
            self.1.fetch_add(iterations, Ordering::Relaxed);
            crate::sys::spin::spin(iterations * 1000);
        }
    }

    #[test]
    fn every_thread_touches_its_memory_and_takes_part_in_every_run() {
        let (touched, worked) = (AtomicU64::new(0), AtomicU64::new(0));
        let cpu = crate::roofline::tests::first_cpu();
        let work = (0..3).map(|_| (cpu, CountingWork(&touched, &worked)));
        let repeat = Repeat {
            runs: 4,
            min_run_time: Duration::from_micros(10),
            max_total_time: Duration::from_secs(3600),
        };
        let runs = timed(work.collect(), repeat).unwrap();
        assert_eq!(touched.into_inner(), 3);
        assert_eq!(runs.len(), 4);
        assert!(worked.into_inner() >= 3 * 4);
        for run in runs {
            assert!(
                run.seconds_per_iteration > 0.0 && run.waited <= run.wall,
                "{run:?}"
            );
        }
    }

    #[test]
    fn a_missing_cpu_is_named_and_blocks_no_thread() {
        let (touched, worked) = (AtomicU64::new(0), AtomicU64::new(0));
        let cpu = crate::roofline::tests::first_cpu();
        let work = [cpu, 999_999].map(|cpu| (cpu, CountingWork(&touched, &worked)));
        let repeat = Repeat {
            runs: 1,
            min_run_time: Duration::ZERO,
            max_total_time: Duration::ZERO,
        };
        let error = timed(work.into(), repeat).unwrap_err().to_string();
        assert!(
            error.starts_with("a thread may not run on CPU 999999"),
            "{error}"
        );
    }

    /// Of two threads, the first began later and lost a third of its time to other tasks.
    #[test]
    fn a_run_has_its_whole_length_and_reports_waiting() {
        let ms = Duration::from_millis;
        let span = |start, end, cpu_time| ThreadSpan {
            start: ms(start),
            end: ms(end),
            cpu_time: ms(cpu_time),
        };
        let run = merge_spans(&[span(10, 40, 20), span(0, 20, 20)], 4);
        assert!((run.seconds_per_iteration - 0.01).abs() < 1e-12, "{run:?}");
        assert!((run.wall - 0.05).abs() < 1e-12, "{run:?}");
        assert!((run.waited - 0.01).abs() < 1e-12, "{run:?}");
    }

    proptest! {
        /// Iterations of `each` ns fill the duration, without much more.
        #[test]
        fn calibrated_iterations_fill_a_duration(
            each in 1_u64..50_000_000,
            least in 0_u64..20_000_000,
        ) {
            let mut time_of = |iterations: u64| Duration::from_nanos(iterations * each);
            let count = calibrate(&mut time_of)(Duration::from_nanos(least));
            prop_assert!(count >= 1);
            prop_assert!(count * each + each >= least);
            prop_assert!(count == 1 || (count - 2) * each <= least);
        }
    }
}

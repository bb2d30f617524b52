//! Times work on several CPUs at once: threads that stay on their CPUs and start together.

use std::{
    hint, io,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::RooflineError;
use crate::sys::clock;

/// What one thread does.
pub(super) trait Work: Send {
    /// Writes its memory first, by which it is near to the thread's CPU.
    fn touch(&mut self);
    /// Does its work that many times, one at least.
    fn work(&mut self, times: u64);
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    /// Runs of which the best and the median count.
    pub(super) runs: usize,
    /// A run takes this long at least.
    pub(super) least: Duration,
    /// No new run is begun after so long, once there are [`FEWEST`].
    pub(super) most: Duration,
}

/// Runs that are made however long they take.
pub(super) const FEWEST: usize = 3;

/// One run of all threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// From the first start to the last end, for one time of the work.
    pub(super) each: f64,
    /// Seconds of all threads together, and those of them in which the thread did not run.
    pub(super) wall: f64,
    pub(super) waited: f64,
}

/// The work of each thread on its CPU.
///
/// # Errors
///
/// Where a thread may not run on its CPU, or cannot be made.
pub(super) fn timed<W: Work>(
    work: Vec<(u32, W)>,
    repeat: Repeat,
) -> Result<Vec<Run>, RooflineError> {
    let gate = Gate::new(work.len());
    let shared = Shared {
        gate: &gate,
        times: &AtomicU64::new(1),
        stop: &AtomicBool::new(false),
        repeat,
    };
    // One thread takes the time of all of them, by which the others go.
    let spans = thread::scope(|scope| {
        let begin = |(at, (cpu, work)): (usize, (u32, W))| {
            let shared = shared.clone();
            let builder = thread::Builder::new().name(format!("roofline {cpu}"));
            let begun = builder.spawn_scoped(scope, move || shared.thread(at == 0, cpu, work));
            if begun.is_err() {
                gate.open_for_ever();
            }
            begun.map_err(RooflineError::Thread)
        };
        let threads: Vec<_> = work.into_iter().enumerate().map(begin).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread?.join().expect("work does not panic"));
        joined.collect::<Result<Vec<Vec<Span>>, _>>()
    })?;
    let times = shared.times.load(Ordering::Relaxed);
    let runs = spans.iter().map(Vec::len).min().unwrap_or(0);
    Ok((0..runs)
        .map(|run| {
            let of_run: Vec<Span> = spans.iter().map(|spans| spans[run]).collect();
            together(&of_run, times)
        })
        .collect())
}

/// What one thread did in one run.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Duration,
    end: Duration,
    /// CPU time.
    ran: Duration,
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn together(spans: &[Span], times: u64) -> Run {
    let start = spans.iter().map(|span| span.start).min();
    let end = spans.iter().map(|span| span.end).max();
    let all = end.zip(start).map_or(Duration::ZERO, |(end, start)| {
        end.saturating_sub(start).max(Duration::from_nanos(1))
    });
    let wall = |span: &Span| span.end.saturating_sub(span.start);
    let waited = |span: &Span| wall(span).saturating_sub(span.ran).as_secs_f64();
    Run {
        each: all.as_secs_f64() / times as f64,
        wall: spans.iter().map(|span| wall(span).as_secs_f64()).sum(),
        waited: spans.iter().map(waited).sum(),
    }
}

#[derive(Clone)]
struct Shared<'a> {
    gate: &'a Gate,
    times: &'a AtomicU64,
    stop: &'a AtomicBool,
    repeat: Repeat,
}

impl Shared<'_> {
    fn thread(
        &self,
        leads: bool,
        cpu: u32,
        mut work: impl Work,
    ) -> Result<Vec<Span>, RooflineError> {
        // Without its CPU it goes through the gates all the same: the others wait there.
        let pinned = pin(cpu).map_err(|error| RooflineError::Pin { cpu, error });
        work.touch();
        self.gate.pass();
        if leads {
            let times = times(&mut |times| {
                let before = clock::now();
                work.work(times);
                clock::now().saturating_sub(before)
            });
            self.times
                .store(times(self.repeat.least), Ordering::Relaxed);
        }
        let began = clock::now();
        let mut spans = Vec::with_capacity(self.repeat.runs);
        for run in 0..self.repeat.runs {
            let late = clock::now().saturating_sub(began) > self.repeat.most;
            if leads && run >= FEWEST && late {
                self.stop.store(true, Ordering::Relaxed);
            }
            self.gate.pass();
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let times = self.times.load(Ordering::Relaxed);
            let (start, before) = (clock::now(), clock::thread_time());
            work.work(times);
            spans.push(Span {
                ran: clock::thread_time().saturating_sub(before),
                start,
                end: clock::now(),
            });
        }
        pinned.map(|()| spans)
    }
}

/// How often the work fits into a time: by tries of growing length, of which the fastest counts,
/// since others may have been interrupted.
fn times(time_of: &mut dyn FnMut(u64) -> Duration) -> impl Fn(Duration) -> u64 + use<> {
    const LONG_ENOUGH: Duration = Duration::from_micros(200);
    let (mut tries, mut each) = (1, f64::MAX);
    loop {
        let took = time_of(tries);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let one = took.as_secs_f64() / tries as f64;
        each = each.min(one);
        if took >= LONG_ENOUGH || tries >= 1 << 40 {
            break;
        }
        tries *= 4;
    }
    move |least| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number, bounded"
        )]
        let times = (least.as_secs_f64() / each.max(1e-12)).ceil().min(1e12) as u64;
        times.max(1)
    }
}

fn pin(cpu: u32) -> io::Result<()> {
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    let mut only = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}

/// Lets threads pass once all are there. Waiting threads spin, since one that sleeps starts late;
/// after a while they let others run.
struct Gate {
    threads: usize,
    here: AtomicUsize,
    passed: AtomicUsize,
    broken: AtomicBool,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            here: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// A thread that should come never will.
    fn open_for_ever(&self) {
        self.broken.store(true, Ordering::Release);
    }

    fn pass(&self) {
        let passed = self.passed.load(Ordering::Acquire);
        if self.here.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.here.store(0, Ordering::Relaxed);
            self.passed.store(passed + 1, Ordering::Release);
            return;
        }
        let mut turns = 0_u32;
        while self.passed.load(Ordering::Acquire) == passed && !self.broken.load(Ordering::Acquire)
        {
            turns += 1;
            if turns.is_multiple_of(1024) {
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

    struct Counted<'a>(&'a AtomicU64, &'a AtomicU64);

    impl Work for Counted<'_> {
        fn touch(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn work(&mut self, times: u64) {
            self.1.fetch_add(times, Ordering::Relaxed);
            crate::sys::spin::spin(times * 1000);
        }
    }

    #[test]
    fn every_thread_touches_its_memory_and_takes_part_in_every_run() {
        let (touched, worked) = (AtomicU64::new(0), AtomicU64::new(0));
        let cpu = crate::roofline::tests::first_cpu();
        let work = (0..3).map(|_| (cpu, Counted(&touched, &worked)));
        let repeat = Repeat {
            runs: 4,
            least: Duration::from_micros(10),
            most: Duration::from_secs(3600),
        };
        let runs = timed(work.collect(), repeat).unwrap();
        assert_eq!(touched.into_inner(), 3);
        assert_eq!(runs.len(), 4);
        assert!(worked.into_inner() >= 3 * 4);
        for run in runs {
            assert!(run.each > 0.0 && run.waited <= run.wall, "{run:?}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named_and_nobody_waits() {
        let (touched, worked) = (AtomicU64::new(0), AtomicU64::new(0));
        let cpu = crate::roofline::tests::first_cpu();
        let work = [cpu, 999_999].map(|cpu| (cpu, Counted(&touched, &worked)));
        let repeat = Repeat {
            runs: 1,
            least: Duration::ZERO,
            most: Duration::ZERO,
        };
        let error = timed(work.into(), repeat).unwrap_err().to_string();
        assert!(
            error.starts_with("a thread may not run on CPU 999999"),
            "{error}"
        );
    }

    /// Two threads, of which one began late and lost a third of its time to others.
    #[test]
    fn a_run_is_as_long_as_all_of_it_and_waiting_is_told() {
        let ms = Duration::from_millis;
        let span = |start, end, ran| Span {
            start: ms(start),
            end: ms(end),
            ran: ms(ran),
        };
        let run = together(&[span(10, 40, 20), span(0, 20, 20)], 4);
        assert!((run.each - 0.01).abs() < 1e-12, "{run:?}");
        assert!((run.wall - 0.05).abs() < 1e-12, "{run:?}");
        assert!((run.waited - 0.01).abs() < 1e-12, "{run:?}");
    }

    proptest! {
        /// Work of which one takes this many ns fills the time, without much more.
        #[test]
        fn a_time_is_filled(each in 1_u64..50_000_000, least in 0_u64..20_000_000) {
            let mut time_of = |times: u64| Duration::from_nanos(times * each);
            let times = times(&mut time_of)(Duration::from_nanos(least));
            prop_assert!(times >= 1);
            prop_assert!(times * each + each >= least);
            prop_assert!(times == 1 || (times - 2) * each <= least);
        }
    }
}

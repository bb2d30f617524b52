//! The stages of a run. Each is timed, and all run even if one fails. The run ends with a table of
//! the stages. The names of running stages are printed every ten seconds.

use std::{
    fmt::Write as _,
    fs,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Time between two lists of the running stages.
const INTERVAL: Duration = Duration::from_secs(10);

/// Numbers of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

struct Stage {
    name: String,
    /// Time since the run began.
    began: Duration,
    /// Time since the run began; None while the stage runs.
    ended: Option<Duration>,
    counts: Option<TestCounts>,
    error: Option<String>,
}

/// The stages of one run. Several may run at one time.
pub(crate) struct Stages {
    began: Instant,
    /// The machine's load when the run began.
    load: String,
    stages: Mutex<Vec<Stage>>,
}

impl Stages {
    /// Runs `work` and prints the table of its stages.
    ///
    /// # Errors
    ///
    /// The error of `work`, or the names of the stages that failed.
    pub(crate) fn run(work: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let stages = Self {
            began: Instant::now(),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
            stages: Mutex::default(),
        };
        let (end, ended) = mpsc::channel::<()>();
        let result = thread::scope(|scope| {
            let printed = &stages;
            scope.spawn(move || {
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    println!("{}", printed.running());
                }
            });
            let result = work(&stages);
            drop(end);
            result
        });
        print!("{}", stages.table());
        result?;
        let failed = stages.failed();
        if failed.is_empty() {
            return Ok(());
        }
        bail!("failed: {}", failed.join(", "))
    }

    /// Runs a stage. None if it failed: the error is printed at once and is in the table.
    pub(crate) fn stage<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        self.timed(name, || work().map(|value| (value, None)))
    }

    /// Runs a stage of tests. A failed test fails the stage; without counts, only an error does.
    pub(crate) fn tests(&self, name: &str, work: impl FnOnce() -> Result<Option<TestCounts>>) {
        self.timed(name, || work().map(|counts| ((), counts)));
    }

    fn timed<T>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<(T, Option<TestCounts>)>,
    ) -> Option<T> {
        println!("xtask: {name}");
        let index = {
            let mut stages = self.lock();
            stages.push(Stage {
                name: name.to_owned(),
                began: self.began.elapsed(),
                ended: None,
                counts: None,
                error: None,
            });
            stages.len() - 1
        };
        let result = work();
        let mut stages = self.lock();
        let stage = &mut stages[index];
        stage.ended = Some(self.began.elapsed());
        match result {
            Ok((value, counts)) => {
                stage.counts = counts;
                Some(value)
            }
            Err(error) => {
                println!("xtask: {name} failed: {error:#}");
                stage.error = Some(format!("{error:#}"));
                None
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Stage>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line that names the running stages.
    fn running(&self) -> String {
        let stages = self.lock();
        let now = self.began.elapsed();
        let running = stages.iter().filter(|stage| stage.ended.is_none());
        let names: Vec<_> = running
            .map(|stage| format!("{} ({} s)", stage.name, (now - stage.began).as_secs()))
            .collect();
        format!("xtask: {} s: {}", now.as_secs(), names.join(", "))
    }

    fn failed(&self) -> Vec<String> {
        let stages = self.lock();
        let failed = stages.iter().filter(|stage| stage.failed());
        failed.map(|stage| stage.name.clone()).collect()
    }

    /// One line for each stage, with its start and length in seconds.
    fn table(&self) -> String {
        let stages = self.lock();
        let width = stages
            .iter()
            .map(|stage| stage.name.len())
            .max()
            .unwrap_or(0)
            .max("all stages".len());
        let mut table = format!("\n{:width$}   from   took  result\n", "stage");
        let mut sum = TestCounts::default();
        for stage in stages.iter() {
            let took = stage.ended.unwrap_or_default().saturating_sub(stage.began);
            let counts = stage.counts.unwrap_or_default();
            sum.passed += counts.passed;
            sum.failed += counts.failed;
            sum.skipped += counts.skipped;
            let (name, began, took) = (&stage.name, stage.began.as_secs(), took.as_secs());
            let result = stage.result();
            let _ = writeln!(table, "{name:width$} {began:>4} s {took:>4} s  {result}");
        }
        let total = self.began.elapsed().as_secs();
        let _ = writeln!(
            table,
            "{:width$} {:>4} s {total:>4} s  load {} at the start\n",
            "all stages", 0, self.load
        );
        if sum != TestCounts::default() {
            let TestCounts {
                passed,
                failed,
                skipped,
            } = sum;
            let _ = writeln!(table, "{passed} passed, {failed} failed, {skipped} skipped");
        }
        table
    }
}

impl Stage {
    fn failed(&self) -> bool {
        self.error.is_some() || self.counts.is_some_and(|counts| counts.failed > 0)
    }

    fn result(&self) -> String {
        let mut parts = Vec::new();
        if let Some(counts) = self.counts {
            let TestCounts {
                passed,
                failed,
                skipped,
            } = counts;
            parts.push(format!(
                "{passed} passed, {failed} failed, {skipped} skipped"
            ));
        }
        // The whole error was printed when the stage ended.
        let error = self.error.as_deref().and_then(|error| error.lines().next());
        parts.extend(error.map(|error| format!("FAILED: {error}")));
        if parts.is_empty() {
            parts.push("ok".into());
        }
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn counts(passed: usize, failed: usize) -> Result<Option<TestCounts>> {
        Ok(Some(TestCounts {
            passed,
            failed,
            skipped: 1,
        }))
    }

    #[test]
    fn all_stages_run_and_failed_ones_are_named() {
        let ran = Stages::run(|stages| {
            let built: Option<()> = stages.stage("build", || Err(anyhow!("no disk\nmore")));
            assert!(built.is_none());
            stages.tests("host tests", || counts(3, 0));
            stages.tests("guests", || counts(2, 1));
            let table = stages.table();
            assert!(table.contains("FAILED: no disk\n"), "{table}");
            assert!(
                table.ends_with("5 passed, 1 failed, 2 skipped\n"),
                "{table}"
            );
            Ok(())
        });
        assert_eq!(ran.unwrap_err().to_string(), "failed: build, guests");
    }

    #[test]
    fn running_tests_are_named() {
        let ran = Stages::run(|stages| {
            stages.stage("set-up", || {
                assert!(stages.running().ends_with(" s: set-up (0 s)"));
                Ok(())
            });
            assert!(stages.running().ends_with(" s: "));
            Ok(())
        });
        ran.unwrap();
    }
}

//! Reads test results from a guest's console: the marks of init.sh, and libtest's lines.

use std::{
    collections::{BTreeMap, VecDeque},
    fs, mem,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    klog,
    totals::{Failure, Totals},
};

/// Number of a guest's last console lines to show if it died.
const TAIL: usize = 250;

/// Number of a failed test's last lines, or of a fault's first lines, to repeat at the end of the
/// run.
const REASON: usize = 12;

/// Which output of tests is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Everything, as it comes.
    All,
    /// The output of failed and skipped tests, as test runners show it.
    Failures,
}

struct RunningTest {
    name: String,
    since: Instant,
    /// Whether libtest's summary reports one passed test.
    passed: bool,
    skipped: bool,
    output: Vec<String>,
}

/// One guest's console so far. Its methods return lines to print.
pub(super) struct Report<'a> {
    guest: &'a str,
    totals: &'a mut Totals,
    /// Announced tests that have not begun.
    plan: VecDeque<String>,
    /// Number of all announced tests.
    planned: usize,
    /// Whether a guest without tests is a failure.
    expects_tests: bool,
    show: Show,
    running: Option<RunningTest>,
    /// Kernel log lines from before, between and after the tests.
    log: Vec<String>,
    ended: bool,
    tail: VecDeque<String>,
    /// Text by name, from a test's lines `recording NAME TEXT`.
    recordings: BTreeMap<String, String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        guest: &'a str,
        totals: &'a mut Totals,
        expects_tests: bool,
        show: Show,
    ) -> Self {
        Self {
            guest,
            totals,
            plan: VecDeque::new(),
            planned: 0,
            expects_tests,
            show,
            running: None,
            log: Vec::new(),
            ended: false,
            tail: VecDeque::new(),
            recordings: BTreeMap::new(),
        }
    }

    /// Whether the guest has announced its tests.
    pub(super) fn booted(&self) -> bool {
        self.planned > 0 || self.ended
    }

    /// Reads one line; returns the lines to show.
    pub(super) fn line(&mut self, line: &str) -> Vec<String> {
        let line = line.trim_end();
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_string());
        if let Some(mark) = line.strip_prefix("@@ ") {
            return self.mark(mark);
        }
        let Some(running) = self.running.as_mut() else {
            if is_kernel_log(line) {
                self.log.push(format!("    {line}"));
            }
            return Vec::new();
        };
        let text = match line.strip_prefix("test ") {
            Some(rest) => rest
                .strip_prefix(running.name.as_str())
                .and_then(|rest| rest.strip_prefix(" ..."))
                .map_or(line, str::trim_start),
            None => line,
        };
        if let Some((name, recorded)) = text
            .strip_prefix("recording ")
            .and_then(|rest| rest.split_once(' '))
        {
            let recording = self.recordings.entry(name.to_owned()).or_default();
            recording.push_str(recorded);
            recording.push('\n');
            return Vec::new();
        }
        running.passed |= text.starts_with("test result: ok. 1 passed;");
        running.skipped |= text.starts_with("skipped: ") || text == "ignored";
        let noise = ["", "ok", "ignored", "FAILED", "running 1 test", "failures:"].contains(&text)
            || text.trim_start() == running.name
            || text.starts_with("test result: ");
        if noise {
            return Vec::new();
        }
        let shown = format!("    {text}");
        running.output.push(shown.clone());
        match self.show {
            Show::All => vec![shown],
            Show::Failures => Vec::new(),
        }
    }

    fn mark(&mut self, mark: &str) -> Vec<String> {
        let (kind, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        let name = rest.split_once(' ').map_or(rest, |(_binary, name)| name);
        match kind {
            "plan" => {
                self.plan.push_back(name.to_string());
                self.planned += 1;
                Vec::new()
            }
            "begin" => {
                self.plan.pop_front();
                self.running = Some(RunningTest {
                    name: name.to_string(),
                    since: Instant::now(),
                    passed: false,
                    skipped: false,
                    output: Vec::new(),
                });
                Vec::new()
            }
            "exit" => self.exit(rest),
            "end" => {
                self.ended = true;
                self.log_outside()
            }
            // A failure before the tests; `rest` is its message.
            _ => vec![self.fail(rest, Vec::new())],
        }
    }

    fn exit(&mut self, status: &str) -> Vec<String> {
        let Some(RunningTest {
            name,
            since,
            passed,
            skipped,
            output,
        }) = self.running.take()
        else {
            return Vec::new();
        };
        let log: Vec<String> = output
            .iter()
            .filter(|line| is_kernel_log(line))
            .cloned()
            .collect();
        let fault = klog::fault(&log).map(|at| first_lines(&log[at..]));
        let is_clean = fault.is_none();
        let fault = fault.unwrap_or_default();
        let verdict = match (status, passed, skipped) {
            ("0", _, true) if is_clean => {
                self.totals.skipped += 1;
                "skipped"
            }
            ("0", true, false) if is_clean => {
                self.totals.passed += 1;
                "ok     "
            }
            ("0", true, _) | ("0", _, true) => {
                self.fail(&name, fault);
                "FAILED "
            }
            _ => {
                self.fail(&name, [last_lines(&output), fault].concat());
                "FAILED "
            }
        };
        let mut lines = match self.show {
            Show::All => Vec::new(),
            // Warnings of the kernel are always shown.
            Show::Failures if verdict.trim_end() == "ok" => (output.into_iter())
                .filter(|line| is_kernel_log(line))
                .collect(),
            Show::Failures => output,
        };
        let seconds = since.elapsed().as_secs_f32();
        let status = match status {
            "0" if !is_clean => ", a fault in the kernel's log".into(),
            // 101 is libtest's exit status of a failed test, which the verdict already shows.
            "0" | "101" => String::new(),
            other => format!(", exit status {other}"),
        };
        lines.push(format!("{verdict} {name} ({seconds:.1} s{status})"));
        lines
    }

    /// Handles the end of the guest: tests that did not run count as failed.
    pub(super) fn close(&mut self, why: &Death) -> Vec<String> {
        let mut lines = self.log_outside();
        if self.ended {
            if self.planned == 0 && self.expects_tests {
                lines.push(self.fail("the guest has none of the tests of its row", Vec::new()));
            }
            return lines;
        }
        let when = match (&self.running, self.booted()) {
            (Some(running), _) => format!("while {} ran", running.name),
            (None, true) => "between two tests".into(),
            (None, false) => "before its first test".into(),
        };
        lines.push("the last lines of its console:".to_string());
        lines.extend(self.tail.drain(..).map(|line| format!("  | {line}")));
        let what = match why {
            Death::Quit => format!("the guest died {when}"),
            Death::Silent(limit) => {
                let seconds = limit.as_secs();
                format!("the guest hung {when}: ended after {seconds} s")
            }
        };
        let output = self
            .running
            .take()
            .map_or(Vec::new(), |running| running.output);
        lines.push(self.fail(&what, last_lines(&output)));
        while let Some(name) = self.plan.pop_front() {
            lines.push(self.fail(&format!("{name} (not run)"), Vec::new()));
        }
        lines
    }

    /// Counts a fault in the kernel's log outside of the tests as a failure of the guest.
    fn log_outside(&mut self) -> Vec<String> {
        let log = mem::take(&mut self.log);
        let Some(at) = klog::fault(&log) else {
            return Vec::new();
        };
        let what = "a fault in the kernel's log, outside of the tests";
        let failed = self.fail(what, first_lines(&log[at..]));
        log.into_iter().chain([failed]).collect()
    }

    /// Counts a failure with its reason; returns the line to show.
    fn fail(&mut self, what: &str, reason: Vec<String>) -> String {
        self.totals.failed.push(Failure {
            guest: self.guest.to_owned(),
            what: what.to_owned(),
            reason,
        });
        format!("FAILED  {what}")
    }

    /// Writes each recording of the tests into its own file.
    pub(super) fn write_recordings(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        for (name, text) in &self.recordings {
            let file = directory.join(name).with_extension("jsonl");
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            println!("[{}] wrote {}", self.guest, file.display());
        }
        Ok(())
    }

    /// Number of tests that the guest announced.
    pub(super) fn planned(&self) -> usize {
        self.planned
    }
}

/// The last lines of a test's output, without kernel log lines.
fn last_lines(output: &[String]) -> Vec<String> {
    let own: Vec<_> = (output.iter())
        .filter(|line| !is_kernel_log(line))
        .collect();
    let last = own[own.len().saturating_sub(REASON)..].iter();
    last.map(ToString::to_string).collect()
}

/// The first lines of a fault.
fn first_lines(log: &[String]) -> Vec<String> {
    log.iter().take(REASON).cloned().collect()
}

/// Whether a line is from the kernel's log, as init.sh prints it.
fn is_kernel_log(line: &str) -> bool {
    line.trim_start().starts_with("kernel: ")
}

/// Why a guest ended before its tests did.
pub(super) enum Death {
    /// QEMU ended: a panic, a power-off by a test, a QEMU that does not start.
    Quit,
    /// The console showed no mark of init.sh for this time.
    Silent(Duration),
}

#[cfg(test)]
mod tests;

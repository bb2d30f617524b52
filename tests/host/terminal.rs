//! `stat -I` on a terminal and into a pipe.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
    process::{Child, Stdio},
};

use rustix::{
    fs::OFlags,
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use test_harness::{pmuscope, shared_machine};

/// A pseudoterminal: `written` is the side of the test, and `programs` is the side of the programs.
pub(crate) struct Terminal {
    pub(crate) written: File,
    pub(crate) programs: File,
}

impl Terminal {
    /// None, with a printed reason, where the system has no pseudoterminals.
    pub(crate) fn open(columns: u16, lines: u16) -> Option<Self> {
        let opened = || -> io::Result<(OwnedFd, File)> {
            let written = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
            grantpt(&written)?;
            unlockpt(&written)?;
            let name = ptsname(&written, Vec::new())?;
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.custom_flags(OFlags::NOCTTY.bits().cast_signed());
            Ok((written, options.open(name.to_string_lossy().as_ref())?))
        };
        let (written, programs) = match opened() {
            Ok(opened) => opened,
            Err(error) => {
                println!("skipped: no pseudo-terminal can be opened here: {error}");
                return None;
            }
        };
        let terminal = Self {
            written: written.into(),
            programs,
        };
        terminal.resize(columns, lines);
        Some(terminal)
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let size = Winsize {
            ws_col: columns,
            ws_row: lines,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.programs, size).unwrap();
    }

    pub(crate) fn stdio(&self) -> Stdio {
        self.programs.try_clone().unwrap().into()
    }

    /// Reads until `enough` is true, or until the programs have ended.
    fn read(&mut self, text: &mut String, enough: impl Fn(&str) -> bool) {
        let mut bytes = [0; 4096];
        while !enough(text) {
            // A read from a terminal fails with EIO at the end.
            let Ok(read @ 1..) = self.written.read(&mut bytes) else {
                return;
            };
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }
}

/// Output of `stat -I INTERVAL` on a terminal, interrupted after a number of windows, or until its
/// command ends.
fn output_on_terminal(
    term: &str,
    interval: &str,
    windows: usize,
    arguments: &[&str],
) -> Option<String> {
    let mut terminal = Terminal::open(80, 24)?;
    let mut command = pmuscope();
    command.args(["stat", "-I", interval, "-e", "task-clock"]);
    command.args(arguments).env("TERM", term);
    command.stdin(Stdio::null());
    command.stdout(terminal.stdio()).stderr(terminal.stdio());
    let child: Child = command.spawn().unwrap();
    // The command holds the programs' side of the terminal open, which would prevent the end of the
    // reads.
    drop(command);
    terminal.programs = File::open("/dev/null").unwrap();
    let mut text = String::new();
    terminal.read(&mut text, |text| {
        text.matches(" s, for ").count() >= windows
    });
    if arguments.is_empty() {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    terminal.read(&mut text, |_| false);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    Some(text)
}

/// The end of the escape sequences before a window that is drawn over the last one, and its first
/// word.
const UP: &str = "A\u{1b}[Kafter";

#[test]
fn on_a_terminal_a_window_takes_the_place_of_the_one_before() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(text) = output_on_terminal("xterm", "50", 20, &[]) else {
        return;
    };
    // The first windows are separated by messages of the start, and so are not redrawn.
    assert!(text.matches(UP).count() >= 10, "{text:?}");
    // The last window remains on the screen.
    let last = text.rsplit("\u{1b}[J").next().unwrap();
    assert!(last.contains(" total "), "{text:?}");
    assert!(
        last.lines().all(|line| line.chars().count() <= 80),
        "{text:?}"
    );
}

/// The run ends after the first tick: one window is drawn at the tick, and one at the end.
#[test]
fn the_end_draws_what_was_counted_since_the_last_window() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(text) = output_on_terminal("xterm", "500", 1, &[]) else {
        return;
    };
    let elapsed = text.lines().filter_map(|line| {
        let (elapsed, _) = line.split_once(" s, for ")?;
        elapsed.split_whitespace().last()?.parse::<f64>().ok()
    });
    let elapsed: Vec<f64> = elapsed.collect();
    // The end may follow the tick within a millisecond.
    assert!(elapsed.len() > 1 && elapsed.is_sorted(), "{text:?}");
}

/// The text that a shell writes between Ctrl-Z and `fg` remains.
#[test]
fn after_a_stop_a_window_is_drawn_below_what_others_wrote() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(mut terminal) = Terminal::open(80, 24) else {
        return;
    };
    let mut command = pmuscope();
    command.args(["stat", "-I", "50", "-e", "task-clock"]);
    command.env("TERM", "xterm").stdin(Stdio::null());
    command.stdout(terminal.stdio()).stderr(terminal.stdio());
    let child: Child = command.spawn().unwrap();
    drop(command);
    let pid = Pid::from_child(&child);
    let mut text = String::new();
    terminal.read(&mut text, |text| text.matches(UP).count() >= 2);
    kill_process(pid, Signal::STOP).unwrap();
    waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    terminal.programs.write_all(b"$ fg\n").unwrap();
    terminal.read(&mut text, |text| text.contains("$ fg\r\n"));
    kill_process(pid, Signal::CONT).unwrap();
    terminal.programs = File::open("/dev/null").unwrap();
    let after = |text: &str| text.split("$ fg\r\n").nth(1).unwrap_or_default().to_owned();
    terminal.read(&mut text, |text| after(text).contains(UP));
    kill_process(pid, Signal::INT).unwrap();
    terminal.read(&mut text, |_| false);
    assert!(child.wait_with_output().unwrap().status.success(), "{text}");
    let after = after(&text);
    let (first, _) = after.split_once(UP).unwrap();
    assert!(first.contains(" s, for "), "{text:?}");
}

#[test]
fn windows_follow_each_other_where_nothing_can_be_drawn_over() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let with_command = ["--", "sleep", "0.3"];
    for (term, arguments) in [("dumb", &[][..]), ("xterm", &with_command)] {
        let Some(text) = output_on_terminal(term, "50", 3, arguments) else {
            return;
        };
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains(" total "), "{text:?}");
    }
}

//! `top` on a terminal, whose screen an emulator keeps.

use std::{
    io::{Read as _, Write as _},
    num::NonZero,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
    termios::{LocalModes, tcgetattr},
};
use test_harness::{pmuscope, shared_machine};
use vt100::Parser;

use crate::terminal::Terminal;

/// `pmuscope top` with its screen.
struct TopScreen {
    terminal: Terminal,
    emulator: Parser,
    child: Child,
}

impl TopScreen {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Option<Self> {
        let terminal = Terminal::open(80, 24)?;
        let child = command(&terminal, arguments, variables).spawn().unwrap();
        Some(Self {
            terminal,
            emulator: Parser::new(size(24), size(80), 0),
            child,
        })
    }

    /// Starts `top` with [`ARGUMENTS`], and waits until it has drawn a window.
    fn running() -> Option<Self> {
        let mut top = Self::start(&ARGUMENTS, &[])?;
        top.until(|top| top.text().contains("every 50ms"));
        Some(top)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn text(&self) -> String {
        self.emulator.screen().contents()
    }

    fn last_line(&self) -> String {
        let (lines, columns) = self.emulator.screen().size();
        let mut rows = self.emulator.screen().rows(0, columns.get());
        rows.nth(usize::from(lines.get()) - 1).unwrap()
    }

    /// Reads until the screen is as expected.
    fn until(&mut self, enough: impl Fn(&Self) -> bool) {
        let mut bytes = [0; 4096];
        while !enough(self) {
            // The test holds the programs' side open, so a read does not end with the program.
            let mut ready = [PollFd::new(&self.terminal.written, PollFlags::IN)];
            let wait = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            if poll(&mut ready, Some(&wait)).unwrap() == 0 {
                let ended = self.child.try_wait().unwrap();
                assert!(ended.is_none(), "{ended:?}: {}", self.text());
                continue;
            }
            let read = self.terminal.written.read(&mut bytes).unwrap();
            self.emulator.process(&bytes[..read]);
        }
    }

    /// Presses keys, and waits for a text on the screen.
    fn press(&mut self, keys: &str, text: &str) {
        self.terminal.written.write_all(keys.as_bytes()).unwrap();
        self.until(|screen| screen.text().contains(text));
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.terminal.programs).unwrap().local_modes
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `pmuscope top` in its own process group, as a job of a shell.
fn command(terminal: &Terminal, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = pmuscope();
    command.arg("top").args(arguments);
    command.env("TERM", "xterm").envs(variables.iter().copied());
    command.stdin(terminal.stdio()).stdout(terminal.stdio());
    command.stderr(terminal.stdio()).process_group(0);
    command
}

fn size(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).unwrap()
}

const ARGUMENTS: [&str; 4] = ["-I", "50", "-e", "task-clock,page-faults"];

/// The key Down, as a terminal sends it.
const DOWN: &str = "\u{1b}[B";

/// Keys change the view, messages leave the keys in view, and all of the terminal is used after a
/// change of its size.
#[test]
fn keys_change_the_view() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(mut top) = TopScreen::running() else {
        return;
    };
    assert!(top.last_line().starts_with(" q end"), "{}", top.text());
    top.press("?", "choose what rows stand for");
    top.press("?+", "every 100ms");
    top.press("c", "[x] page-faults");
    top.press(&format!("c{DOWN}"), "columns");
    top.press("/no-row-has-this", "has /no-row-has-this in its name");
    assert!(top.last_line().starts_with(" q end"), "{}", top.text());
    top.press("\r", "only /no-row-has-this");
    // Esc is recognised as a key only when nothing follows it.
    top.press("\u{1b}", " of ");

    top.terminal.resize(120, 40);
    top.emulator.screen_mut().set_size(size(40), size(120));
    kill_process(top.pid(), Signal::WINCH).unwrap();
    top.until(|top| top.last_line().contains("+ - interval"));

    // Counting starts again, and the first window comes soon after.
    top.press("bbb", "processes  (starts to count again)");
    top.press(&format!("b{DOWN}"), "Rows by");
    top.press("\u{1b}", "every 100ms");
    top.press("p", "paused");
    top.press("p", "every 100ms");
    top.press("q", "");
    assert!(top.child.wait().unwrap().success());
}

/// A key arrives while the terminal reports a change of its size.
#[test]
fn no_key_is_lost_while_the_size_changes() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(mut top) = TopScreen::running() else {
        return;
    };
    for columns in 0..50 {
        for shown in ["paused", "every 50ms"] {
            top.terminal.resize(80 + columns % 2, 24);
            top.press("p", shown);
        }
    }
    top.press("q", "");
    assert!(top.child.wait().unwrap().success());
}

/// Rows by process come from a new session, in the same view.
#[test]
fn rows_by_process_come_from_a_new_session() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(mut top) = TopScreen::running() else {
        return;
    };
    top.press("bbbb", "(starts to count again)");
    top.press("\r", "process, pid");
    // The next kinds are containers, pods and cgroups.
    top.press("bbbb", "cgroups  (starts to count again)");
    top.press("\r", " cgroup ");
    top.press("q", "");
    assert!(top.child.wait().unwrap().success());
}

/// An open row of the host has this test among its processes.
#[test]
fn a_row_opens_with_its_processes() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut arguments = ARGUMENTS.to_vec();
    arguments.extend(["--by", "cgroup"]);
    let Some(mut top) = TopScreen::start(&arguments, &[]) else {
        return;
    };
    top.until(|top| top.text().contains("task-clock"));
    top.press("\r", "Processes: ");
    top.press("", "as in /proc");
    top.press("\r", " of ");
    top.press("q", "");
    assert!(top.child.wait().unwrap().success());
}

/// Ctrl-Z gives the terminal back until the shell continues it.
#[test]
fn control_z_suspends() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(mut top) = TopScreen::start(&ARGUMENTS, &[]) else {
        return;
    };
    let shell = LocalModes::ICANON | LocalModes::ECHO;
    top.until(|top| top.text().contains("every 50ms"));
    assert!(!top.modes().intersects(shell));
    for _ in 0..2 {
        top.terminal.written.write_all(b"\x1a").unwrap();
        let stopped = waitpid(Some(top.pid()), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.unwrap().1.stopped());
        assert!(top.modes().contains(shell));
        top.until(|top| !top.emulator.screen().alternate_screen());
        kill_process(top.pid(), Signal::CONT).unwrap();
        top.until(|top| {
            top.emulator.screen().alternate_screen() && top.last_line().starts_with(" q end")
        });
        assert!(!top.modes().intersects(shell));
    }
    top.press("q", "");
    assert!(top.child.wait().unwrap().success());
    assert!(top.modes().contains(shell));
}

/// Without colours (<https://no-color.org>) cells still have their other attributes.
#[test]
fn no_color_is_respected() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut arguments = ARGUMENTS.to_vec();
    arguments.extend(["--by", "process"]);
    let Some(mut top) = TopScreen::start(&arguments, &[("NO_COLOR", "1")]) else {
        return;
    };
    top.until(|top| top.text().contains("task-clock"));
    let screen = top.emulator.screen();
    let cells =
        (0..24).flat_map(|line| (0..80).filter_map(move |column| screen.cell(line, column)));
    let cells: Vec<_> = cells.collect();
    assert!(
        cells
            .iter()
            .all(|cell| cell.fgcolor() == vt100::Color::Default)
    );
    assert!(cells.iter().any(|cell| cell.inverse()));
}

#[test]
fn top_says_what_to_use_where_it_cannot_draw() {
    let refused = |command: &mut Command| {
        let output = command.stderr(Stdio::piped()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused(pmuscope().arg("top").stdin(Stdio::null()));
    assert!(
        error.contains("top needs a terminal: use `pmuscope stat -I 1000`"),
        "{error}"
    );
    let error = refused(pmuscope().args(["top", "--", "true"]));
    assert!(error.contains("top runs no command"), "{error}");
    let Some(terminal) = Terminal::open(80, 24) else {
        return;
    };
    let error = refused(&mut command(&terminal, &[], &[("TERM", "dumb")]));
    assert!(error.contains("use `pmuscope stat -I 1000`"), "{error}");
    // An error of the start leaves the terminal as it was.
    let modes = tcgetattr(&terminal.programs).unwrap().local_modes;
    let error = refused(&mut command(&terminal, &["-e", "no-such-event"], &[]));
    assert!(error.contains("no-such-event"), "{error}");
    assert_eq!(tcgetattr(&terminal.programs).unwrap().local_modes, modes);
}

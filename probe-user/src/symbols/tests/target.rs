//! A compiled test program that prints the addresses of its functions.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{
    machine::Roots,
    symbols::{AddressOwner, Symbols},
};

/// Compiles the program, with these arguments of the compiler.
pub(super) fn compile(directory: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/symbols/tests/target.c");
    let program = directory.join(name);
    run(Command::new("cc")
        .args([source, "-o"])
        .arg(&program)
        .args(arguments));
    program
}

pub(super) fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// The running test program.
pub(super) struct Target {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Target {
    pub(super) fn start(program: &Path) -> Self {
        Self::run_by(&mut Command::new(program))
    }

    /// Starts a command that executes the program.
    pub(super) fn run_by(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Sends a line to the program. Returns the address that it prints.
    pub(super) fn ask(&mut self, line: &str) -> u64 {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        u64::from_str_radix(answer.trim(), 16).unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the program's input, and waits for its end.
    pub(super) fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Symbols without a watch.
pub(super) fn symbols() -> Symbols {
    Symbols::new(&Roots::default())
}

/// The current function at an address of a process.
pub(super) fn function(symbols: &mut Symbols, pid: u32, address: u64) -> Option<String> {
    let place = symbols.name(AddressOwner::Process(pid), address, None);
    place.function.map(|name| name.to_string())
}

/// Whether this process is root; if not, prints that the test is skipped.
pub(super) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root to follow processes and to make namespaces");
    }
    root
}

/// Symbols with a watch of all processes.
pub(super) fn following() -> Symbols {
    let mut symbols = symbols();
    let cpus = crate::machine::cpus::online(&Roots::default().sys).unwrap();
    let cpus: Vec<u32> = cpus.iter().collect();
    symbols.follow(&cpus).unwrap();
    symbols
}

//! Loads: programs with known work, which wait for a start signal.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::program;

/// A load. Dropping it kills the process.
pub struct Load(Child);

impl Load {
    /// Starts a load that waits for [`Self::go`], in the cgroup of the test process.
    pub fn waiting(binary: &Path, arguments: &str) -> Self {
        let mut command = Command::new(binary);
        command
            .args(arguments.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let load = Self(command.spawn().unwrap());
        load.wait_until_it_sleeps();
        load
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until the load reads its standard input, which it does when it is ready.
    fn wait_until_it_sleeps(&self) {
        let reading = || {
            let path = format!("/proc/{}/syscall", self.pid());
            // System call 0 of x86-64 and 63 of arm64 are read(2). The descriptor is 0.
            let text = fs::read_to_string(path).unwrap();
            text.starts_with("0 0x0 ") || text.starts_with("63 0x0 ")
        };
        while !reading() {
            std::thread::yield_now();
        }
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Closes the standard input, which starts the work.
    pub fn go(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Waits for the exit and returns stdout.
    pub fn finish(mut self) -> String {
        self.go();
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        text
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The example `load`.
pub fn load_binary() -> PathBuf {
    program("PMUSCOPE_LOAD", "examples/load")
}

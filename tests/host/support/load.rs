//! Loads: programs whose work is known, and that wait until they are told to begin.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A load, killed at the end of the test where it still runs.
pub(crate) struct Load(Child);

impl Load {
    /// One that waits for [`Self::go`], in the cgroup of the test.
    pub(crate) fn waiting(binary: &Path, words: &str) -> Self {
        let mut command = Command::new(binary);
        command
            .args(words.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let load = Self(command.spawn().unwrap());
        load.wait_until_it_sleeps();
        load
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// It reads its standard input once it is loaded.
    fn wait_until_it_sleeps(&self) {
        let reading = || {
            let path = format!("/proc/{}/syscall", self.pid());
            // "0" is read(2) on x86-64, "63" on arm64; descriptor 0.
            let text = fs::read_to_string(path).unwrap();
            text.starts_with("0 0x0 ") || text.starts_with("63 0x0 ")
        };
        while !reading() {
            std::thread::yield_now();
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Lets it start.
    pub(crate) fn go(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Waits for its end and returns what it printed.
    pub(crate) fn finish(mut self) -> String {
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

/// `load`, built as an example beside the tests.
pub(crate) fn load_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("PMUSCOPE_LOAD") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples/load");
    assert!(
        built.exists(),
        "{} is not built: run `cargo xtask test`",
        built.display()
    );
    built
}

//! Captures log messages.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The captured log.
#[derive(Clone, Default)]
pub struct Messages(Arc<Mutex<Vec<u8>>>);

impl Messages {
    /// Captures this thread's messages that pass the filter, until the guard is dropped.
    pub fn in_thread(filter: &str) -> (Self, tracing::subscriber::DefaultGuard) {
        let messages = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_writer(messages.clone())
            .without_time()
            .with_ansi(false)
            .finish();
        (messages, tracing::subscriber::set_default(subscriber))
    }

    /// Captures all messages of the process from here on, including those of the BPF programs.
    pub fn with_kernel_log() -> Self {
        let messages = Self::default();
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("info,kernel=debug"))
            .with_writer(messages.clone())
            .without_time()
            .with_ansi(false)
            .init();
        messages
    }

    /// The lines since the last call that contain this text.
    pub fn take(&self, text: &str) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let all = String::from_utf8(bytes).unwrap();
        println!("{all}");
        let lines = all.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}

impl io::Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Messages {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

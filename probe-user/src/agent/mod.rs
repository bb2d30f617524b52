//! Agent: counts all the time, and shows the last window to whoever asks.
//!
//! One loop pulls by a timer; a thread of its own serves what the loop published. What is exported
//! goes through the ledger, so that counters never step back, whatever happens to the session.

mod beside;
pub mod config;
mod counting;
mod folded;
mod http;
mod json_lines;
mod ledger;
mod memory;
mod otlp;
mod overhead;
mod own;
mod pem;
mod published;
mod rights;
mod run_directory;
mod running;
mod saver;
mod state_directory;

use std::{io, path::Path, process::Command, sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

pub use self::{
    config::{Config, ConfigError, Sources},
    counting::{CountingError, memory_in_words},
    http::{ServerError, WebError},
    memory::Node,
    run_directory::RunError,
    saver::save_for_parent,
    state_directory::StateDirectoryHeld,
};
use self::{
    http::Server, published::Published, rights::Kept, run_directory::RunDirectory, running::Running,
};
use crate::pipeline::{every, tick};

/// Why an agent cannot start, or had to end. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The run directory.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The state's directory.
    #[error(transparent)]
    State(#[from] StateDirectoryHeld),
    /// The server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Counting.
    #[error(transparent)]
    Counting(#[from] Box<CountingError>),
    /// The file of JSON lines.
    #[error("cannot write {to}: {source}; name another file by json.path")]
    Json {
        /// The file.
        to: String,
        /// Why.
        source: io::Error,
    },
    /// The thread that asks for names.
    #[error("cannot ask runtimes for names: {0}")]
    Names(io::Error),
    /// The thread that pushes windows to a collector.
    #[error("cannot push to the collector of otlp.endpoint: {0}")]
    Push(io::Error),
    /// Capabilities.
    #[error("cannot give up capabilities: {0}")]
    Rights(io::Error),
    /// Timers and signals.
    #[error("cannot wait for timers and signals: {0}")]
    Runtime(io::Error),
}

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The settings, which a reload reads again.
    pub sources: Sources,
    /// Give up all capabilities once counting began: there is no way back then after hot-plug, a
    /// reload, or a time in which it was off.
    pub drop_all: bool,
    /// Counting goes on in pinned maps when the agent is told to end.
    pub keep_pins: bool,
    /// Starts a process that calls [`save_for_parent`] with this directory.
    pub save_state: fn(&Path) -> Command,
    /// Has messages of the kernel's programs shown, or not: to be called before counting begins.
    pub show_kernel_log: fn(bool),
}

/// Reads the files that a start would read: certificates, keys, the web configuration.
///
/// # Errors
///
/// Why the start would end.
pub fn check_files(config: &Config) -> Result<(), AgentError> {
    if config.http.listen.is_some() {
        http::check(config.http.web_config.as_ref())?;
    }
    otlp::check_files(&config.otlp).map_err(AgentError::Push)
}

/// The first window is this short, so that there is something to show soon.
const FIRST_WINDOW: Duration = Duration::from_secs(1);

/// Runs an agent until it is told to end.
///
/// # Errors
///
/// Why it cannot start. Later failures are logged and counted, and it goes on.
pub fn run(options: Options) -> Result<(), AgentError> {
    let config = options.sources.read()?;
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(AgentError::Runtime)?
        .block_on(serve(options, config))
}

async fn serve(options: Options, config: Config) -> Result<(), AgentError> {
    let mut signals = Signals::listen().map_err(AgentError::Runtime)?;
    let directory = RunDirectory::take(&config.run)?;
    let listen = config.http.listen;
    let server = listen.map(|address| Server::listen(address, config.http.web_config.as_ref()));
    let server = server.transpose()?;
    let published = Arc::new(Published::default());
    let mut timer = first_window(config.interval);
    let mut running = Running::start(options, config, directory, Arc::clone(&published))?;
    running.give_up_rights().map_err(AgentError::Rights)?;
    if let Some(server) = server {
        server.answer(published)?;
    }
    notify(&[NotifyState::Ready]);
    // Half of the time after which the manager would act.
    let mut watchdog = sd_notify::watchdog_enabled().map(|within| every(within / 2));
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => {
                begin_reload();
                if let Some(interval) = running.reload() {
                    timer = every(interval);
                }
                notify(&[NotifyState::Ready]);
            }
            _ = timer.tick() => if let Some(interval) = running.window() {
                timer = every(interval);
            },
            () = tick(&mut watchdog) => notify(&[NotifyState::Watchdog]),
            interval = running.event() => if let Some(interval) = interval {
                timer = every(interval);
            }
        }
    }
    notify(&[NotifyState::Stopping]);
    running.end();
    Ok(())
}

/// The signals that an agent follows.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

fn first_window(interval: Duration) -> Interval {
    let first = Instant::now() + interval.min(FIRST_WINDOW);
    let mut timer = interval_at(first, interval);
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    timer
}

fn begin_reload() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Tells the service manager, where there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("cannot tell the service manager: {error}");
    }
}

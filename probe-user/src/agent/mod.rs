//! The agent: counts continuously, and serves the last window over HTTP.
//!
//! One loop pulls by a timer (`Running`); a thread of its own serves what the loop published
//! (`Published`). Exported totals go through the `Ledger`: counters never decrease, whatever
//! happens to the session.

pub mod config;
mod counting;
mod folded;
mod http;
mod json_lines;
mod ledger;
mod memory;
mod otlp;
mod outputs;
mod overhead;
mod pem;
mod privileges;
mod published;
mod run_directory;
mod running;
mod saver;
mod self_report;
mod state_directory;

use std::{
    io,
    path::Path,
    process::{self, Command},
    sync::Arc,
    thread,
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep},
};

pub(crate) use self::counting::{default_request, plan_within};
pub use self::{
    config::{Config, ConfigError, Sources},
    counting::{CountingError, memory_in_words},
    http::{ServerError, WebError},
    memory::Node,
    run_directory::RunError,
    saver::save_for_parent,
    state_directory::StateDirectoryLocked,
};
use self::{
    http::Server, privileges::KeptCapabilities, published::Published, run_directory::RunDirectory,
    running::Running,
};
use crate::pipeline::{every, tick};

/// Why an agent cannot start, or had to end. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The run directory cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Another agent saves its totals in the state directory.
    #[error(transparent)]
    State(#[from] StateDirectoryLocked),
    /// The server cannot start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Counting cannot start.
    #[error(transparent)]
    Counting(#[from] Box<CountingError>),
    /// The file of JSON lines cannot be opened.
    #[error("cannot write {to}: {source}; name another file by json.path")]
    Json {
        /// The file.
        to: String,
        /// Why.
        source: io::Error,
    },
    /// The thread that asks for names cannot be started.
    #[error("cannot ask runtimes for names: {0}")]
    Names(io::Error),
    /// Pushes to a collector cannot start.
    #[error("cannot push to the collector of otlp.endpoint: {0}")]
    Push(io::Error),
    /// Capabilities cannot be given up.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(io::Error),
    /// Timers and signals cannot be set up.
    #[error("cannot wait for timers and signals: {0}")]
    Runtime(io::Error),
}

/// Options of a start that are not in the configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sources of the configuration, which a reload reads again.
    pub sources: Sources,
    /// Give up all capabilities once counting has begun. The agent must then be restarted after CPU
    /// hot-plug, after a reload, and to count again after it was switched off.
    pub drop_all: bool,
    /// Leave counting on in pinned maps when a signal ends the agent.
    pub keep_pins: bool,
    /// Makes the command of a process that calls [`save_for_parent`] with this directory.
    pub save_state: fn(&Path) -> Command,
    /// Turns messages of the eBPF programs on or off. Called before each session begins.
    pub show_kernel_log: fn(bool),
}

/// Reads the files that a start would read: certificates, keys, the web configuration.
///
/// # Errors
///
/// The error that would end the start.
pub fn check_files(config: &Config) -> Result<(), AgentError> {
    if config.http.listen.is_some() {
        http::check(config.http.web_config.as_ref())?;
    }
    otlp::check_files(&config.otlp).map_err(AgentError::Push)
}

/// The most time until the first window ends, so that there is something to show soon.
const FIRST_WINDOW: Duration = Duration::from_secs(1);

/// How long after a signal the process exits without waiting any longer, except for a save in
/// progress, which has a bound of its own. An orderly shutdown takes less: the rest of an earlier
/// save, the last pull, and `LAST_FLUSH` or the last save.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the process waits for its last log message to be written.
const LAST_MESSAGE: Duration = Duration::from_millis(50);

/// Runs an agent until SIGTERM or SIGINT.
///
/// # Errors
///
/// The reason why the agent cannot start. Later failures are logged and counted, and do not end it.
pub fn run(options: Options) -> Result<(), AgentError> {
    let config = options.sources.read()?;
    let runtime = || Builder::new_current_thread().enable_all().build();
    let main = runtime().map_err(AgentError::Runtime)?;
    let exit_runtime = runtime().map_err(AgentError::Runtime)?;
    // Both runtimes listen before either waits, so that no signal reaches only one of them.
    let [signals, exit_signals] = [&main, &exit_runtime].map(|runtime| {
        let _entered = runtime.enter();
        Signals::listen()
    });
    let (signals, exit_signals) = (
        signals.map_err(AgentError::Runtime)?,
        exit_signals.map_err(AgentError::Runtime)?,
    );
    let thread = thread::Builder::new().name("end".to_owned());
    let (saving, saves) = watch::channel(false);
    let exit = move || exit_runtime.block_on(exit_in_time(exit_signals, saves));
    privileges::run_without(|| thread.spawn(exit)).map_err(AgentError::Runtime)?;
    main.block_on(serve(options, config, signals, saving))
}

/// Ends this process [`SHUTDOWN_TIMEOUT`] after a signal, whatever its other threads wait for, or
/// at the end of the save that is then in progress.
async fn exit_in_time(mut signals: Signals, mut saves: watch::Receiver<bool>) {
    tokio::select! {
        _ = signals.terminate.recv() => {}
        _ = signals.interrupt.recv() => {}
    }
    sleep(SHUTDOWN_TIMEOUT).await;
    let saved = match saver::await_save(&mut saves).await {
        true => "",
        false => ", and its last totals are not saved",
    };
    // A separate thread writes the message: the write may block, since another thread may hang
    // while it logs.
    let message = move || {
        tracing::error!(
            "the agent has not ended {} s after a signal: it exits without waiting any \
             longer{saved}",
            SHUTDOWN_TIMEOUT.as_secs()
        );
    };
    let _thread = thread::Builder::new().spawn(message);
    sleep(LAST_MESSAGE).await;
    process::exit(1);
}

async fn serve(
    options: Options,
    config: Config,
    mut signals: Signals,
    saving: watch::Sender<bool>,
) -> Result<(), AgentError> {
    let directory = RunDirectory::acquire(&config.run)?;
    let listen = config.http.listen;
    let server = listen
        .map(|address| Server::listen(address, config.http.web_config.as_ref()))
        .transpose()?;
    let published = Arc::new(Published::default());
    let mut timer = window_timer(config.interval);
    let shared = Arc::clone(&published);
    let mut running = Running::start(options, config, directory, shared, saving)?;
    running
        .drop_privileges()
        .map_err(AgentError::Capabilities)?;
    if let Some(server) = server {
        server.answer(Arc::clone(&published))?;
    }
    notify(&[NotifyState::Ready]);
    // The service manager expects a notification within the timeout: half of it leaves a margin.
    let mut watchdog = sd_notify::watchdog_enabled().map(|within| every(within / 2));
    loop {
        let interval = tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => {
                notify_reloading();
                let interval = running.reload();
                notify(&[NotifyState::Ready]);
                interval
            }
            _ = timer.tick() => running.on_tick(),
            () = tick(&mut watchdog) => {
                notify(&[NotifyState::Watchdog]);
                None
            }
            interval = running.handle_wakeup() => interval,
        };
        if let Some(interval) = interval {
            timer = every(interval);
            published.set_interval(interval);
        }
    }
    notify(&[NotifyState::Stopping]);
    running.shut_down();
    Ok(())
}

/// The signals that an agent handles.
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

fn window_timer(interval: Duration) -> Interval {
    let first = Instant::now() + interval.min(FIRST_WINDOW);
    let mut timer = interval_at(first, interval);
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    timer
}

fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Notifies the service manager, if there is one (`sd_notify(3)`).
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("cannot tell the service manager: {error}");
    }
}

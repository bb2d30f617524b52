//! A live run, as in `stat`, `mem` and `record`: a session that is pulled at every tick, until its
//! command ends or Ctrl-C.

use std::{
    ffi::OsString,
    future::{self, Future},
    io::{self, IsTerminal as _},
    path::PathBuf,
    pin::Pin,
    process::{ExitCode, ExitStatus},
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use anyhow::{Context as _, Error, Result};
use probe_common::CgroupId;
use probe_user::{
    derive::Report,
    emit::{Emitter, OutputFormat},
    join::{By, CommandOwner, Hottest, RowSelection, View},
    machine::cgroup::Hierarchy,
    names::resolver::{DEFAULT_LABELS, Resolver, ResolverConfig, RuntimeEndpoint},
    pipeline::{Pipeline, every, tick},
    plan::Plan,
    session::{Command, Session},
    snapshot::Snapshot,
};
use rustix::process::Signal as SignalName;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::yield_now,
    time::Interval,
};

use crate::{
    ending::{Ending, NotStarted, exit_code, runtime},
    logging, rows,
    terminal::Output,
    times,
};

/// The longest time that the end of a run waits for names from runtimes.
const LAST_NAMES_TIMEOUT: Duration = Duration::from_millis(500);

/// Default length of a window, for verbs that need one.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a run that shows its windows, whatever it counts.
#[derive(clap::Args)]
// clap would name this group `Args`, which the enclosing struct already uses.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Args {
    /// Sets windows of a second for a terminal, unless the user sets others: without a command
    /// nothing would be seen until Ctrl-C.
    pub(crate) fn set_windows_on_a_terminal(&mut self) {
        let options = &self.output;
        let is_elsewhere = options.output.is_some() || options.output_fd.is_some();
        let is_shown = options.format == OutputFormat::Table && !is_elsewhere;
        if is_shown && self.session.command.is_empty() && io::stdout().is_terminal() {
            self.session.interval.get_or_insert(DEFAULT_INTERVAL);
        }
    }
}

/// Which rows a run has, how long its windows are, and what ends it.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct SessionArgs {
    /// What a row stands for [default: container; in a replay: as recorded]
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,
    /// Print every TIME, such as 1s or 500 (milliseconds)
    ///
    /// On a terminal each table replaces the one before. Tables that are shown there without a
    /// COMMAND have windows of 1s by default.
    /// With TERM=dumb, and with a COMMAND, which may write to the terminal too, tables are printed
    /// below each other. After Ctrl-C the last one stays; its window ends at that moment.
    #[arg(
        short = 'I',
        long = "interval-print",
        value_name = "TIME",
        value_parser = times::interval
    )]
    pub(crate) interval: Option<Duration>,
    /// Show N windows, of 1s unless -I sets their length; a COMMAND runs on to its end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval_count: Option<u64>,
    /// End after TIME, such as 5s or 500 (milliseconds); a COMMAND gets SIGTERM then
    #[arg(long, value_name = "TIME", value_parser = times::timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Only rows of this cgroup and those below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// Who knows the names of containers: auto, off, or the socket of a CRI runtime
    ///
    /// `auto` looks for containerd, CRI-O, cri-dockerd, Docker and podman at their usual paths.
    /// Without a name rows show ids.
    #[arg(long, value_name = "ENDPOINT", default_value_t, hide_short_help = true)]
    runtime_endpoint: RuntimeEndpoint,
    /// Also show this label of containers and pods, in JSON and metrics
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    container_label: Vec<String>,
    /// Print messages of pmuscope's BPF programs about rare events, such as a full map, with their
    /// values
    #[arg(long, hide_short_help = true)]
    kernel_log: bool,
    /// Run until this command ends; it runs in a cgroup of its own
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How windows are shown.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: OutputFormat,
    /// Write to FILE
    ///
    /// Without it results go to standard output. With a COMMAND they go to standard error: standard
    /// output is the command's.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write to this open file descriptor, such as 3 with 3>FILE
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "output",
        hide_short_help = true
    )]
    pub(crate) output_fd: Option<i32>,
    /// In a file or a pipe: tables with all columns side by side, and names in full
    ///
    /// On a terminal a table is as wide as the terminal, and rows that do not fit are added up in
    /// one line. In a file or a pipe it has all rows and is 80 columns wide: columns that do not
    /// fit follow in further blocks, whose lines begin with the row's name again, so that `grep
    /// NAME` finds all values of a row. With --wide each row is one line (`| less -S`). For
    /// programs use --format json, csv or openmetrics.
    #[arg(long, hide_short_help = true)]
    pub(crate) wide: bool,
    /// On a terminal: print all rows, also those that do not fit
    #[arg(long, hide_short_help = true)]
    pub(crate) all_rows: bool,
    /// In tables: print all digits instead of three with a prefix (47,038,780 for 47.0 M)
    #[arg(long, hide_short_help = true)]
    pub(crate) exact: bool,
    /// Also print the cost of pmuscope's own programs, and the losses of counting and sampling
    #[arg(long = "self", hide_short_help = true)]
    pub(crate) with_self: bool,
}

impl SessionArgs {
    /// The length of windows; None: one window for the whole run.
    pub(crate) fn window_length(&self) -> Option<Duration> {
        self.interval
            .or(self.interval_count.map(|_| DEFAULT_INTERVAL))
    }

    /// The kind of the rows.
    pub(crate) fn by(&self) -> By {
        self.by.unwrap_or_default()
    }

    /// Starts to ask runtimes for names. None if nothing shows names, or the user turns them off.
    /// Rows by cgroup need no names. Rows by process do: their waits name containers.
    fn resolver(&self, rows_may_change: bool) -> Result<Option<Arc<Resolver>>> {
        let needs_names = rows_may_change || self.by() != By::Cgroup;
        if !needs_names || self.runtime_endpoint == RuntimeEndpoint::Off {
            return Ok(None);
        }
        let labels = DEFAULT_LABELS.map(str::to_owned).into_iter();
        let config = ResolverConfig {
            runtime: self.runtime_endpoint.clone(),
            labels: labels.chain(self.container_label.iter().cloned()).collect(),
            ..ResolverConfig::default()
        };
        let resolver = Resolver::start(config).context("cannot start to ask for names")?;
        Ok(Some(Arc::new(resolver)))
    }
}

/// What a user asks of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UserRequest {
    /// No further window.
    End,
    /// Windows of this length from now on.
    Interval(Duration),
    /// Rows of this kind from now on, if the counts have them.
    Rows(By),
}

/// A receiver of windows.
pub(crate) trait WindowSink {
    /// The session has begun.
    fn begin(&mut self, pipeline: &Pipeline) -> Result<()>;

    /// A window has ended. False if no further window is needed.
    fn window(&mut self, pipeline: &Pipeline) -> Result<bool>;

    /// Completes when the user asks for something between two windows. Cancel safe: may be dropped
    /// and called again.
    fn next_request(&mut self) -> Pin<Box<dyn Future<Output = Result<UserRequest>> + '_>> {
        Box::pin(future::pending())
    }

    /// The rows of the last window have changed, as [`UserRequest::Rows`] asks.
    fn rows_changed(&mut self, _pipeline: &Pipeline) -> Result<()> {
        Ok(())
    }

    /// Whether the sink may ask for rows by container or pod, which have names.
    fn may_change_rows(&self) -> bool {
        false
    }

    /// Another process wrote to the terminal.
    fn on_foreign_output(&mut self) {}

    /// The run has ended, after its last window.
    fn end(&mut self) -> Result<()>;
}

/// The settings of a verb for its run.
pub(crate) struct LiveRun<'a, S> {
    pub(crate) session: &'a SessionArgs,
    pub(crate) hierarchy: &'a Hierarchy,
    /// The multiplexing interval, if the user sets it.
    pub(crate) mux_interval: Option<Duration>,
    /// The numbers of hottest pages and lines to show, if accesses are sampled
    /// ([`View::accesses`]).
    pub(crate) accesses: Option<Hottest>,
    /// The number of addresses of sampled events to show ([`View::hot`]).
    pub(crate) hot: usize,
    /// The rows to show.
    pub(crate) rows: RowSelection,
    /// Starts the session. Its arguments: whether to follow the command's processes, and the
    /// resolver of names.
    pub(crate) start: S,
}

/// Runs a session and passes every window to `windows`. The exit code is the command's, or 0.
pub(crate) fn run<S: FnOnce(bool, Option<Arc<Resolver>>) -> Result<Session>>(
    run: LiveRun<'_, S>,
    windows: &mut dyn WindowSink,
) -> Result<ExitCode> {
    runtime()?.block_on(async {
        let mut run_loop = RunLoop::start(run, windows)?;
        let ended = match run_loop.until_the_end().await {
            Err(error) => return Err(run_loop.wait_for_command(error).await),
            ended => ended?,
        };
        run_loop.advance(true).await?;
        run_loop.windows.end()?;
        Ok(exit_code(ended))
    })
}

/// Prints windows. Before each one `inspect` gets its plan and snapshot.
pub(crate) struct WindowPrinter<F> {
    emitter: Emitter<Output>,
    inspect: F,
}

impl<F: FnMut(&Plan, &Snapshot)> WindowPrinter<F> {
    pub(crate) fn open(args: &Args, inspect: F) -> Result<Self> {
        let OutputArgs {
            format, with_self, ..
        } = args.output;
        Ok(Self {
            emitter: Emitter::new(Output::open(args)?, format, with_self),
            inspect,
        })
    }

    /// Prints a window. False if the reader of the output closed it (`| head`).
    pub(crate) fn print(&mut self, report: &Report) -> Result<bool> {
        let screen = self.emitter.get_mut().screen();
        self.emitter.set_screen(screen);
        match self.emitter.write(report) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            printed => {
                printed.with_context(|| self.emitter.get_mut().write_error())?;
                Ok(true)
            }
        }
    }
}

impl<F: FnMut(&Plan, &Snapshot)> WindowSink for WindowPrinter<F> {
    fn begin(&mut self, _pipeline: &Pipeline) -> Result<()> {
        Ok(())
    }

    fn window(&mut self, pipeline: &Pipeline) -> Result<bool> {
        (self.inspect)(pipeline.plan(), pipeline.snapshot());
        rows::check(&pipeline.view().rows, pipeline.report())?;
        self.print(pipeline.report())
    }

    fn on_foreign_output(&mut self) {
        self.emitter.get_mut().forget_drawing();
    }

    fn end(&mut self) -> Result<()> {
        let output = self.emitter.get_mut();
        output.end().with_context(|| output.write_error())
    }
}

/// A running session, and everything that it waits for.
struct RunLoop<'a> {
    pipeline: Pipeline,
    windows: &'a mut dyn WindowSink,
    timer: Option<Interval>,
    ending: Ending,
    /// SIGCONT: after Ctrl-Z the shell has written to the terminal.
    resumed: Signal,
    /// Number of windows that are still needed; None: no limit.
    windows_left: Option<u64>,
    /// No further window is needed.
    is_done: bool,
}

impl<'a> RunLoop<'a> {
    fn start(
        run: LiveRun<'_, impl FnOnce(bool, Option<Arc<Resolver>>) -> Result<Session>>,
        windows: &'a mut dyn WindowSink,
    ) -> Result<Self> {
        let LiveRun {
            session: args,
            hierarchy,
            mux_interval,
            accesses,
            hot,
            rows,
            start,
        } = run;
        if args.kernel_log {
            logging::show_kernel_log(true);
        }
        let below = { args.cgroup.as_deref() }
            .map(|path| hierarchy.resolve(path))
            .transpose()?;
        let mut ending = Ending::listen()?;
        let command = match args.command.as_slice() {
            [] => None,
            words => Some(Command::prepare(words, hierarchy).map_err(NotStarted)?),
        };
        let follow = command
            .as_ref()
            .is_some_and(|command| command.owner() == CgroupId::COMMAND);
        let mut session = start(follow, args.resolver(windows.may_change_rows())?)?;
        if let Some(command) = command.as_ref().filter(|_| follow) {
            session.follow(command.pid())?;
        }
        // `sched_exit` is attached now, not after the first missed switch: a short command may end
        // before a miss is noticed.
        if command.is_some()
            && let Err(error) = session.watch_exits()
        {
            tracing::warn!(
                "cannot attach sched_exit, so slices around context switches that the sched_switch \
                 program misses will be split by estimate: {error}"
            );
        }
        let view = View {
            by: args.by(),
            below,
            command: command.as_ref().map(|command| CommandOwner {
                name: args.command[0].to_string_lossy().into_owned(),
                owner: command.owner(),
            }),
            merged_idle: false,
            accesses,
            processes: 0,
            hot,
            waited_for: 0,
            rows,
        };
        let owner = command.as_ref().map(Command::owner);
        let pids = view.rows.pids.clone();
        let mut pipeline = Pipeline::start(session, view, mux_interval)?;
        windows.begin(&pipeline)?;
        if let Some(owner) = owner {
            pipeline.watch_command(owner);
        }
        ending.start(command, args.timeout, &pids)?;
        Ok(Self {
            timer: args.window_length().map(every),
            windows_left: args.interval_count,
            pipeline,
            windows,
            ending,
            resumed: signal(SignalKind::from_raw(SignalName::CONT.as_raw()))
                .context("cannot listen for SIGCONT")?,
            is_done: false,
        })
    }

    /// Ends a window at every tick, until the command ends or Ctrl-C. Without a command it also
    /// ends when no further window is needed.
    async fn until_the_end(&mut self) -> Result<Option<ExitStatus>> {
        loop {
            tokio::select! {
                () = tick(&mut self.timer) => {
                    self.advance(false).await?;
                    if self.is_done && !self.ending.has_command() {
                        return Ok(None);
                    }
                }
                upkeep = self.pipeline.run_upkeep() => match upkeep? {},
                request = self.windows.next_request() => match request? {
                    UserRequest::End => {
                        self.is_done = true;
                        return Ok(None);
                    }
                    UserRequest::Interval(interval) => self.timer = Some(every(interval)),
                    UserRequest::Rows(by) => {
                        self.pipeline.set_rows(by);
                        self.windows.rows_changed(&self.pipeline)?;
                    }
                },
                ended = self.ending.wait() => return ended,
            }
        }
    }

    /// Waits for the command after counting failed, since the failure does not end the command.
    async fn wait_for_command(&mut self, error: Error) -> Error {
        if self.ending.has_command() {
            tracing::error!("counting has ended: {error:#}; the command goes on");
            // Its exit code is not used: it would hide the failure.
            let _ = self.ending.wait().await;
        }
        error
    }

    async fn advance(&mut self, is_last: bool) -> Result<()> {
        if self.is_done {
            return Ok(());
        }
        // Lets tokio read the signals first: after SIGCONT the tick may come before them.
        yield_now().await;
        let resumed = self
            .resumed
            .poll_recv(&mut Context::from_waker(Waker::noop()));
        if resumed.is_ready() {
            self.windows.on_foreign_output();
        }
        self.pipeline
            .advance_with_names(is_last.then_some(LAST_NAMES_TIMEOUT))?;
        self.is_done = !self.windows.window(&self.pipeline)?;
        if let Some(remaining) = &mut self.windows_left {
            *remaining -= 1;
            self.is_done |= *remaining == 0;
        }
        Ok(())
    }
}

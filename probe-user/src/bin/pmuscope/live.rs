//! What `stat` and `mem` share: a session beside a command, pulled at every tick, until the command
//! ends or Ctrl-C.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::{ExitCode, ExitStatus},
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use anyhow::{Context as _, Result};
use probe_common::CgroupId;
use probe_user::{
    emit::{Emitter, Format},
    join::{By, CommandOwner, Hottest, View},
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
    terminal::Output,
};

/// How long the end of a run may wait for names that were asked for.
const LAST_NAMES: Duration = Duration::from_millis(500);

/// Options of a run, whatever it counts.
#[derive(clap::Args)]
// The arguments around these have the group of this name.
#[group(skip)]
pub(crate) struct Args {
    /// What a row stands for
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: By,
    /// Print every MS milliseconds; on a terminal each table replaces the one before
    ///
    /// With TERM=dumb, and with a COMMAND, which may write to the terminal too, tables are printed
    /// below each other. After Ctrl-C the last one stays; its window ends at that moment.
    #[arg(short = 'I', long = "interval-print", value_name = "MS", value_parser = clap::value_parser!(u64).range(10..))]
    pub(crate) interval: Option<u64>,
    /// Only rows of this cgroup and those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Who knows the names of containers: auto, off, or the socket of a CRI runtime
    ///
    /// With auto containerd, CRI-O, cri-dockerd, Docker and podman are looked for in their usual
    /// places. Without a name rows show ids.
    #[arg(long, value_name = "ENDPOINT", default_value_t)]
    runtime_endpoint: RuntimeEndpoint,
    /// Also show this label of containers and pods, in JSON and metrics
    #[arg(long, value_name = "KEY")]
    container_label: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// In a file or a pipe: tables with all columns side by side, and names in full
    ///
    /// On a terminal a table is as wide as the terminal, and rows that do not fit are added up in
    /// one line. In a file or a pipe it has all rows and is 80 columns wide: columns that do not
    /// fit follow in further blocks, whose lines begin with the row's name again, so that `grep
    /// NAME` finds all values of a row. With --wide each row is one line (`| less -S`). For
    /// programs use --format json, csv or openmetrics.
    #[arg(long)]
    pub(crate) wide: bool,
    /// On a terminal: print all rows, also those that do not fit
    #[arg(long)]
    pub(crate) all_rows: bool,
    /// In tables: print all digits instead of three with a prefix (47,038,780 for 47.0 M)
    #[arg(long)]
    pub(crate) exact: bool,
    /// Also print the cost of pmuscope's own programs, and the losses of counting and sampling
    #[arg(long = "self")]
    pub(crate) with_self: bool,
    /// Run until this command ends; it runs in a cgroup of its own
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

impl Args {
    /// Who is asked for names; None where no row shows any.
    fn resolver(&self) -> Result<Option<Arc<Resolver>>> {
        let shown = matches!(self.by, By::Container | By::Pod);
        if !shown || self.runtime_endpoint == RuntimeEndpoint::Off {
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

/// The settings of a verb for its run.
pub(crate) struct Run<'a, S> {
    pub(crate) args: &'a Args,
    pub(crate) hierarchy: &'a Hierarchy,
    /// How long the turn of a counter group lasts, if the user sets it.
    pub(crate) turn: Option<Duration>,
    /// Whether sampled accesses are shown, and how many of the hottest pages and lines
    /// ([`View::accesses`]).
    pub(crate) accesses: Option<Hottest>,
    /// How many addresses of sampled events are shown ([`View::hot`]).
    pub(crate) hot: usize,
    /// Begins the session; it is told whether to follow the command's processes, and who knows
    /// names.
    pub(crate) start: S,
}

/// Runs a session and shows every window; `look` sees each snapshot before. The exit code is the
/// command's, or 0.
pub(crate) fn run<S: FnOnce(bool, Option<Arc<Resolver>>) -> Result<Session>>(
    run: Run<'_, S>,
    mut look: impl FnMut(&Plan, &Snapshot),
) -> Result<ExitCode> {
    runtime()?.block_on(async {
        let mut live = Live::start(run)?;
        let ended = live.until_the_end(&mut look).await?;
        live.print(&mut look, true).await?;
        let output = live.emitter.get_mut();
        output.end().context("cannot write the output")?;
        Ok(exit_code(ended))
    })
}

/// A running session with all that it waits for.
struct Live {
    pipeline: Pipeline,
    emitter: Emitter<Output>,
    timer: Option<Interval>,
    ending: Ending,
    /// SIGCONT: after Ctrl-Z the shell has written to the terminal.
    resumed: Signal,
    /// The reader of the output has closed it (`| head`).
    unread: bool,
}

impl Live {
    fn start(
        run: Run<'_, impl FnOnce(bool, Option<Arc<Resolver>>) -> Result<Session>>,
    ) -> Result<Self> {
        let Run {
            args,
            hierarchy,
            turn,
            accesses,
            hot,
            start,
        } = run;
        let emitter = Emitter::new(Output::open(args)?, args.format, args.with_self);
        let below = args.cgroup.as_deref();
        let below = below.map(|path| hierarchy.resolve(path)).transpose()?;
        let mut ending = Ending::listen()?;
        let command = match args.command.as_slice() {
            [] => None,
            words => Some(Command::prepare(words, hierarchy).map_err(NotStarted)?),
        };
        let follow = command
            .as_ref()
            .is_some_and(|command| command.owner() == CgroupId::COMMAND);
        let mut session = start(follow, args.resolver()?)?;
        if let Some(command) = command.as_ref().filter(|_| follow) {
            session.follow(command.pid())?;
        }
        let view = View {
            by: args.by,
            below,
            command: command.as_ref().map(|command| CommandOwner {
                name: args.command[0].to_string_lossy().into_owned(),
                owner: command.owner(),
            }),
            merged_idle: false,
            accesses,
            processes: 0,
            hot,
        };
        let pipeline = Pipeline::start(session, view, turn)?;
        ending.start(command)?;
        Ok(Self {
            timer: args.interval.map(Duration::from_millis).map(every),
            pipeline,
            emitter,
            ending,
            resumed: signal(SignalKind::from_raw(SignalName::CONT.as_raw()))
                .context("cannot listen for SIGCONT")?,
            unread: false,
        })
    }

    /// Prints at every tick until the command ends or Ctrl-C. Without a command it also ends when
    /// nobody reads the output any more.
    async fn until_the_end(
        &mut self,
        look: &mut impl FnMut(&Plan, &Snapshot),
    ) -> Result<Option<ExitStatus>> {
        loop {
            tokio::select! {
                () = tick(&mut self.timer) => {
                    self.print(look, false).await?;
                    if self.unread && !self.ending.is_of_command() {
                        return Ok(None);
                    }
                }
                kept = self.pipeline.keep() => match kept? {},
                ended = self.ending.wait() => return ended,
            }
        }
    }

    async fn print(
        &mut self,
        look: &mut impl FnMut(&Plan, &Snapshot),
        is_last: bool,
    ) -> Result<()> {
        if self.unread {
            return Ok(());
        }
        // Lets tokio read the signals: after a stop the tick may come before them.
        yield_now().await;
        let resumed = self
            .resumed
            .poll_recv(&mut Context::from_waker(Waker::noop()));
        if resumed.is_ready() {
            self.emitter.get_mut().forget_drawing();
        }
        self.pipeline
            .advance_with_names(is_last.then_some(LAST_NAMES))?;
        look(self.pipeline.plan(), self.pipeline.snapshot());
        let screen = self.emitter.get_mut().screen();
        self.emitter.set_screen(screen);
        match self.emitter.write(self.pipeline.report()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            printed => printed.context("cannot write the output"),
        }
    }
}

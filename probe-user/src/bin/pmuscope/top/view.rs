//! The view on the terminal: keys, drawing, and giving the terminal back.

use std::time::Duration;
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use crossterm::{
    event::{Event, EventStream},
    execute,
    terminal::{
        Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode,
        is_raw_mode_enabled,
    },
};
use futures_core::Stream as _;
use probe_user::{
    derive::{Report, ReportSection, Subject},
    emit::Sheets,
    join::{By, Entity, View},
    machine::{
        Machine,
        process_usage::{ProcessReader, ProcessUse},
    },
    pipeline::Pipeline,
    snapshot::Names,
    top::{KeyAction, Top, TopOptions, WindowSource},
};
use ratatui::{DefaultTerminal, Terminal, backend::CrosstermBackend};
use rustix::{
    process::{Signal as SignalName, kill_current_process_group},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::live::{UserRequest, WindowSink};
use crate::terminal;

/// The view on the terminal.
pub(super) struct TopView {
    pub(super) top: Top,
    exact: bool,
    terminal: Option<DefaultTerminal>,
    keys: Option<EventStream>,
    /// SIGCONT: the shell has written to the terminal, and set its modes.
    resumed: Option<Signal>,
    processes: OpenedProcesses,
    /// The rows that the user chose and that need another session.
    restart: Option<By>,
    windows: u64,
}

/// The source of the processes of an open row.
enum OpenedProcesses {
    /// Processes are read from procfs.
    Running {
        machine: Arc<Machine>,
        /// The names and rows of the last window.
        rows: Option<(View, Arc<Names>)>,
        /// The open row, and its reader with the previous reading.
        reader: Option<Box<(Entity, ProcessReader)>>,
    },
    /// The last window of a recording: the row of each process.
    Recorded(Vec<(Entity, ProcessUse)>),
}

impl TopView {
    /// A view of this machine, or of a recording.
    pub(super) fn new(options: TopOptions, exact: bool, machine: Option<Arc<Machine>>) -> Self {
        Self {
            top: Top::new(options),
            exact,
            terminal: None,
            keys: None,
            resumed: None,
            processes: match machine {
                Some(machine) => OpenedProcesses::Running {
                    machine,
                    rows: None,
                    reader: None,
                },
                None => OpenedProcesses::Recorded(Vec::new()),
            },
            restart: None,
            windows: 0,
        }
    }

    /// Takes over the terminal, unless this view already has it. Messages are shown in the view
    /// from here on. Must be called in the tokio runtime of the run.
    pub(super) fn open(&mut self) -> Result<()> {
        let resumed = signal(SignalKind::from_raw(SignalName::CONT.as_raw()));
        self.resumed = Some(resumed.context("cannot listen for SIGCONT")?);
        if self.terminal.is_none() {
            let terminal = ratatui::try_init().context("cannot take over the terminal")?;
            self.terminal = Some(terminal);
            self.keys = Some(EventStream::new());
            terminal::buffer_messages(true);
        }
        self.draw()
    }

    pub(super) fn draw(&mut self) -> Result<()> {
        for message in terminal::take_messages() {
            self.top.message(&message);
        }
        self.processes.update(&mut self.top);
        if let Some(terminal) = &mut self.terminal {
            let drawn = terminal.draw(|frame| self.top.draw(frame));
            drawn.context("cannot draw on the terminal")?;
        }
        Ok(())
    }

    pub(super) fn show(&mut self, report: &Report) -> Result<()> {
        self.processes.window(report);
        self.top.window(self.sheets(report));
        self.windows += 1;
        self.draw()
    }

    fn sheets(&self, report: &Report) -> Sheets {
        Sheets::from_report(report, self.exact)
    }

    /// Shows the last window with rows of another kind; `report` is None if there was none yet.
    pub(super) fn rows_changed(&mut self, by: By, report: Option<&Report>) -> Result<()> {
        if let Some(report) = report {
            self.processes.window(report);
        }
        let sheets = report.map(|report| self.sheets(report));
        self.top.rows_changed(by, sheets);
        self.draw()
    }

    /// The rows and the interval of the next session, if the user chose rows that need another one.
    pub(super) fn take_restart(&mut self) -> Option<(By, Duration)> {
        let by = self.restart.take()?;
        self.top.rows_changed(by, None);
        match self.top.source() {
            WindowSource::Live { interval } => Some((by, interval)),
            WindowSource::Replay { .. } => None,
        }
    }

    /// The number of windows so far.
    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// Waits for a key or a new size of the terminal, and draws the view. Returns what the key asks
    /// of the caller.
    pub(super) async fn next_action(&mut self) -> Result<KeyAction> {
        let (Some(keys), Some(resumed)) = (&mut self.keys, &mut self.resumed) else {
            return std::future::pending().await;
        };
        let event = tokio::select! {
            event = poll_fn(|context| Pin::new(&mut *keys).poll_next(context)) => event,
            _ = resumed.recv() => {
                self.take_terminal_again()?;
                return Ok(KeyAction::Nothing);
            }
        };
        let action = match event {
            Some(event) => match event.context("cannot read keys")? {
                Event::Key(key) => self.top.key(key),
                _ => KeyAction::Nothing,
            },
            // The terminal was closed.
            None => KeyAction::End,
        };
        if action == KeyAction::Suspend {
            self.suspend()?;
        }
        self.draw()?;
        Ok(action)
    }

    /// Gives the terminal back and stops, as Ctrl-Z does with other programs, until SIGCONT.
    fn suspend(&mut self) -> Result<()> {
        ratatui::restore();
        // Stops the whole job of the shell, as the terminal would do, so that `sudo` stops too.
        kill_current_process_group(SignalName::TSTP).context("cannot suspend")?;
        self.take_terminal_again()
    }

    /// Sets the modes of the terminal again, and draws everything.
    fn take_terminal_again(&mut self) -> Result<()> {
        if self.terminal.is_none() {
            return Ok(());
        }
        // A new `Terminal` draws every cell; `Terminal::clear` would ask for the cursor's position.
        let terminal = raw_mode_again()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All)))
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        self.terminal = Some(terminal.context("cannot take over the terminal")?);
        self.draw()
    }
}

/// Sets the raw mode, even if crossterm believes it set: after SIGSTOP the shell has reset the
/// modes. Keys would be echoed if the raw mode were ended first.
fn raw_mode_again() -> io::Result<()> {
    if !is_raw_mode_enabled()? {
        return enable_raw_mode();
    }
    let Ok(mut modes) = tcgetattr(io::stdin()) else {
        // Keys come from /dev/tty, which only crossterm has open.
        return disable_raw_mode().and_then(|()| enable_raw_mode());
    };
    modes.make_raw();
    Ok(tcsetattr(io::stdin(), OptionalActions::Now, &modes)?)
}

impl OpenedProcesses {
    /// Keeps the processes of a recorded window.
    fn window(&mut self, report: &Report) {
        if let Self::Recorded(processes) = self {
            *processes = recorded(report);
        }
    }

    /// Sets the processes of the open row, if they are not known yet.
    fn update(&mut self, top: &mut Top) {
        let Some(entity) = top.opened().cloned() else {
            if let Self::Running { reader, .. } = self {
                *reader = None;
            }
            return;
        };
        if top.has_processes() {
            return;
        }
        match self {
            Self::Running {
                machine,
                rows: Some((view, names)),
                reader,
            } => {
                if reader.as_ref().is_none_or(|reader| reader.0 != entity) {
                    *reader = ProcessReader::new(machine).map(|it| Box::new((entity.clone(), it)));
                }
                let cgroups = view.cgroups_of(names, &entity);
                if let Some((_, reader)) = reader.as_deref_mut() {
                    let processes = reader.read(cgroups.iter().map(String::as_str));
                    top.set_processes("as in /proc", processes);
                }
            }
            Self::Running { rows: None, .. } => {}
            Self::Recorded(all) if all.is_empty() => {}
            Self::Recorded(all) => {
                let of_entity = all.iter().filter(|(row, _)| *row == entity);
                let processes = of_entity.map(|(_, process)| process.clone());
                top.set_processes("as recorded", processes.collect());
            }
        }
    }
}

/// The processes that a window lists in addition to its rows, each with the row that it is in.
fn recorded(report: &Report) -> Vec<(Entity, ProcessUse)> {
    let groups = report.groups();
    let processes = groups.filter(|group| group.section == ReportSection::Processes);
    let pairs = processes.filter_map(|group| {
        let Subject::Entity(Entity::ProcessOf { tgid, name, row }) = group.subject else {
            return None;
        };
        let mut series = group.series.iter();
        let cpus = series.find(|series| report.metric(series).name == "cpus_used");
        let process = ProcessUse {
            pid: *tgid,
            command: name.as_deref().unwrap_or("?").to_owned(),
            cpus: cpus
                .and_then(|series| series.estimate())
                .map(|cpus| cpus.value),
            resident: None,
        };
        Some(((**row).clone(), process))
    });
    pairs.collect()
}

impl Drop for TopView {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
            terminal::buffer_messages(false);
        }
    }
}

impl WindowSink for TopView {
    fn begin(&mut self, _pipeline: &Pipeline) -> Result<()> {
        self.open()
    }

    fn window(&mut self, pipeline: &Pipeline) -> Result<bool> {
        if let OpenedProcesses::Running { rows, .. } = &mut self.processes {
            let names = Arc::clone(&pipeline.snapshot().names);
            *rows = Some((pipeline.view().clone(), names));
        }
        self.show(pipeline.report())?;
        Ok(true)
    }

    fn next_request(&mut self) -> Pin<Box<dyn Future<Output = Result<UserRequest>> + '_>> {
        Box::pin(async {
            loop {
                match self.next_action().await? {
                    KeyAction::End => return Ok(UserRequest::End),
                    KeyAction::Interval(interval) => return Ok(UserRequest::Interval(interval)),
                    KeyAction::Rows(by) if by == By::Process || self.top.by() == By::Process => {
                        self.restart = Some(by);
                        return Ok(UserRequest::End);
                    }
                    KeyAction::Rows(by) => return Ok(UserRequest::Rows(by)),
                    KeyAction::Nothing | KeyAction::Windows(_) | KeyAction::Suspend => {}
                }
            }
        })
    }

    fn rows_changed(&mut self, pipeline: &Pipeline) -> Result<()> {
        let (view, names) = (pipeline.view(), &pipeline.snapshot().names);
        if let OpenedProcesses::Running { rows, .. } = &mut self.processes {
            *rows = Some((view.clone(), Arc::clone(names)));
        }
        // The report is empty before the first window.
        let report = Some(pipeline.report()).filter(|report| !report.series.is_empty());
        Self::rows_changed(self, view.by, report)
    }

    fn may_change_rows(&self) -> bool {
        true
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

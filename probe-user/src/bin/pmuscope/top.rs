//! `pmuscope top`: windows on a terminal, with a view that keys control.

use std::time::Duration;
use std::{
    future::{Future, poll_fn},
    io::{self, IsTerminal as _},
    pin::Pin,
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use crossterm::event::{Event, EventStream};
use futures_core::Stream as _;
use probe_user::{
    derive::Report,
    emit::Sheets,
    join::{Hottest, RowSelection},
    machine::Machine,
    pipeline::Pipeline,
    top::{KeyAction, Top, TopOptions, WindowSource},
};
use ratatui::DefaultTerminal;

use crate::ending::runtime;
use crate::{live, stat, terminal};

/// Arguments of `top`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope top
  pmuscope top -M group:memory --capacity
  pmuscope top --replay pmuscope.jsonl.gz      # a recording, forwards and back")]
pub(crate) struct Args {
    #[command(flatten)]
    replayed: stat::ReplayArgs,
    /// Also sample memory accesses as `mem` does: their data sources and latencies
    #[arg(long, conflicts_with = "replay")]
    accesses: bool,
    /// Show all digits instead of three with a prefix (47,038,780 for 47.0 M)
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    counting: stat::CountingArgs,
    #[command(flatten)]
    counted: live::SessionArgs,
}

pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    if !args.counted.command.is_empty() {
        bail!(
            "top runs no command, which would write to the same terminal: run it elsewhere, or use \
             `pmuscope stat -I 1000 -- COMMAND`"
        );
    }
    if !io::stdout().is_terminal() {
        bail!("top needs a terminal: use `pmuscope stat -I 1000` for a file or a pipe");
    }
    if let Some(file) = &args.replayed.replay {
        let replay = stat::replayed(file, &args.counting, &args.counted, RowSelection::default())?;
        return runtime()?.block_on(play(replay, args.exact));
    }
    args.counted.interval.get_or_insert(live::INTERVAL);
    let machine = Arc::new(Machine::this());
    let mut view = TopView::new(WindowSource::Live, args.exact);
    let accesses = args.accesses.then(Hottest::default);
    let all = RowSelection::default();
    stat::count(
        &args.counting,
        &args.counted,
        all,
        accesses,
        &machine,
        &mut view,
    )
}

/// The view on the terminal.
struct TopView {
    top: Top,
    exact: bool,
    terminal: Option<DefaultTerminal>,
    keys: Option<EventStream>,
}

impl TopView {
    fn new(source: WindowSource, exact: bool) -> Self {
        Self {
            top: Top::new(TopOptions {
                source,
                hidden: &[],
                colours: true,
            }),
            exact,
            terminal: None,
            keys: None,
        }
    }

    /// Takes over the terminal. Messages are shown in the view from here on.
    fn open(&mut self) -> Result<()> {
        let terminal = ratatui::try_init().context("cannot take over the terminal")?;
        self.terminal = Some(terminal);
        self.keys = Some(EventStream::new());
        terminal::buffer_messages(true);
        self.draw()
    }

    fn draw(&mut self) -> Result<()> {
        for message in terminal::take_messages() {
            self.top.message(&message);
        }
        if let Some(terminal) = &mut self.terminal {
            let drawn = terminal.draw(|frame| self.top.draw(frame));
            drawn.context("cannot draw on the terminal")?;
        }
        Ok(())
    }

    fn show(&mut self, report: &Report) -> Result<()> {
        self.top.window(Sheets::from_report(report, self.exact));
        self.draw()
    }

    /// Waits for a key or a new size of the terminal, and draws the view. Returns what the key asks
    /// of the caller.
    async fn next_action(&mut self) -> Result<KeyAction> {
        let Some(keys) = &mut self.keys else {
            return std::future::pending().await;
        };
        let event = poll_fn(|context| Pin::new(&mut *keys).poll_next(context)).await;
        let action = match event {
            Some(event) => match event.context("cannot read keys")? {
                Event::Key(key) => self.top.key(key),
                _ => KeyAction::Nothing,
            },
            // The terminal was closed.
            None => KeyAction::End,
        };
        self.draw()?;
        Ok(action)
    }
}

impl Drop for TopView {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
            terminal::buffer_messages(false);
        }
    }
}

impl live::WindowSink for TopView {
    fn begin(&mut self, _pipeline: &Pipeline) -> Result<()> {
        self.open()
    }

    fn window(&mut self, pipeline: &Pipeline) -> Result<bool> {
        self.show(pipeline.report())?;
        Ok(true)
    }

    fn until_enough(&mut self) -> Pin<Box<dyn Future<Output = Result<()>> + '_>> {
        Box::pin(async {
            while self.next_action().await? != KeyAction::End {}
            Ok(())
        })
    }

    fn on_foreign_output(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            // A failure is reported by the next drawing.
            let _ = terminal.clear();
        }
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Shows a recording at the pace of its windows, or of keys.
async fn play(mut replay: probe_user::recording::Replay, exact: bool) -> Result<ExitCode> {
    let mut view = TopView::new(
        WindowSource::Replay {
            speed: 1.0,
            ended: false,
        },
        exact,
    );
    view.open()?;
    let mut ending = crate::ending::Ending::listen()?;
    let mut next = |view: &mut TopView| -> Result<Duration> {
        match replay.advance()? {
            Some(report) => {
                let length = report.length();
                view.show(report)?;
                Ok(length)
            }
            None => {
                view.top.ended();
                view.draw()?;
                Ok(Duration::MAX)
            }
        }
    };
    let mut length = next(&mut view)?;
    let mut began = tokio::time::Instant::now();
    loop {
        let due = match view.top.source() {
            WindowSource::Replay {
                speed,
                ended: false,
            } if !view.top.is_paused() => Some(began + length.div_f64(speed)),
            _ => None,
        };
        tokio::select! {
            () = until(due) => {
                length = next(&mut view)?;
                began = tokio::time::Instant::now();
            }
            action = view.next_action() => match action? {
                KeyAction::Nothing => {}
                KeyAction::End => break,
                KeyAction::Windows(many) => {
                    for _ in 0..many {
                        length = next(&mut view)?;
                    }
                    view.top.show_last();
                    view.draw()?;
                    began = tokio::time::Instant::now();
                }
            },
            ended = ending.wait() => {
                ended?;
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until a time; forever without one.
async fn until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

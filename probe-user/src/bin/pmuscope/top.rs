//! `pmuscope top`: windows on a terminal, with a view that keys move.

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
    join::Hottest,
    machine::Machine,
    pipeline::Pipeline,
    top::{Source, Top, Wanted},
};
use ratatui::DefaultTerminal;

use crate::ending::runtime;
use crate::{live, stat, terminal};

/// Arguments of `top`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    replayed: stat::Replayed,
    /// Also sample memory accesses as `mem` does: their data sources and latencies
    #[arg(long, conflicts_with = "replay")]
    accesses: bool,
    /// Show all digits instead of three with a prefix (47,038,780 for 47.0 M)
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    counting: stat::Counting,
    #[command(flatten)]
    counted: live::Counted,
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
        let replay = stat::replayed(file, &args.counting, &args.counted)?;
        return runtime()?.block_on(play(replay, args.exact));
    }
    args.counted.interval.get_or_insert(live::INTERVAL);
    let machine = Arc::new(Machine::this());
    let mut shown = Shown::new(Source::Live, args.exact);
    let accesses = args.accesses.then(Hottest::default);
    stat::count(
        &args.counting,
        &args.counted,
        accesses,
        &machine,
        &mut shown,
    )
}

/// The view on the terminal, from the first window on.
struct Shown {
    top: Top,
    exact: bool,
    terminal: Option<DefaultTerminal>,
    keys: Option<EventStream>,
}

impl Shown {
    fn new(source: Source, exact: bool) -> Self {
        Self {
            top: Top::new(source),
            exact,
            terminal: None,
            keys: None,
        }
    }

    /// Takes the terminal. Messages are shown in the view from here on.
    fn open(&mut self) -> Result<()> {
        let terminal = ratatui::try_init().context("cannot take over the terminal")?;
        self.terminal = Some(terminal);
        self.keys = Some(EventStream::new());
        terminal::keep_messages(true);
        self.draw()
    }

    fn draw(&mut self) -> Result<()> {
        for message in terminal::kept_messages() {
            self.top.message(&message);
        }
        if let Some(terminal) = &mut self.terminal {
            let drawn = terminal.draw(|frame| self.top.draw(frame));
            drawn.context("cannot draw on the terminal")?;
        }
        Ok(())
    }

    fn show(&mut self, report: &Report) -> Result<()> {
        self.top.window(Sheets::of(report, self.exact));
        self.draw()
    }

    /// What the next key wants of others, or a new size of the terminal: the view is drawn.
    async fn wanted(&mut self) -> Result<Wanted> {
        let Some(keys) = &mut self.keys else {
            return std::future::pending().await;
        };
        let event = poll_fn(|context| Pin::new(&mut *keys).poll_next(context)).await;
        let wanted = match event {
            Some(event) => match event.context("cannot read keys")? {
                Event::Key(key) => self.top.key(key),
                _ => Wanted::Nothing,
            },
            // The terminal is gone.
            None => Wanted::End,
        };
        self.draw()?;
        Ok(wanted)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
            terminal::keep_messages(false);
        }
    }
}

impl live::Windows for Shown {
    fn begin(&mut self, _pipeline: &Pipeline) -> Result<()> {
        self.open()
    }

    fn window(&mut self, pipeline: &Pipeline) -> Result<bool> {
        self.show(pipeline.report())?;
        Ok(true)
    }

    fn enough(&mut self) -> Pin<Box<dyn Future<Output = Result<()>> + '_>> {
        Box::pin(async {
            while self.wanted().await? != Wanted::End {}
            Ok(())
        })
    }

    fn disturbed(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            // What fails here fails again at the next drawing.
            let _ = terminal.clear();
        }
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Shows a recording as its windows came, or as keys want them.
async fn play(mut replay: probe_user::recording::Replay, exact: bool) -> Result<ExitCode> {
    let mut shown = Shown::new(
        Source::Replay {
            speed: 1.0,
            ended: false,
        },
        exact,
    );
    shown.open()?;
    let mut ending = crate::ending::Ending::listen()?;
    let mut next = |shown: &mut Shown| -> Result<Duration> {
        match replay.advance()? {
            Some(report) => {
                let length = report.length();
                shown.show(report)?;
                Ok(length)
            }
            None => {
                shown.top.ended();
                shown.draw()?;
                Ok(Duration::MAX)
            }
        }
    };
    let mut length = next(&mut shown)?;
    let mut began = tokio::time::Instant::now();
    loop {
        let due = match shown.top.source() {
            Source::Replay {
                speed,
                ended: false,
            } if !shown.top.is_paused() => Some(began + length.div_f64(speed)),
            _ => None,
        };
        tokio::select! {
            () = until(due) => {
                length = next(&mut shown)?;
                began = tokio::time::Instant::now();
            }
            wanted = shown.wanted() => match wanted? {
                Wanted::Nothing => {}
                Wanted::End => break,
                Wanted::Windows(many) => {
                    for _ in 0..many {
                        length = next(&mut shown)?;
                    }
                    shown.top.show_last();
                    shown.draw()?;
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

/// Forever where there is no such time.
async fn until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

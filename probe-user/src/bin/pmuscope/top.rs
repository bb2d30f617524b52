//! `pmuscope top`: windows on a terminal, with a view that keys control.

mod view;

use std::time::{Duration, Instant};
use std::{
    env,
    io::{self, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Result, bail};
use probe_user::{
    join::{By, Hottest, RowSelection},
    machine::{Machine, memory},
    recording::Replay,
    snapshot::Hook,
    top::{KeyAction, ProcessRows, TopOptions, WindowSource},
};

use self::view::TopView;
use crate::ending::{Ending, runtime};
use crate::{live, stat, terminal};

/// Columns of memory that are hidden unless the user asks for them.
const HIDDEN: &[&str] = &[
    "memory_anon",
    "memory_file",
    "memory_huge_pages",
    "memory_peak",
    "memory_limit",
];

/// Number of sampled functions shown of each row and event.
const FUNCTIONS: usize = 10;

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
    session: live::SessionArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if !args.session.command.is_empty() {
        bail!(
            "top runs no command, which would write to the same terminal: run it elsewhere, or use \
             `pmuscope stat -I 1000 -- COMMAND`"
        );
    }
    if !io::stdout().is_terminal() {
        bail!("top needs a terminal: use `pmuscope stat -I 1000` for a file or a pipe");
    }
    if !terminal::moves_the_cursor() {
        bail!(
            "top needs a terminal that can move the cursor, and TERM names none: use \
             `pmuscope stat -I 1000`"
        );
    }
    match &args.replayed.replay {
        Some(file) => {
            let replay =
                stat::begin_replay(file, &args.counting, &args.session, RowSelection::default())?;
            runtime()?.block_on(play(replay, args.exact))
        }
        None => count(args),
    }
}

/// Counts until the user ends the view. Starts another session when the user changes to or from
/// rows by process.
fn count(args: Args) -> Result<ExitCode> {
    let Args {
        mut counting,
        mut session,
        ..
    } = args;
    let interval = *session.interval.get_or_insert(live::DEFAULT_INTERVAL);
    let machine = Arc::new(Machine::this());
    let asks_for_memory = counting.capacity;
    let process_rows = match counting.hook {
        Hook::CgroupSwitches => ProcessRows::Never("--hook cgroup-switches sees no processes"),
        Hook::SchedSwitch if counting.pressure => {
            ProcessRows::Never("--pressure has no values of processes")
        }
        Hook::SchedSwitch => ProcessRows::Restart,
    };
    let options = TopOptions {
        source: WindowSource::Live { interval },
        by: session.by(),
        process_rows,
        hidden: if asks_for_memory { &[] } else { HIDDEN },
        colours: wants_colours(),
    };
    let mut view = TopView::new(options, args.exact, Some(Arc::clone(&machine)));
    let deadline = session.timeout.map(|timeout| Instant::now() + timeout);
    let window_limit = session.interval_count;
    loop {
        let by_process = session.by() == By::Process;
        counting.capacity = asks_for_memory || memory::is_readable(&machine, by_process);
        let accesses = args.accesses.then(Hottest::default);
        let ended = stat::count(
            &counting,
            &session,
            stat::WindowContent {
                accesses,
                functions: FUNCTIONS,
                ..stat::WindowContent::default()
            },
            &machine,
            &mut view,
        )?;
        let Some((by, interval)) = view.take_restart() else {
            return Ok(ended);
        };
        (session.by, session.interval) = (Some(by), Some(interval));
        let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        session.timeout = remaining;
        session.interval_count =
            window_limit.map(|limit| limit.saturating_sub(view.windows()).max(1));
    }
}

/// Whether values have colours (<https://no-color.org>).
fn wants_colours() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Shows a recording, at the pace of its windows or when keys ask for the next one.
async fn play(mut replay: Replay, exact: bool) -> Result<ExitCode> {
    let process_rows = match replay.has_processes() {
        true => ProcessRows::Counted,
        false => ProcessRows::Never("Recorded without processes: record it with --by process"),
    };
    if replay.has_processes() {
        replay.change_view(|view| view.processes = usize::MAX);
    }
    let options = TopOptions {
        source: WindowSource::Replay {
            speed: 1.0,
            ended: false,
        },
        by: replay.view().by,
        process_rows,
        hidden: &[],
        colours: wants_colours(),
    };
    let mut view = TopView::new(options, exact, None);
    view.open()?;
    let mut ending = Ending::listen()?;
    let mut length = show_next(&mut replay, &mut view)?;
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
                length = show_next(&mut replay, &mut view)?;
                began = tokio::time::Instant::now();
            }
            action = view.next_action() => match action? {
                KeyAction::Nothing | KeyAction::Interval(_) | KeyAction::Suspend => {}
                KeyAction::End => break,
                KeyAction::Rows(by) => {
                    let report = replay.change_view(|view| view.by = by);
                    view.rows_changed(by, report)?;
                }
                KeyAction::Windows(count) => {
                    for _ in 0..count {
                        length = show_next(&mut replay, &mut view)?;
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

/// Shows the next window, and returns its length; [`Duration::MAX`] after the last one.
fn show_next(replay: &mut Replay, view: &mut TopView) -> Result<Duration> {
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
}

/// Waits until a time; forever without one.
async fn until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

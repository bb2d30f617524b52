//! `pmuscope record`: writes what `stat` counts into a file.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use probe_user::{
    join::Hottest,
    machine::Machine,
    pipeline::Pipeline,
    recording::{RecordingFile, RecordingHead},
    samples::machine_metadata,
};

use crate::{
    ending::NotStarted,
    live,
    print::{command_line, note},
    stat,
};

/// Arguments of `record`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope record                              # until Ctrl-C
  pmuscope record -o before.jsonl.gz --timeout 1m
  pmuscope record -I 100ms -- make             # beside a command")]
pub(crate) struct Args {
    /// Write the recording to FILE; an earlier one becomes FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "pmuscope.jsonl.gz")]
    output: PathBuf,
    /// Also sample memory accesses as `mem` does: their data sources and latencies
    #[arg(long)]
    accesses: bool,
    #[command(flatten)]
    counting: stat::CountingArgs,
    #[command(flatten)]
    session: live::SessionArgs,
}

pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    let interval = *args.session.interval.get_or_insert(live::DEFAULT_INTERVAL);
    let machine = Arc::new(Machine::this());
    let words = command_line();
    let mut about = machine_metadata(&machine, &words);
    about.push(("interval_ms".to_owned(), interval.as_millis().to_string()));
    let mut sink = RecordingSink {
        path: &args.output,
        about,
        is_without_command: args.session.command.is_empty(),
        file: None,
    };
    let accesses = args.accesses.then(Hottest::default);
    let ended = stat::count(
        &args.counting,
        &args.session,
        stat::WindowContent {
            accesses,
            ..stat::WindowContent::default()
        },
        &machine,
        &mut sink,
    );
    let Some(file) = sink.file else {
        return ended;
    };
    if let Err(error) = &ended
        && (error.is::<NotStarted>() || file.windows() == 0)
    {
        if let Err(error) = file.discard() {
            tracing::warn!("cannot remove what is empty: {error}");
        }
        return ended;
    }
    let windows = file.windows();
    // Finishes the file even after an error, so that the windows until then can be read.
    let finished = file.finish().context("cannot write the recording");
    if finished.is_ok() {
        let noun = if windows == 1 { "window" } else { "windows" };
        let output = args.output.display();
        note(format_args!("{windows} {noun} into {output}"));
    }
    if let (Err(_), Err(second)) = (&ended, &finished) {
        tracing::warn!("{second:#}");
    }
    let ended = ended?;
    finished?;
    Ok(ended)
}

/// Writes windows to a file, which is created when the session begins.
struct RecordingSink<'a> {
    path: &'a Path,
    about: Vec<(String, String)>,
    /// There is no command: Ctrl-C ends the recording.
    is_without_command: bool,
    file: Option<RecordingFile>,
}

impl live::WindowSink for RecordingSink<'_> {
    fn begin(&mut self, pipeline: &Pipeline) -> Result<()> {
        let head = RecordingHead {
            about: self.about.iter().cloned().collect(),
            view: pipeline.view().clone(),
            plan: pipeline.plan().clone(),
        };
        let file = RecordingFile::begin(self.path, &head, pipeline.snapshot());
        self.file = Some(file.context("cannot write the recording")?);
        if self.is_without_command {
            note(format_args!("recording; Ctrl-C ends it"));
        }
        Ok(())
    }

    fn window(&mut self, pipeline: &Pipeline) -> Result<bool> {
        if let Some(file) = &mut self.file {
            let added = file.add(pipeline.snapshot());
            added.context("cannot write the recording")?;
        }
        Ok(true)
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

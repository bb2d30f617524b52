//! `pmuscope record`: what `stat` counts, into a file.

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
    record::of_machine,
    recording::{About, RecordingFile},
};

use crate::{
    ending::NotStarted,
    live,
    print::{called, note},
    stat,
};

/// Arguments of `record`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the recording to FILE
    #[arg(short, long, value_name = "FILE", default_value = "pmuscope.parquet")]
    output: PathBuf,
    /// Also sample memory accesses as `mem` does: their data sources and latencies
    #[arg(long)]
    accesses: bool,
    #[command(flatten)]
    counting: stat::Counting,
    #[command(flatten)]
    counted: live::Counted,
}

pub(crate) fn run(mut args: Args) -> Result<ExitCode> {
    let interval = *args.counted.interval.get_or_insert(live::INTERVAL);
    let machine = Arc::new(Machine::this());
    let called = called();
    let mut about = of_machine(&machine, &called);
    about.push(("interval_ms".to_owned(), interval.to_string()));
    let mut to = To {
        path: &args.output,
        about,
        alone: args.counted.command.is_empty(),
        file: None,
    };
    let accesses = args.accesses.then(Hottest::default);
    let ended = stat::count(&args.counting, &args.counted, accesses, &machine, &mut to);
    let Some(file) = to.file else {
        return ended;
    };
    if let Err(error) = &ended
        && error.is::<NotStarted>()
    {
        if let Err(error) = file.discard() {
            tracing::warn!("cannot remove what is empty: {error}");
        }
        return ended;
    }
    let windows = file.windows();
    // Also after an error: what was recorded until then can be read.
    let finished = file.finish().context("cannot write the recording");
    if finished.is_ok() {
        let them = if windows == 1 { "window" } else { "windows" };
        let output = args.output.display();
        note(format_args!("{windows} {them} into {output}"));
    }
    if let (Err(_), Err(left)) = (&ended, &finished) {
        tracing::warn!("{left:#}");
    }
    let ended = ended?;
    finished?;
    Ok(ended)
}

/// The file, once the session has begun.
struct To<'a> {
    path: &'a Path,
    about: Vec<(String, String)>,
    /// Without a command.
    alone: bool,
    file: Option<RecordingFile>,
}

impl live::Windows for To<'_> {
    fn begin(&mut self, pipeline: &Pipeline) -> Result<()> {
        let about = About {
            plan: pipeline.plan(),
            view: pipeline.view(),
            more: self.about.clone(),
        };
        let file = RecordingFile::begin(self.path, about, pipeline.snapshot());
        self.file = Some(file.context("cannot write the recording")?);
        if self.alone {
            note(format_args!("recording; Ctrl-C ends it"));
        }
        Ok(())
    }

    fn window(&mut self, pipeline: &Pipeline) -> Result<bool> {
        if let Some(file) = &mut self.file {
            let added = file.add(pipeline.report(), pipeline.snapshot());
            added.context("cannot write the recording")?;
        }
        Ok(true)
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

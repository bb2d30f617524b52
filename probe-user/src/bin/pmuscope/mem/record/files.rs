//! The files of a recording: samples as Parquet, bytes as perf.data, or both.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use probe_user::samples::{
    AuxPosition, EventDescription, LazyMetadata, Mapping, RawFile, Recorder, Sample, SampleFile,
    Sink,
    regions::{GroupBy, RegionSummary},
};

use super::output_file::OutputFile;

/// Paths of the recording's files.
pub(crate) struct Paths {
    samples: Option<PathBuf>,
    raw: Option<PathBuf>,
}

impl Paths {
    /// The paths by the options; without any, samples go into a file of a fixed name.
    pub(crate) fn from_options(samples: Option<PathBuf>, raw: Option<PathBuf>) -> Self {
        let samples = match (samples, &raw) {
            (None, None) => Some("pmuscope-mem.parquet".into()),
            (samples, _) => samples,
        };
        Self { samples, raw }
    }

    /// Creates the files; `command` is the command line of this process.
    pub(crate) fn begin(
        &self,
        recorder: &Recorder,
        drains: NonZeroUsize,
        command: &[String],
        summary: Option<RegionSummary>,
    ) -> Result<Files> {
        // Creates the Parquet file first: it fails for more reasons, and a failed start must leave
        // no file.
        let samples = self.samples.as_deref().map(|path| {
            let file = SampleFile::begin(path, drains, recorder.about(command));
            file.context("cannot write the samples")
        });
        let samples = samples.transpose()?;
        let raw = self.raw.as_deref().map(|path| {
            let file = Raw::begin(path, recorder, command);
            file.with_context(|| format!("cannot write {}", path.display()))
        });
        let files = |raw| Files {
            samples,
            raw,
            summary,
        };
        match raw.transpose() {
            Ok(raw) => Ok(files(raw)),
            Err(error) => {
                self.remove(files(None));
                Err(error)
            }
        }
    }

    /// Removes the files, since nothing was recorded. Earlier files of these names stay as they
    /// were.
    pub(crate) fn remove(&self, files: Files) {
        let raw = files.raw.map_or(Ok(()), |raw| raw.output.discard());
        let samples = files.samples.map_or(Ok(()), SampleFile::discard);
        if let Err(error) = raw.and(samples) {
            tracing::warn!("cannot remove {self}, which is empty: {error}");
        }
    }
}

/// The raw file, and its path.
struct Raw {
    file: RawFile,
    output: OutputFile,
}

impl Raw {
    fn begin(path: &Path, recorder: &Recorder, command: &[String]) -> io::Result<Self> {
        let (output, file) = OutputFile::open(path)?;
        match RawFile::begin(file, recorder, command) {
            Ok(file) => Ok(Self { file, output }),
            Err(error) => output.discard().and(Err(error)),
        }
    }
}

impl std::fmt::Display for Paths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths = self.samples.iter().chain(&self.raw);
        let names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        f.write_str(&names.join(" and "))
    }
}

/// The files of a recording. Each file gets the data that it stores.
pub(crate) struct Files {
    samples: Option<SampleFile>,
    raw: Option<Raw>,
    /// Sums by region, to print at the end.
    summary: Option<RegionSummary>,
}

impl Files {
    /// Finishes both files, even if one of them fails. Returns the sums by region, to print.
    pub(crate) fn finish(self, recorder: &Recorder) -> (Result<()>, Option<RegionSummary>) {
        let summary = self.summary;
        let samples = self.samples.map_or(Ok(()), |file| {
            let counts = { recorder.counts().named().into_iter() }
                .map(|(name, count)| (format!("count.{name}"), count.to_string()));
            let regions = summary.iter().flat_map(|summary| {
                let rows = serde_json::to_string(&summary.rows(GroupBy::All)).unwrap_or_default();
                let entry = ("regions".to_owned(), rows);
                recorder.about_regions().into_iter().chain([entry])
            });
            let about: Vec<_> = counts.chain(regions).collect();
            file.finish(&about).context("cannot write the samples")
        });
        let raw = self.raw.map_or(Ok(()), |raw| {
            let finished = raw.file.finish().and(raw.output.commit());
            finished.context("cannot write the raw file")
        });
        (samples.and(raw), summary)
    }
}

impl Sink for Files {
    fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
        if let Some(summary) = &self.summary {
            summary.samples(thread, samples)?;
        }
        self.samples
            .as_ref()
            .map_or(Ok(()), |file| file.samples(thread, samples))
    }

    fn ring(&self, records: &[u8]) -> io::Result<()> {
        self.raw.as_ref().map_or(Ok(()), |raw| {
            // Records come only once the recording runs, so an earlier file may be replaced.
            raw.output.commit()?;
            raw.file.ring(records)
        })
    }

    fn aux(&self, position: AuxPosition, bytes: &[u8]) -> io::Result<()> {
        self.raw
            .as_ref()
            .map_or(Ok(()), |raw| raw.file.aux(position, bytes))
    }

    fn mapping(&self, mapping: &Arc<Mapping>) {
        if let Some(file) = &self.samples {
            file.mapping(mapping);
        }
    }

    fn events(&self, events: Vec<EventDescription>) {
        if let Some(raw) = &self.raw {
            raw.file.events(events);
        }
    }

    fn round(&self, news: LazyMetadata<'_>) -> io::Result<()> {
        let samples = self
            .samples
            .as_ref()
            .map_or(Ok(()), |file| file.round(news));
        let raw = self.raw.as_ref().map_or(Ok(()), |raw| raw.file.round(news));
        samples.and(raw)
    }
}

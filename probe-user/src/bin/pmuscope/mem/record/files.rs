//! The files of a recording: samples as Parquet, bytes as perf.data, or both.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use probe_user::record::{
    AuxPlace, EventFile, Mapping, News, RawFile, Recorder, Sample, SampleFile, Sink,
    regions::{By, Summary},
};

use super::place::Place;

/// Where the recording goes.
pub(crate) struct Paths {
    samples: Option<PathBuf>,
    raw: Option<PathBuf>,
}

impl Paths {
    /// By the options; without any, samples go into a file of a fixed name.
    pub(crate) fn of(samples: Option<PathBuf>, raw: Option<PathBuf>) -> Self {
        let samples = match (samples, &raw) {
            (None, None) => Some("pmuscope-mem.parquet".into()),
            (samples, _) => samples,
        };
        Self { samples, raw }
    }

    /// Begins the files; `command` is how this program was called.
    pub(crate) fn begin(
        &self,
        recorder: &Recorder,
        drains: NonZeroUsize,
        command: &[String],
        summary: Option<Summary>,
    ) -> Result<Files> {
        // It refuses more than the other, and a refused start leaves no file behind.
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

    /// Removes the files: nothing was recorded. Files that were there before are as they were.
    pub(crate) fn remove(&self, files: Files) {
        let raw = files.raw.map_or(Ok(()), |raw| raw.place.discard());
        let samples = files.samples.map_or(Ok(()), SampleFile::discard);
        if let Err(error) = raw.and(samples) {
            tracing::warn!("cannot remove {self}, which is empty: {error}");
        }
    }
}

/// The raw file and its place.
struct Raw {
    file: RawFile,
    place: Place,
}

impl Raw {
    fn begin(path: &Path, recorder: &Recorder, command: &[String]) -> io::Result<Self> {
        let (place, file) = Place::open(path)?;
        match RawFile::begin(file, recorder, command) {
            Ok(file) => Ok(Self { file, place }),
            Err(error) => place.discard().and(Err(error)),
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

/// The files of a recording: each gets the parts that it needs.
pub(crate) struct Files {
    samples: Option<SampleFile>,
    raw: Option<Raw>,
    /// What is printed at the end.
    summary: Option<Summary>,
}

impl Files {
    /// Ends both, also where one of them fails; gives the sums that are to be printed.
    pub(crate) fn finish(self, recorder: &Recorder) -> (Result<()>, Option<Summary>) {
        let summary = self.summary;
        let samples = self.samples.map_or(Ok(()), |file| {
            let counts = recorder.counts().named().into_iter();
            let counts = counts.map(|(name, count)| (format!("count.{name}"), count.to_string()));
            let regions = summary.iter().flat_map(|summary| {
                let rows = summary.rows(By::All);
                let rows = serde_json::to_string(&rows).unwrap_or_default();
                let rows = ("regions".to_owned(), rows);
                recorder.about_regions().into_iter().chain([rows])
            });
            let about: Vec<_> = counts.chain(regions).collect();
            file.finish(&about).context("cannot write the samples")
        });
        let raw = self.raw.map_or(Ok(()), |raw| {
            let finished = raw.file.finish().and(raw.place.take());
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
            // The first one comes once the recording runs.
            raw.place.take()?;
            raw.file.ring(records)
        })
    }

    fn aux(&self, place: AuxPlace, bytes: &[u8]) -> io::Result<()> {
        self.raw
            .as_ref()
            .map_or(Ok(()), |raw| raw.file.aux(place, bytes))
    }

    fn mapping(&self, mapping: &Arc<Mapping>) {
        if let Some(file) = &self.samples {
            file.mapping(mapping);
        }
    }

    fn events(&self, events: Vec<EventFile>) {
        if let Some(raw) = &self.raw {
            raw.file.events(events);
        }
    }

    fn round(&self, news: News<'_>) -> io::Result<()> {
        let samples = self.samples.as_ref();
        let samples = samples.map_or(Ok(()), |file| file.round(news));
        let raw = self.raw.as_ref();
        let raw = raw.map_or(Ok(()), |raw| raw.file.round(news));
        samples.and(raw)
    }
}

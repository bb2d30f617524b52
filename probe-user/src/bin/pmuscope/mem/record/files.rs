//! The files of a recording: samples as Parquet, bytes as perf.data, or both.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail};
use probe_user::record::{AuxPlace, RawFile, Recorder, Sample, SampleFile, Sink};

/// Where the recording goes.
pub(crate) struct Paths {
    samples: Option<PathBuf>,
    raw: Option<PathBuf>,
}

impl Paths {
    /// By the options; without any, samples go into a file of a fixed name.
    pub(crate) fn of(samples: Option<PathBuf>, raw: Option<PathBuf>) -> Result<Self> {
        let samples = match (samples, &raw) {
            (None, None) => Some("pmuscope-mem.parquet".into()),
            (samples, _) => samples,
        };
        if samples.is_some() && cfg!(not(feature = "parquet")) {
            bail!("this program was built without Parquet: give --raw FILE and no --output");
        }
        Ok(Self { samples, raw })
    }

    /// Makes the files, empty.
    pub(crate) fn create(&self) -> Result<Created> {
        let create = |path: &Option<PathBuf>| {
            path.as_deref()
                .map(|path| {
                    File::create(path).with_context(|| format!("cannot write {}", path.display()))
                })
                .transpose()
        };
        Ok(Created {
            samples: create(&self.samples)?,
            raw: create(&self.raw)?,
        })
    }

    /// Removes the files: nothing was recorded.
    pub(crate) fn remove(&self) {
        for path in self.samples.iter().chain(&self.raw) {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!("cannot remove the empty {}: {error}", path.display());
            }
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

pub(crate) struct Created {
    samples: Option<File>,
    raw: Option<File>,
}

impl Created {
    pub(crate) fn begin(self, recorder: &Recorder, per_thread: bool) -> Result<Files> {
        let begin = |file| RawFile::begin(file, recorder, per_thread);
        let raw = self.raw.map(begin).transpose();
        Ok(Files {
            samples: self
                .samples
                .map(SampleFile::begin)
                .transpose()
                .context("cannot write the samples")?,
            raw: raw.context("cannot write the raw file")?,
        })
    }
}

/// The files of a recording: each gets the parts that it needs.
pub(crate) struct Files {
    samples: Option<SampleFile>,
    raw: Option<RawFile>,
}

impl Files {
    pub(crate) fn finish(self, recorder: &Recorder, about: &[(String, String)]) -> Result<()> {
        if let Some(file) = self.samples {
            let counts = recorder.counts().named().into_iter();
            let counts = counts.map(|(name, count)| (format!("count.{name}"), count.to_string()));
            let about: Vec<_> = about.iter().cloned().chain(counts).collect();
            file.finish(&about).context("cannot write the samples")?;
        }
        if let Some(file) = self.raw {
            file.finish(recorder).context("cannot write the raw file")?;
        }
        Ok(())
    }
}

impl Sink for Files {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        if let Some(file) = &mut self.samples {
            file.sample(sample)?;
        }
        Ok(())
    }

    fn ring(&mut self, records: &[u8]) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), |file| file.ring(records))
    }

    fn aux(&mut self, place: AuxPlace, bytes: &[u8]) -> io::Result<()> {
        self.raw
            .as_mut()
            .map_or(Ok(()), |file| file.aux(place, bytes))
    }

    fn round(&mut self) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), RawFile::round)
    }
}

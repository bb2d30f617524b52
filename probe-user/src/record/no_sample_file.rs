//! Stands for the file of samples where this program is built without Parquet.

use std::{io, num::NonZeroUsize, path::Path};

use super::Sink;

/// A file that cannot exist.
pub enum SampleFile {}

impl SampleFile {
    /// Fails: Parquet is not built in.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn begin(
        _path: &Path,
        _threads: NonZeroUsize,
        _about: Vec<(String, String)>,
    ) -> io::Result<Self> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this program was built without Parquet",
        ))
    }

    /// Never called, since there is no such file.
    ///
    /// # Errors
    ///
    /// Never: there is no such file.
    pub fn finish(self, _about: &[(String, String)]) -> io::Result<()> {
        match self {}
    }

    /// Never called, since there is no such file.
    ///
    /// # Errors
    ///
    /// Never: there is no such file.
    pub fn discard(self) -> io::Result<()> {
        match self {}
    }
}

impl Sink for SampleFile {}

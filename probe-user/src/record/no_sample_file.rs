//! In place of the samples' file where this program is built without Parquet.

use std::{fs::File, io};

use super::Sink;

/// There is none.
pub enum SampleFile {}

impl SampleFile {
    /// Does not begin.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn begin(_file: File) -> io::Result<Self> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this program was built without Parquet",
        ))
    }

    /// Ends what did not begin.
    ///
    /// # Errors
    ///
    /// Never: there is no such file.
    pub fn finish(self, _about: &[(String, String)]) -> io::Result<()> {
        match self {}
    }
}

impl Sink for SampleFile {}

//! In place of `tls.rs` in a build without it.

use std::{convert::Infallible, io};

use tonic::transport::{Channel, Endpoint};

use crate::agent::config::OtlpTls;

/// No endpoint may be at `https://`.
pub(super) fn is_there() -> Result<(), String> {
    Err("cannot be https: this pmuscope was built without the feature tls".to_owned())
}

/// There is none.
pub(super) struct Tls(Infallible);

impl Tls {
    pub(super) fn load(_files: &OtlpTls) -> io::Result<Self> {
        Err(io::Error::other("without the feature tls"))
    }

    pub(super) fn channel(&self, _endpoint: &Endpoint) -> Channel {
        match self.0 {}
    }

    pub(super) fn reason(&self) -> Option<String> {
        match self.0 {}
    }
}

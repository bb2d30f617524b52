//! In place of `otlp.rs` in a build without it.

use std::{collections::BTreeMap, convert::Infallible, io, sync::Arc, time::Duration};

use super::{Config, config, published::Sent};
use crate::derive::Report;

/// There is none.
pub(super) struct Push(Infallible);

impl Push {
    /// Pushes nothing: no configuration names a collector.
    pub(super) fn start(_config: &Config, _sent: &Arc<Sent>) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// There is nothing to send to.
    pub(super) fn send(&self, _report: &Report) {
        match self.0 {}
    }

    /// There is nothing to wait for.
    pub(super) fn finish(self, _within: Duration) {
        match self.0 {}
    }
}

/// There is no collector to send to.
pub(super) fn check(_endpoint: &str) -> Result<(), String> {
    Err("cannot be set: this pmuscope was built without the feature otlp".to_owned())
}

/// There is no endpoint that they could be wrong for.
pub(super) fn check_tls(_otlp: &config::Otlp) -> Result<(), (&'static str, String)> {
    Ok(())
}

/// No configuration names any.
pub(super) fn check_files(_otlp: &config::Otlp) -> io::Result<()> {
    Ok(())
}

/// They are of no use without an endpoint.
pub(super) fn headers(_headers: &BTreeMap<String, String>) -> Result<(), String> {
    check("")
}

//! Sampling with SPE in `stat`: for its metrics, and for shares of the reads of a socket's memory.

use std::sync::Arc;

use anyhow::Result;
use probe_user::{
    machine::Machine,
    session::{Config, Session, SessionError, SpeConfig},
};

/// Starts a session that samples if its metrics need it. If only shares would use samples, it works
/// without SPE too.
pub(crate) fn start(mut config: Config, machine: &Arc<Machine>) -> Result<Session> {
    let needed = config.plan.samples();
    if needed || config.plan.shares_reads() {
        config.spe = match SpeConfig::standard(machine.pmus()?) {
            Ok(spe) => Some(spe),
            Err(error) if needed => return Err(error.into()),
            // Most machines have no SPE: their shares go by counters.
            Err(_) => None,
        };
    }
    if needed || config.spe.is_none() {
        return Ok(Session::start(config, machine)?);
    }
    let without = Config {
        spe: None,
        ..config.clone()
    };
    match Session::start(config, machine) {
        Err(SessionError::Spe(error)) => {
            tracing::warn!("shares go by counters, not by samples: {error}");
            Ok(Session::start(without, machine)?)
        }
        started => Ok(started?),
    }
}

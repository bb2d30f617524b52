//! Changes that a running agent follows between windows: the switch files of its run directory, and
//! new PMUs.

use std::mem;

use super::Running;
use crate::agent::config::Enabled;

impl Running {
    /// Applies changes of the switch files in the run directory.
    pub(super) fn follow_files(&mut self) {
        let now = self.directory.switches();
        let before = mem::replace(&mut self.switches, now);
        if now.all {
            if !before.all {
                self.pause();
                self.publish();
                self.report_off();
            }
            return;
        }
        if before.all {
            tracing::info!(
                "counting begins again: {} went",
                self.directory.off_file().display()
            );
            self.restart_session();
        } else if now.spe && !before.spe {
            if let Some(pipeline) = &mut self.pipeline {
                pipeline.stop_accesses();
                tracing::info!(
                    "sampling of memory accesses ended: the run directory has a file spe.off"
                );
            }
        } else if before.spe && !now.spe && self.config.spe.enabled != Enabled::Off {
            if self.options.drop_all {
                tracing::warn!(
                    "spe.off went; all capabilities were given up (--drop-all): start the agent \
                     again to sample memory accesses"
                );
                return;
            }
            // A session opens its sampling buffers at its start. With samples, the budget has other
            // levels.
            self.governor = None;
            self.pause();
            self.restart_session();
        }
    }

    /// Restarts counting when new PMUs appeared because their drivers were loaded.
    pub(super) fn follow_pmus(&mut self) {
        let now = self.self_report.pmus();
        let before = mem::replace(&mut self.pmus, now);
        let added: Vec<&str> = self.pmus.difference(&before).map(String::as_str).collect();
        if added.is_empty() || self.pipeline.is_none() {
            return;
        }
        let added = added.join(", ");
        if self.options.drop_all {
            tracing::warn!(
                "PMUs came: {added}; all capabilities were given up (--drop-all): start the agent \
                 again to count what they count"
            );
            return;
        }
        tracing::info!("PMUs came: {added}; counting begins again with them");
        // With more events, the budget has other levels.
        self.governor = None;
        self.pause();
        self.restart_session();
    }
}

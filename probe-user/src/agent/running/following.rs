//! What a running agent follows between windows: the files of its run directory, and PMUs that
//! come.

use std::mem;

use super::Running;
use crate::agent::config::Enabled;

impl Running {
    /// Does what the files in the run directory say.
    pub(super) fn follow_files(&mut self) {
        let now = self.directory.switches();
        let before = mem::replace(&mut self.switches, now);
        if now.all {
            if !before.all {
                self.pause();
                self.publish();
                self.say_off();
            }
            return;
        }
        if before.all {
            tracing::info!(
                "counting begins again: {} went",
                self.directory.off().display()
            );
            self.begin_again();
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
            // The buffers come with a session, and what there is to give up.
            self.governor = None;
            self.pause();
            self.begin_again();
        }
    }

    /// Where PMUs came, as their drivers were loaded, counting begins again with them.
    pub(super) fn follow_pmus(&mut self) {
        let now = self.own.pmus();
        let before = mem::replace(&mut self.pmus, now);
        let came: Vec<&str> = self.pmus.difference(&before).map(String::as_str).collect();
        if came.is_empty() || self.pipeline.is_none() {
            return;
        }
        let came = came.join(", ");
        if self.options.drop_all {
            tracing::warn!(
                "PMUs came: {came}; all capabilities were given up (--drop-all): start the agent \
                 again to count what they count"
            );
            return;
        }
        tracing::info!("PMUs came: {came}; counting begins again with them");
        // There may be more to give up.
        self.governor = None;
        self.pause();
        self.begin_again();
    }
}

//! Reload of the configuration: applied as a whole, or not at all.

use std::{mem, time::Duration};

use super::Running;
use crate::{
    agent::{
        config::Config,
        json_lines::JsonLines,
        outputs::{open_json, start_push, start_resolver},
        overhead::Governor,
        state_directory::StateDirectory,
    },
    emit::Exposition,
};

/// Why a reload is refused if it changes settings that need a restart.
const FIXED: &str = "http.listen, http.web_config and run.directory change with a restart only";

impl Running {
    /// Reads the configuration again and applies it. Returns the interval if that changed.
    pub(in crate::agent) fn reload(&mut self) -> Option<Duration> {
        let reopened = self.json.as_mut().map(JsonLines::reopen);
        if let Some(Err(error)) = reopened {
            tracing::warn!("cannot open the file of JSON lines again: {error}");
        }
        let refused = match self.options.sources.read() {
            Ok(config) => match self.apply(config) {
                Ok(interval) => {
                    tracing::info!("reloaded the configuration");
                    self.self_report.health.reloads += 1;
                    return interval;
                }
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        tracing::error!("the settings stay as they are: {refused}");
        self.self_report.health.refused_reloads += 1;
        None
    }

    /// Applies a new configuration. The error says why it was refused.
    fn apply(&mut self, config: Config) -> Result<Option<Duration>, String> {
        if config.http != self.config.http || config.run != self.config.run {
            return Err(FIXED.to_owned());
        }
        let json = match config.json != self.config.json {
            true => Some(open_json(&config, &self.published).map_err(|error| error.to_string())?),
            false => None,
        };
        let state = match (&config.state, config.state != self.config.state) {
            (Some(path), true) => {
                let acquired = StateDirectory::acquire(path, self.options.save_state, &self.saving);
                Some(Some(acquired.map_err(|error| error.to_string())?))
            }
            (None, true) => Some(None),
            (_, false) => None,
        };
        let interval = self.interval();
        // Names and pins are among them, since a session keeps the resolver and pins of its start.
        let counting_settings = |config: &Config| {
            let names = (config.names.clone(), config.pins.path.clone());
            let log = config.kernel_log;
            (config.count.clone(), config.spe, names, config.verdict, log)
        };
        let count_changed = counting_settings(&config) != counting_settings(&self.config);
        let budget = |config: &Config| (config.max_overhead, config.interval);
        // A new budget begins at the level that counts everything.
        let budget_changed = budget(&config) != budget(&self.config);
        let is_reduced = budget_changed && self.governor.as_ref().is_some_and(Governor::is_reduced);
        let restarts = (count_changed || is_reduced) && self.pipeline.is_some();
        if restarts && self.options.drop_all {
            return Err(
                "what is counted cannot change, since all capabilities were given up \
                 (--drop-all): start it again"
                    .to_owned(),
            );
        }
        let names_changed = config.names != self.config.names;
        let resolver = match names_changed {
            true => start_resolver(&config.names).map_err(|error| error.to_string())?,
            false => self.resolver.clone(),
        };
        let push_changed =
            config.otlp != self.config.otlp || config.series.labels != self.config.series.labels;
        let push = push_changed
            .then(|| start_push(&config, &self.published))
            .transpose()
            .map_err(|error| error.to_string())?;
        let exposition = Exposition::new(&config.series.labels);
        let governor = match count_changed || budget_changed {
            true => None,
            false => self.governor.take(),
        };
        let before = (
            mem::replace(&mut self.config, config),
            mem::replace(&mut self.resolver, resolver),
            mem::replace(&mut self.governor, governor),
        );
        if restarts {
            self.pause();
            let paused = (self.period, self.saved_is_latest);
            self.saved_is_latest &= state.is_none();
            if before.0.spe != self.config.spe {
                self.period = None;
            }
            if let Err(error) = self.start_session() {
                (self.config, self.resolver, self.governor) = before;
                (self.period, self.saved_is_latest) = paused;
                self.restart_session();
                return Err(error.to_string());
            }
        }
        if let Some(push) = push {
            self.push = push;
        }
        if let Some(state) = state {
            self.state_directory = state;
            self.saved_is_latest = false;
        }
        self.exposition = exposition;
        if let Some(json) = json {
            self.json = json;
        }
        self.start_budget();
        let now = self.interval();
        Ok((now != interval).then_some(now))
    }
}

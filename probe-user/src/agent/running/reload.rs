//! A changed configuration: it is taken as a whole, or changes nothing.

use std::{mem, time::Duration};

use super::Running;
use crate::{
    agent::{
        beside::{open_json, push, resolver},
        config::Config,
        json_lines::JsonLines,
        overhead::Governor,
        state_directory::StateDirectory,
    },
    emit::Exposition,
};

/// Settings that only a new start can change.
const FIXED: &str = "http.listen, http.web_config and run.directory change with a restart only";

impl Running {
    /// Follows a changed configuration; the interval where it is another one.
    pub(in crate::agent) fn reload(&mut self) -> Option<Duration> {
        let reopened = self.json.as_mut().map(JsonLines::reopen);
        if let Some(Err(error)) = reopened {
            tracing::warn!("cannot open the file of JSON lines again: {error}");
        }
        let refused = match self.options.sources.read() {
            Ok(config) => match self.take(config) {
                Ok(interval) => {
                    tracing::info!("reloaded the configuration");
                    self.own.health.reloads += 1;
                    return interval;
                }
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        tracing::error!("the settings stay as they are: {refused}");
        self.own.health.refused_reloads += 1;
        None
    }

    /// Takes a new configuration, or says why not.
    fn take(&mut self, config: Config) -> Result<Option<Duration>, String> {
        if config.http != self.config.http || config.run != self.config.run {
            return Err(FIXED.to_owned());
        }
        let json = match config.json != self.config.json {
            true => Some(open_json(&config, &self.published).map_err(|error| error.to_string())?),
            false => None,
        };
        let state = match (&config.state, config.state != self.config.state) {
            (Some(path), true) => {
                let taken = StateDirectory::take(path, self.options.save_state);
                Some(Some(taken.map_err(|error| error.to_string())?))
            }
            (None, true) => Some(None),
            (_, false) => None,
        };
        let interval = self.interval();
        // A session keeps the resolver and the pins it began with.
        let counts = |config: &Config| {
            let names = (config.names.clone(), config.pins.path.clone());
            let log = config.kernel_log;
            (config.count.clone(), config.spe, names, config.verdict, log)
        };
        let counts_otherwise = counts(&config) != counts(&self.config);
        let budget = |config: &Config| (config.max_overhead, config.interval);
        // Another budget begins with everything again.
        let budgets_otherwise = budget(&config) != budget(&self.config);
        let lacks = budgets_otherwise && self.governor.as_ref().is_some_and(Governor::lacks);
        let counted = (counts_otherwise || lacks) && self.pipeline.is_some();
        if counted && self.options.drop_all {
            return Err(
                "what is counted cannot change, since all capabilities were given up \
                 (--drop-all): start it again"
                    .to_owned(),
            );
        }
        let asks_others = config.names != self.config.names;
        let resolver = match asks_others {
            true => resolver(&config.names).map_err(|error| error.to_string())?,
            false => self.resolver.clone(),
        };
        let pushes_otherwise =
            config.otlp != self.config.otlp || config.series.labels != self.config.series.labels;
        let push = pushes_otherwise.then(|| push(&config, &self.published));
        let push = push.transpose().map_err(|error| error.to_string())?;
        let labels = Exposition::new(&config.series.labels);
        let governor = match counts_otherwise || budgets_otherwise {
            true => None,
            false => self.governor.take(),
        };
        let before = (
            mem::replace(&mut self.config, config),
            mem::replace(&mut self.resolver, resolver),
            mem::replace(&mut self.governor, governor),
        );
        if counted {
            self.pause();
            if before.0.spe != self.config.spe {
                self.period = None;
            }
            if let Err(error) = self.begin() {
                (self.config, self.resolver, self.governor) = before;
                self.begin_again();
                return Err(error.to_string());
            }
        }
        if let Some(push) = push {
            self.push = push;
        }
        if let Some(state) = state {
            self.state = state;
        }
        self.exposition = labels;
        if let Some(json) = json {
            self.json = json;
        }
        self.govern();
        let now = self.interval();
        Ok((now != interval).then_some(now))
    }
}

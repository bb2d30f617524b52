//! Selects metrics by name and group.

use std::collections::BTreeSet;

use super::{
    Catalogue,
    error::SelectError,
    hardware::Hardware,
    model::{Family, Metric},
};
use crate::event::Nearest;

impl Metric {
    /// Whether `name` is its name or one of its aliases.
    #[must_use]
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl Family {
    /// Whether it applies to the machine.
    #[must_use]
    pub fn holds_on(&self, machine: &Hardware) -> bool {
        let core_fits = machine
            .midr
            .is_none_or(|midr| self.midr.is_empty() || self.midr.contains(&midr));
        core_fits && self.platforms.contains(&machine.platform)
    }
}

impl Catalogue {
    /// The metrics of a machine: those of all families that apply. A metric of a fallback family is
    /// left out if another family has a metric of its name.
    #[must_use]
    pub fn on(&self, machine: &Hardware) -> Vec<&Metric> {
        let here: Vec<&Metric> = self
            .metrics
            .iter()
            .filter(|metric| metric.family.holds_on(machine))
            .collect();
        let non_fallback: BTreeSet<&str> = here
            .iter()
            .filter(|metric| !metric.family.fallback)
            .map(|metric| metric.name.as_str())
            .collect();
        let hidden =
            |metric: &Metric| metric.family.fallback && non_fallback.contains(metric.name.as_str());
        here.into_iter().filter(|metric| !hidden(metric)).collect()
    }

    /// The metrics that a list names: names, aliases, `group:NAME`, `all`, separated by commas.
    /// Each metric comes once, in the order of the list.
    ///
    /// # Errors
    /// A name or group that this machine does not have.
    pub fn select(&self, list: &str, machine: &Hardware) -> Result<Vec<&Metric>, SelectError> {
        let here = self.on(machine);
        let mut selected: Vec<&Metric> = Vec::new();
        for word in list.split(',').map(str::trim) {
            let matching: Vec<&Metric> = match word.strip_prefix("group:") {
                None if word.is_empty() => return Err(SelectError::Empty),
                None if word == "all" => here.clone(),
                None => vec![self.find_metric(word, &here, machine)?],
                Some(group) => {
                    let members: Vec<&Metric> = here
                        .iter()
                        .copied()
                        .filter(|metric| metric.is_in(group))
                        .collect();
                    if members.is_empty() {
                        let groups: BTreeSet<&str> =
                            here.iter().map(|metric| metric.group.as_str()).collect();
                        return Err(SelectError::Group {
                            name: group.to_owned(),
                            here: machine.platform,
                            groups: groups.into_iter().collect::<Vec<_>>().join(", "),
                        });
                    }
                    members
                }
            };
            for metric in matching {
                if !selected.iter().any(|other| std::ptr::eq(*other, metric)) {
                    selected.push(metric);
                }
            }
        }
        Ok(selected)
    }

    fn find_metric<'a>(
        &'a self,
        name: &str,
        here: &[&'a Metric],
        machine: &Hardware,
    ) -> Result<&'a Metric, SelectError> {
        if let Some(metric) = here.iter().find(|metric| metric.answers_to(name)) {
            return Ok(metric);
        }
        if let Some(refused) = self.refused().iter().find(|it| it.name == name) {
            return Err(SelectError::Refused {
                name: name.to_owned(),
                source_: refused.source.clone(),
                reason: refused.reason.clone(),
            });
        }
        let elsewhere: BTreeSet<String> = self
            .metrics
            .iter()
            .filter(|metric| metric.answers_to(name))
            .flat_map(|metric| metric.family.platforms.iter().map(ToString::to_string))
            .collect();
        if !elsewhere.is_empty() {
            return Err(SelectError::Elsewhere {
                name: name.to_owned(),
                platforms: elsewhere.into_iter().collect::<Vec<_>>().join(", "),
                here: machine.platform,
            });
        }
        Err(SelectError::Unknown {
            name: name.to_owned(),
            near: Nearest::to(name, here.iter().map(|metric| &metric.name)),
        })
    }
}

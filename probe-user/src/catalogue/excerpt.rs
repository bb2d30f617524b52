//! Excerpts of the catalogue: metrics with all that they need, in the format of catalogue files. A
//! recording contains one, so that its metrics are later computed by the same definitions.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Catalogue, file, load,
    model::{Metric, PmuSpec},
};

/// Metrics as catalogue files: one for each family and PMU, with the events that the metrics need.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Excerpt(Vec<file::File>);

impl Excerpt {
    /// The excerpt with these metrics.
    #[must_use]
    pub fn from_metrics<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> Self {
        let mut files: Vec<(&Metric, file::File)> = Vec::new();
        for metric in metrics {
            let has_same_pmu = |(first, _): &(&Metric, _)| {
                Arc::ptr_eq(&first.family, &metric.family) && Arc::ptr_eq(&first.pmu, &metric.pmu)
            };
            let index = files.iter().position(has_same_pmu).unwrap_or_else(|| {
                files.push((metric, file_without_metrics(metric)));
                files.len() - 1
            });
            add_metric(&mut files[index].1, metric);
        }
        Self(files.into_iter().map(|(_, file)| file).collect())
    }

    /// The metrics, with the checks of catalogue files except those of encodings and clocks.
    ///
    /// # Errors
    /// What is wrong with one of them, or a platform or chip that this program does not know.
    pub fn metrics(&self) -> Result<Vec<Metric>, super::CatalogueError> {
        // The files need no other ones: references to metrics were replaced by their formulas.
        let empty = Catalogue {
            families: Vec::new(),
            metrics: Vec::new(),
            documents: BTreeMap::new(),
            refused: Vec::new(),
        };
        let mut all = Vec::new();
        for file in &self.0 {
            let loaded = load::load(&empty, file.clone(), load::fail_on_problem);
            let (_, metrics) = loaded.map_err(|problem| super::CatalogueError {
                file: file.name.clone().into(),
                line: None,
                problem,
            })?;
            all.extend(metrics);
        }
        Ok(all)
    }
}

fn file_without_metrics(metric: &Metric) -> file::File {
    let family = &metric.family;
    let names = (family.name.clone(), family.title.clone());
    let empty = file::File::empty(names, family.platforms.clone(), metric.document.clone());
    file::File {
        midr: family.midr.clone(),
        fallback: family.fallback,
        ..empty
    }
}

fn add_metric(file: &mut file::File, metric: &Metric) {
    let others = [&metric.from_each_socket, &metric.other_memory]
        .into_iter()
        .flatten()
        .map(String::as_str);
    for event in metric.events().into_iter().chain(others) {
        add_event(file, &metric.pmu, event);
    }
    for (pmu, event) in &metric.io {
        add_event(file, pmu, event);
    }
    let notes = &mut file.notes;
    let mut note_key = |text: &String| {
        let existing = notes.iter().find(|(_, note)| *note == text);
        if let Some((key, _)) = existing {
            return key.clone();
        }
        let key = format!("n{}", notes.len());
        notes.insert(key.clone(), text.clone());
        key
    };
    file.metric.push(file::FileMetric {
        name: metric.name.clone(),
        aliases: metric.aliases.clone(),
        title: metric.title.clone(),
        unit: metric.unit.clone(),
        kind: metric.kind,
        group: metric.group.clone(),
        also_in: metric.also_in.clone(),
        formula: metric.formula.text().to_owned(),
        document: (metric.document != file.document).then(|| metric.document.clone()),
        section: metric.section.clone(),
        apportion: metric.apportion,
        from_sockets: metric.from_sockets.clone(),
        from_each_socket: metric.from_each_socket.clone(),
        other_memory: metric.other_memory.clone(),
        not_shared_on: metric.not_shared_on.clone(),
        io: metric.io.iter().map(|(_, event)| event.clone()).collect(),
        bound: metric.bound,
        threshold: (metric.threshold.as_ref()).map(|formula| formula.text().to_owned()),
        requires: metric.requires,
        notes: metric.notes.iter().map(&mut note_key).collect(),
        not_on: metric
            .not_on
            .iter()
            .map(|(chip, why)| (*chip, note_key(why)))
            .collect(),
    });
}

fn add_event(file: &mut file::File, pmu: &PmuSpec, event: &str) {
    let entry = file.pmu.entry(pmu.key.clone());
    let file_pmu = entry.or_insert_with(|| file::FilePmu {
        pattern: pmu.pattern.to_string(),
        product: pmu.product,
        per: pmu.per,
        mismatch: pmu.mismatch,
        counters: pmu.counters,
        slots: pmu.slots,
        devices: pmu.devices.clone(),
        defaults: pmu.defaults.clone(),
        events: BTreeMap::new(),
    });
    if let Some(spec) = pmu.events.get(event) {
        file_pmu.events.insert(event.to_owned(), spec.clone());
    }
}

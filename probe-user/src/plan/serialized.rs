//! The metrics of a plan in a recording: an excerpt of the catalogue, and each metric by its name.

use serde::{Deserialize, Serialize};

use super::{CountSource, MetricSource, PlannedMetric, PlannedMetrics};
use crate::catalogue::{CatalogueError, Excerpt, Hardware};

/// [`PlannedMetrics`], with the definitions of the metrics in an excerpt of the catalogue.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SerializedMetrics {
    machine: Option<Hardware>,
    cpus: usize,
    catalogue: Excerpt,
    list: Vec<SerializedMetric>,
}

/// [`PlannedMetric`], with the name of its metric in place of the definition.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct SerializedMetric {
    family: String,
    metric: String,
    sources: Result<Vec<MetricSource>, String>,
    io: Vec<CountSource>,
}

/// Why the metrics of a recording cannot be restored.
#[derive(Debug, thiserror::Error)]
pub(super) enum SerializedError {
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error("its plan has metric {metric} of {family}, and its catalogue has none of that name")]
    Metric { family: String, metric: String },
}

impl From<PlannedMetrics> for SerializedMetrics {
    fn from(planned: PlannedMetrics) -> Self {
        Self {
            machine: planned.machine,
            cpus: planned.cpus,
            catalogue: Excerpt::from_metrics(planned.list.iter().map(|planned| &planned.metric)),
            list: planned
                .list
                .into_iter()
                .map(SerializedMetric::from_planned)
                .collect(),
        }
    }
}

impl SerializedMetric {
    fn from_planned(planned: PlannedMetric) -> Self {
        Self {
            family: planned.metric.family.name.clone(),
            metric: planned.metric.name,
            sources: planned.sources,
            io: planned.io,
        }
    }
}

impl TryFrom<SerializedMetrics> for PlannedMetrics {
    type Error = SerializedError;

    fn try_from(recorded: SerializedMetrics) -> Result<Self, SerializedError> {
        let metrics = recorded.catalogue.metrics()?;
        let restore = |entry: SerializedMetric| {
            let mut metrics = metrics.iter();
            let definition = metrics
                .find(|metric| metric.name == entry.metric && metric.family.name == entry.family);
            let Some(metric) = definition.cloned() else {
                let SerializedMetric { family, metric, .. } = entry;
                return Err(SerializedError::Metric { family, metric });
            };
            Ok(PlannedMetric {
                metric,
                sources: entry.sources,
                io: entry.io,
            })
        };
        Ok(Self {
            list: recorded
                .list
                .into_iter()
                .map(restore)
                .collect::<Result<_, _>>()?,
            machine: recorded.machine,
            cpus: recorded.cpus,
        })
    }
}

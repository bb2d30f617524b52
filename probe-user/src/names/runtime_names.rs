//! Names of containers and pods, as their runtimes report them. Plain data, part of every snapshot
//! and recording.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

/// The containers and pods with known names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeNames {
    /// Containers by the runtime's id.
    pub containers: BTreeMap<Arc<str>, Arc<Container>>,
    /// Pods by uid.
    pub pods: BTreeMap<Arc<str>, Arc<Pod>>,
}

/// A container, as its runtime describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its name (within its pod, if it has one); never empty. The pause container of a pod is
    /// `POD`.
    pub name: String,
    /// Uid of its pod; None if it is in no pod, or the runtime does not know the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<str>>,
    /// The runtime, as it calls itself: `containerd`, `cri-o`, `docker`, `podman`.
    pub runtime: Arc<str>,
    /// The image, as the user wrote it if the runtime knows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The labels that the user chose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A pod, as a runtime describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name, never empty.
    pub name: String,
    /// The labels that the user chose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl RuntimeNames {
    /// Whether no name is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.pods.is_empty()
    }

    /// A container and its pod, if known.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<(&Container, Option<&Pod>)> {
        let container = self.containers.get(id)?;
        let pod = container.pod.as_ref().and_then(|uid| self.pod(uid));
        Some((container, pod))
    }

    /// A pod, if known.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid).map(AsRef::as_ref)
    }
}

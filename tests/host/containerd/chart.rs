//! The container of the agent as the kubelet would create it from the rendered chart.

use std::{fs, path::PathBuf};

use serde_json::Value;

use super::cri::{
    Capability, ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig,
    Mount, NamespaceOption, Number, Resources, SecurityContext, SecurityProfile,
};

/// The rendered chart, deploy/kubernetes.yaml. tests/deploy compares it with the output of Helm.
const RENDERED: &str = include_str!("../../../deploy/kubernetes.yaml");

/// The paths of /proc that the kubelet masks or makes read-only by default (`DefaultProcMount` in
/// `pkg/securitycontext/util.go` of Kubernetes).
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = [
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
];

/// The objects of the chart that describe the agent.
pub(super) struct Chart {
    /// The specification of the pod.
    pod: Value,
    agent_toml: String,
}

impl Chart {
    pub(super) fn read() -> Self {
        let objects: Vec<Value> = serde_saphyr::from_multiple(RENDERED).unwrap();
        let object = |kind: &str| {
            objects
                .iter()
                .find(|object| object["kind"] == kind)
                .unwrap()
        };
        let agent_toml = object("ConfigMap")["data"]["agent.toml"].as_str();
        Self {
            pod: object("DaemonSet")["spec"]["template"]["spec"].clone(),
            agent_toml: agent_toml.unwrap().to_owned(),
        }
    }

    fn container(&self) -> &Value {
        let containers = self.pod["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    pub(super) fn image(&self) -> String {
        text(&self.container()["image"])
    }

    /// The capabilities in `add`. The chart drops all others.
    pub(super) fn capabilities(&self) -> Vec<String> {
        let capabilities = &self.container()["securityContext"]["capabilities"];
        assert_eq!(texts(&capabilities["drop"]), ["ALL"]);
        texts(&capabilities["add"])
    }

    /// The pod uses the host's network, because these tests have no network plugin.
    pub(super) fn namespaces(&self) -> NamespaceOption {
        let node = super::NODE;
        NamespaceOption {
            network: node,
            pid: if self.pod["hostPID"] == true { node } else { 0 },
        }
    }

    /// The container. `on_node` maps a path of a node to one on this machine. For the mount of the
    /// `ConfigMap` it gets `/configmap`.
    pub(super) fn config(
        &self,
        environment: &[(&str, String)],
        on_node: impl Fn(&str) -> PathBuf,
    ) -> ContainerConfig {
        let container = self.container();
        let environment = environment.iter().map(|(key, value)| KeyValue {
            key: (*key).to_owned(),
            value: value.clone(),
        });
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mounts = mounts.iter().map(|mount| self.mount(mount, &on_node));
        let memory = text(&container["resources"]["limits"]["memory"]);
        let memory: i64 = memory.strip_suffix("Mi").unwrap().parse().unwrap();
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: text(&container["name"]),
            }),
            image: Some(ImageSpec {
                image: self.image(),
            }),
            args: texts(&container["args"]),
            envs: environment.collect(),
            mounts: mounts.collect(),
            log_path: "pmuscope.log".to_owned(),
            linux: Some(LinuxContainerConfig {
                resources: Some(Resources {
                    memory_limit_in_bytes: memory << 20,
                }),
                security_context: Some(self.security_context()),
            }),
            ..ContainerConfig::default()
        }
    }

    fn mount(&self, mount: &Value, on_node: impl Fn(&str) -> PathBuf) -> Mount {
        let volumes = self.pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|it| it["name"] == mount["name"]);
        let volume = volume.unwrap();
        let (host_path, exists) = match &volume["hostPath"] {
            Value::Null => {
                assert!(volume["configMap"].is_object(), "{volume}");
                let directory = on_node("/configmap");
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("agent.toml"), &self.agent_toml).unwrap();
                (directory, true)
            }
            path => (on_node(&text(&path["path"])), path["type"] == "Directory"),
        };
        if !exists {
            fs::create_dir_all(&host_path).unwrap();
        }
        let propagation = match mount["mountPropagation"].as_str() {
            None => 0,
            Some("HostToContainer") => 1,
            Some(other) => panic!("{other}"),
        };
        Mount {
            container_path: text(&mount["mountPath"]),
            host_path: host_path.display().to_string(),
            readonly: mount["readOnly"] == true,
            propagation,
        }
    }

    fn security_context(&self) -> SecurityContext {
        let context = &self.container()["securityContext"];
        let number = |key: &str| {
            let value = context[key].as_i64().unwrap();
            Some(Number { value })
        };
        // Without a profile in the chart the kubelet sends none, and the runtime applies its
        // default if the kernel supports seccomp.
        assert!(context["appArmorProfile"].is_null());
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
        SecurityContext {
            capabilities: Some(Capability {
                add_capabilities: self.capabilities(),
                drop_capabilities: vec!["ALL".to_owned()],
            }),
            privileged: context["privileged"].as_bool().unwrap(),
            namespace_options: Some(self.namespaces()),
            run_as_user: number("runAsUser"),
            run_as_group: number("runAsGroup"),
            readonly_rootfs: context["readOnlyRootFilesystem"].as_bool().unwrap(),
            no_new_privs: !context["allowPrivilegeEscalation"].as_bool().unwrap(),
            masked_paths: MASKED.map(str::to_owned).into(),
            readonly_paths: READ_ONLY.map(str::to_owned).into(),
            seccomp: Some(SecurityProfile { profile_type: 0 }),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(text).collect()
}

//! The cgroup2 hierarchy that names containers, and the `perf_event` controller on it.

use std::path::Path;

use super::{Area, Finding, Loss, Subject};
use crate::machine::cgroup::{CgroupError, Hierarchy};

const AREA: Area = Area::Cgroups;
const UNIFIED: &str = "boot with cgroup2 as the only hierarchy: add \
     `systemd.unified_cgroup_hierarchy=1` to the kernel's command line, and let the container \
     runtime use it";

pub(super) fn check(
    subject: &Subject,
    hierarchy: Result<&Hierarchy, &CgroupError>,
) -> Vec<Finding> {
    let hierarchy = match hierarchy {
        Ok(hierarchy) => hierarchy,
        Err(CgroupError::NotMounted { .. }) => {
            let mut findings = vec![not_mounted()];
            findings.extend(controller_on_v1(subject));
            return findings;
        }
        Err(error) => {
            return vec![
                AREA.stops(
                    "cgroup2",
                    error.to_string(),
                    Loss::new("everything: cgroup2 identifies containers")
                        .run("mount procfs", "sudo mount -t proc none /proc"),
                ),
            ];
        }
    };
    let mut findings = vec![mounted(subject, hierarchy)];
    findings.push(controller(subject, hierarchy));
    findings
}

fn not_mounted() -> Finding {
    let loss = Loss::new("everything: cgroup2 identifies containers")
        .advise(UNIFIED)
        .run(
            "or mount it beside the others, for containers that are made on it",
            "sudo mkdir -p /sys/fs/cgroup/unified && sudo mount -t cgroup2 none \
             /sys/fs/cgroup/unified",
        );
    AREA.stops("cgroup2", "no cgroup2 file system is mounted", loss)
}

fn mounted(subject: &Subject, hierarchy: &Hierarchy) -> Finding {
    let mount = hierarchy.mount.display();
    if hierarchy.root != "/" {
        let root = &hierarchy.root;
        let loss = Loss::new(
            "names of all cgroups outside of it: their counts show as `id N (name lost)`",
        )
        .advise("in Kubernetes: mount the host's /sys/fs/cgroup by hostPath")
        .run(
            "with a container runtime's command line",
            "docker run --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:ro ...",
        );
        return AREA.degraded("cgroup2", format!("{mount} shows only {root}"), loss);
    }
    let on_v1 = v1_hierarchies(subject);
    let located = Hierarchy {
        mount: subject.locate(&hierarchy.mount),
        root: hierarchy.root.clone(),
    };
    let below = located
        .walk()
        .map_or(0, |cgroups| cgroups.len().saturating_sub(1));
    if below == 0 && !on_v1.is_empty() {
        let found = format!(
            "{mount}, without a cgroup in it; {} on v1",
            on_v1.join(", ")
        );
        let loss = Loss::new(
            "containers that run now: they are in v1 hierarchies only, and their counts are \
             `system`",
        )
        .advise(UNIFIED);
        return AREA.degraded("cgroup2", found, loss);
    }
    AREA.ok("cgroup2", format!("{mount}, with {below} below the root"))
}

/// Names of the controllers on v1 hierarchies.
fn v1_hierarchies(subject: &Subject) -> Vec<String> {
    controllers(subject)
        .into_iter()
        .filter(|controller| controller.hierarchy != 0)
        .map(|controller| controller.name)
        .collect()
}

/// A line of /proc/cgroups.
struct Controller {
    name: String,
    /// 0: on the cgroup2 hierarchy, or on none.
    hierarchy: u32,
    enabled: bool,
}

fn controllers(subject: &Subject) -> Vec<Controller> {
    let text = subject.proc("cgroups").unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?.to_owned();
        let hierarchy = fields.next()?.parse().ok()?;
        let enabled = fields.nth(1)? == "1";
        Some(Controller {
            name,
            hierarchy,
            enabled,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// The loss without the `perf_event` controller.
fn controller_loss() -> Loss {
    Loss::new(
        "`--hook cgroup-switches` and perf's --for-each-cgroup; the default hook works without it",
    )
}

fn perf_event(subject: &Subject) -> Option<Controller> {
    let mut all = controllers(subject).into_iter();
    all.find(|controller| controller.name == "perf_event")
}

/// The finding about a v1 mount, which takes the controller away from cgroup2.
fn controller_on_v1(subject: &Subject) -> Option<Finding> {
    perf_event(subject).filter(|controller| controller.hierarchy != 0)?;
    let mount = v1_mount(subject);
    let found = match &mount {
        Some(mount) => format!("on the v1 hierarchy at {mount}"),
        None => "on a v1 hierarchy".to_owned(),
    };
    let loss = controller_loss().advise(UNIFIED).run(
        "or take it off v1 (it goes back once no cgroup is left below that mount)",
        mount.as_deref().map_or_else(
            || "sudo umount /sys/fs/cgroup/perf_event".to_owned(),
            |mount| format!("sudo umount {mount}"),
        ),
    );
    Some(AREA.degraded("perf_event", found, loss))
}

/// The mount point of the v1 hierarchy that has `perf_event` among its options.
fn v1_mount(subject: &Subject) -> Option<String> {
    let text = subject.proc("self/mountinfo")?;
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let is_v1 = right.next()? == "cgroup";
        let options = right.nth(1)?;
        let has_controller = is_v1 && options.split(',').any(|option| option == "perf_event");
        has_controller.then(|| left.split(' ').nth(4).map(str::to_owned))?
    })
}

fn controller(subject: &Subject, hierarchy: &Hierarchy) -> Finding {
    let check = "perf_event";
    match perf_event(subject) {
        Some(controller) if !controller.enabled => {
            let loss = controller_loss()
                .advise("take `cgroup_disable=perf_event` off the kernel's command line");
            return AREA.missing(check, "switched off at boot", loss);
        }
        Some(_) => {}
        None => {
            let loss =
                controller_loss().advise("boot a kernel that is built with CONFIG_CGROUP_PERF=y");
            return AREA.missing(check, "/proc/cgroups does not list the controller", loss);
        }
    }
    if let Some(finding) = controller_on_v1(subject) {
        return finding;
    }
    on_children(subject, hierarchy)
}

/// Opens a counter in a child cgroup. Nothing else shows whether the cgroup has the controller:
/// `cgroup.controllers` does not list `perf_event`.
fn on_children(subject: &Subject, hierarchy: &Hierarchy) -> Finding {
    let check = "perf_event";
    let mount = subject.locate(&hierarchy.mount);
    let Some(child) = first_child(&mount) else {
        return AREA.ok(check, "on cgroup2; there is no child cgroup to try it in");
    };
    let name = child.file_name().unwrap_or_default().to_string_lossy();
    match subject.trials.open_in_cgroup(&child) {
        Ok(()) => AREA.ok(check, format!("on cgroup2 and on its child cgroup {name}")),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            let control = hierarchy.mount.join("cgroup.subtree_control");
            let loss = controller_loss().run(
                "any controller that is written there brings it (systemd does so on most nodes)",
                format!("echo +pids | sudo tee {}", control.display()),
            );
            AREA.degraded(
                check,
                format!("on cgroup2, but not on its child cgroup {name}"),
                loss,
            )
        }
        Err(error) => AREA.ok(
            check,
            format!("on cgroup2; it was not tried in a child cgroup ({error})"),
        ),
    }
}

/// The first cgroup below the root, by name.
fn first_child(mount: &Path) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(mount).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .min()
}

//! The image of `cargo xtask dist`, run with exactly the rights that the chart gives it and with
//! containerd's default seccomp profile.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
};

use test_harness::{
    agent::{Answer, Series, find, own, parse},
    cpu_time, hierarchy, machine, shared_machine, taken_time,
};

use super::{
    HOST_NETWORK, can_run,
    chart::Chart,
    cri::{ContainerConfig, ContainerStatusResponse, Cri, ExecSyncRequest, ExecSyncResponse, Id},
    daemon::{Containerd, Pod},
};

/// The image of this build, which `cargo xtask test` makes. None, with a printed reason, where
/// there is none.
fn image() -> Option<PathBuf> {
    let image = std::env::var_os("PMUSCOPE_IMAGE");
    if image.is_none() {
        println!("skipped: PMUSCOPE_IMAGE names no image: `cargo xtask test` makes one");
    }
    image.map(PathBuf::from)
}

/// A containerd that has the image, and the chart that describes the container.
struct Node {
    containerd: Containerd,
    chart: Chart,
    address: SocketAddr,
}

impl Node {
    fn start(image: &Path) -> Option<Self> {
        let containerd = Containerd::start()?;
        let chart = Chart::read();
        containerd.import(image);
        containerd.await_image(&chart.image());
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        Some(Self {
            containerd,
            chart,
            address: free.local_addr().unwrap(),
        })
    }

    /// The chart's container with another port and another interval.
    fn config(&self) -> ContainerConfig {
        let environment = [
            ("PMUSCOPE_AGENT_HTTP_LISTEN", self.address.to_string()),
            ("PMUSCOPE_AGENT_INTERVAL", "200ms".to_owned()),
        ];
        self.chart.config(&environment, |path| match path {
            "/sys/fs/cgroup" => path.into(),
            "/sys/fs/bpf" => self.containerd.below("bpf"),
            "/run/containerd" => self.containerd.socket.parent().unwrap().to_owned(),
            others => self.containerd.below(&format!("node{others}")),
        })
    }

    /// Starts the agent in a new pod. Returns the pod and the container id.
    fn run(&mut self, config: ContainerConfig) -> (Pod, String) {
        let pod = self.containerd.pod("agent-0", self.chart.namespaces());
        let id = self.containerd.run(&pod, config);
        (pod, id)
    }

    /// The exit code, if the container has ended.
    fn ended(&self, id: &str) -> Option<i32> {
        let id = Id { id: id.to_owned() };
        let mut cri = Cri::connect(&self.containerd.socket);
        let answer: ContainerStatusResponse = cri.call("ContainerStatus", &id).unwrap();
        let status = answer.status.unwrap();
        (status.state >= 2).then_some(status.exit_code)
    }

    /// The lines of the container's log.
    fn log(&self) -> Vec<String> {
        let log = self.containerd.below("logs/pmuscope.log");
        let text = fs::read_to_string(log).unwrap_or_default();
        // A line starts with the time, the stream, and a tag for a partial or a full line.
        let line = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        text.lines().map(line).collect()
    }

    fn get(&self, path: &str) -> Answer {
        Answer::request(
            self.address,
            &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        )
    }

    /// Waits for readiness.
    fn await_ready(&self, id: &str) {
        while TcpStream::connect(self.address).is_err() || self.get("/readyz").status != 200 {
            if let Some(code) = self.ended(id) {
                panic!("it ended with {code}: {:#?}", self.log());
            }
            thread::yield_now();
        }
    }

    /// All series of the last window.
    fn last(&self) -> Series {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{}", answer.text());
        parse(&answer.text())
    }

    /// All series of a window that began after this call.
    fn series(&self) -> Series {
        let windows = own(&self.last(), "windows_total");
        loop {
            let series = self.last();
            if own(&series, "windows_total") >= windows + 2.0 {
                return series;
            }
            thread::yield_now();
        }
    }
}

/// The cgroup directory of a container.
fn cgroup(pod: &Pod, id: &str) -> PathBuf {
    let path = format!("/kubepods/besteffort/pod{}/{id}", pod.uid);
    hierarchy().directory(&path).unwrap()
}

/// A field of /proc/PID/status for each thread.
fn status(pid: &str, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let field = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let mut lines = status.lines().filter_map(|line| line.split_once(":\t"));
        let (_, value) = lines.find(|(key, _)| *key == name).unwrap();
        value.trim().to_owned()
    };
    tasks.map(field).collect()
}

/// The capability set with these names, numbered as in `linux/capability.h`.
fn capability_set(capabilities: &[String]) -> u64 {
    let bit = |name: &String| match name.as_str() {
        "IPC_LOCK" => 1 << 14,
        "PERFMON" => 1 << 38,
        "BPF" => 1 << 39,
        other => panic!("{other} has no number here"),
    };
    capabilities.iter().map(bit).sum()
}

#[test]
fn the_image_counts_with_the_rights_of_the_chart() {
    let Some(_machine) = machine().filter(|_| can_run()) else {
        return;
    };
    let Some(mut node) = image().and_then(|image| Node::start(&image)) else {
        return;
    };
    let shop = node.containerd.pod("web-0", HOST_NETWORK);
    let busy = node
        .containerd
        .container(&shop, "app", "while :; do :; done");
    let config = node.config();
    let (pod, id) = node.run(config);
    node.await_ready(&id);

    // The agent shows the CPU time that the kernel charged to another container.
    let counted = |series: &Series| {
        let parts = [
            "pmuscope_events_estimated_seconds_total{",
            "event=\"task-clock\"",
            "namespace=\"pmuscope-test\"",
            "pod=\"web-0\"",
            "container=\"app\"",
        ];
        find(series, &parts)
    };
    let cgroup_of_busy = cgroup(&shop, &busy);
    let used = || cpu_time(&cgroup_of_busy).unwrap() as f64 / 1e9;
    let counted_before = loop {
        // The names appear later than the counts.
        if let Some(counted) = counted(&node.series()) {
            break counted;
        }
    };
    let (taken, before) = (taken_time(), used());
    while used() < before + 0.5 {
        thread::yield_now();
    }
    let after = used();
    let counted_after = counted(&node.series()).unwrap();
    assert!(
        counted_after - counted_before >= (after - before) * 0.99,
        "counted {counted_before} to {counted_after}, the kernel {before} to {after}"
    );
    let most = used() + (taken_time() - taken) as f64 / 1e9;
    assert!(
        counted_after <= most * 1.01,
        "counted {counted_after}, the kernel at most {most}"
    );

    // The process has the capabilities of the chart and a seccomp filter, and no thread has more.
    let procs = fs::read_to_string(cgroup(&pod, &id).join("cgroup.procs")).unwrap();
    let saves = |pid: &&str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        line.contains("--save-state")
    };
    let (savers, agents): (Vec<_>, Vec<_>) = procs.lines().partition(saves);
    let ([pid], [saver]) = (&agents[..], &savers[..]) else {
        panic!("{procs}");
    };
    let granted = capability_set(&node.chart.capabilities());
    let sets = |name| -> Vec<u64> {
        let sets = status(pid, name).into_iter();
        sets.map(|set| u64::from_str_radix(&set, 16).unwrap())
            .collect()
    };
    assert!(sets("CapBnd").iter().all(|set| *set == granted));
    assert_eq!(sets("CapEff")[0], granted);
    // Threads that communicate with others have no capabilities.
    assert!(sets("CapEff").contains(&0), "{:x?}", sets("CapEff"));
    let saver_sets = status(saver, "CapEff");
    assert!(saver_sets.iter().all(|set| set == "0000000000000000"));
    for name in ["CapInh", "CapAmb"] {
        assert!(sets(name).iter().all(|set| *set == 0), "{name}");
    }
    assert!(status(pid, "NoNewPrivs").iter().all(|it| it == "1"));
    assert!(status(pid, "Seccomp").iter().all(|it| it == "2"));
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let root = mounts.find(|mount| mount.clone().nth(4) == Some("/"));
    assert!(root.unwrap().nth(5).unwrap().starts_with("ro"));

    // The files that the agent writes on the node.
    let assert_not_empty = |path: &str| {
        let inside = PathBuf::from(format!("/proc/{pid}/root{path}"));
        assert!(fs::read_dir(&inside).unwrap().next().is_some(), "{path}");
    };
    for path in ["/bpf/pmuscope", "/run/pmuscope/state"] {
        assert_not_empty(path);
    }

    // `doctor` in the pod, with the command of docs/how-to/kubernetes.md.
    let request = ExecSyncRequest {
        container_id: id.clone(),
        cmd: ["/pmuscope", "doctor"].map(str::to_owned).into(),
    };
    let mut cri = Cri::connect(&node.containerd.socket);
    let response: ExecSyncResponse = cri.call("ExecSync", &request).unwrap();
    let text = String::from_utf8_lossy(&response.stdout);
    assert_eq!(response.exit_code, 0, "{text}");
    assert!(
        text.contains("verdict: counting per container works here"),
        "{text}"
    );
    assert!(!text.contains("hostPID"), "{text}");

    // The off switch on the node.
    let off = node.containerd.below("node/run/pmuscope/off");
    fs::write(&off, "").unwrap();
    while node.get("/readyz").status != 503 {
        thread::yield_now();
    }
    assert!(counted(&node.last()).is_none());

    println!("{:#?}", node.log());
    node.containerd.remove(&pod);
    node.containerd.remove(&shop);
}

/// Without one of the capabilities the agent reports its name in one sentence.
#[test]
fn a_capability_that_is_missing_is_named() {
    let Some(_machine) = shared_machine().filter(|_| can_run()) else {
        return;
    };
    let Some(mut node) = image().and_then(|image| Node::start(&image)) else {
        return;
    };
    for missing in ["BPF", "PERFMON"] {
        let mut config = node.config();
        let context = config.linux.as_mut().unwrap().security_context.as_mut();
        let capabilities = context.unwrap().capabilities.as_mut().unwrap();
        capabilities.add_capabilities.retain(|it| it != missing);
        let (pod, id) = node.run(config);
        let code = loop {
            if let Some(code) = node.ended(&id) {
                break code;
            }
            thread::yield_now();
        };
        let log = node.log();
        assert_eq!(code, 1, "{log:#?}");
        let is_error = |line: &&String| !line.starts_with(" INFO ");
        let errors: Vec<_> = log.iter().filter(is_error).collect();
        let [error] = errors[..] else {
            panic!("{log:#?}");
        };
        let needs = format!("pmuscope: counting needs CAP_{missing}, ");
        assert!(error.starts_with(&needs), "{error}");
        assert!(
            error.contains("securityContext.capabilities.add"),
            "{error}"
        );
        node.containerd.remove(&pod);
        fs::remove_file(node.containerd.below("logs/pmuscope.log")).unwrap();
    }
}

//! Valid and invalid configurations.

use std::ffi::OsString;

use super::*;

/// The configuration of a file with this text, and of these variables. In errors, `F` is the file.
fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("agent.toml");
    std::fs::write(&file, text).unwrap();
    let variables = variables.iter();
    let sources = Sources {
        file: Some(file.clone()),
        environment: variables
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect(),
        flags: Vec::new(),
    };
    let file_name = file.display().to_string();
    sources
        .read()
        .map_err(|error| error.to_string().replace(&file_name, "F"))
}

const EVERYTHING: &str = r#"
interval = "5s"
max_overhead = "1%"
kernel_log = true

[count]
events = ["cycles,instructions", "task-clock"]
metrics = "ipc"
by = "pod"
calibration = "/etc/pmuscope/calibration.toml"
chip = "grace-hopper"
reserve_counters = 2
hook = "cgroup-switches"
max_rows = 4096
sample = "cpu-clock/freq=99/"
sample_budget = "0.1%"

[spe]
enabled = false
period = 65536
frequency = 499
budget = "0.25%"

[series]
max = 500
labels = { cluster = "a \"b\"\n😀" }

[names]
cri = "off"
root = "/host"
labels = ["app"]
[http]
listen = ":9465"
web_config = "/etc/pmuscope/web.yml"

[json]
path = "-"

[run]
directory = "/tmp/x"
[pins]
path = "/sys/fs/bpf/x"
keep = true
[state]
path = "/var/lib/x"
[verdict]
peak_bandwidth = "500 GB/s"
[otlp]
endpoint = "https://127.0.0.1:4317"
headers = { "x-token" = "secret" }
ca_file = "/tls/ca.crt"
cert_file = "/tls/tls.crt"
key_file = "/tls/tls.key"
"#;

#[test]
fn every_key_sets_its_field() {
    let config = read(EVERYTHING, &[]).unwrap();
    let expected = Config {
        interval: Duration::from_secs(5),
        max_overhead: Some(0.01),
        kernel_log: true,
        count: Count {
            events: vec!["cycles,instructions".to_owned(), "task-clock".to_owned()],
            metrics: vec!["ipc".to_owned()],
            by: By::Pod,
            calibration: Some("/etc/pmuscope/calibration.toml".into()),
            chip: Chip::named("grace-hopper"),
            reserve_counters: 2,
            hook: Hook::CgroupSwitches,
            max_rows: Some(4096),
            top_processes: 0,
            sample: vec!["cpu-clock/freq=99/".to_owned()],
            sample_budget: 0.001,
        },
        spe: Spe {
            enabled: Enabled::Off,
            period: 65_536,
            frequency: 499,
            budget: 0.0025,
        },
        names: Names {
            cri: RuntimeEndpoint::Off,
            root: "/host".into(),
            labels: vec!["app".to_owned()],
        },
        series: Series {
            max: 500,
            labels: [("cluster".to_owned(), "a \"b\"\n😀".to_owned())].into(),
        },
        http: Http {
            listen: Some("[::]:9465".parse().unwrap()),
            web_config: Some("/etc/pmuscope/web.yml".into()),
        },
        json: Some(JsonDestination::Stdout),
        pins: Pins {
            path: Some("/sys/fs/bpf/x".into()),
            keep: true,
        },
        state: Some("/var/lib/x".into()),
        verdict: Verdict {
            peak_bandwidth: Some(500e9),
        },
        otlp: Otlp {
            endpoint: Some("https://127.0.0.1:4317".to_owned()),
            headers: [("x-token".to_owned(), "secret".to_owned())].into(),
            tls: OtlpTls {
                ca_file: Some("/tls/ca.crt".into()),
                cert_file: Some("/tls/tls.crt".into()),
                key_file: Some("/tls/tls.key".into()),
            },
        },
        run: "/tmp/x".into(),
    };
    assert_eq!(config, expected);
    assert_eq!(read("", &[]).unwrap(), Config::default());
}

#[test]
fn top_processes_need_the_hook_sched_switch() {
    let config = read("[count]\ntop_processes = 20\n", &[]).unwrap();
    assert_eq!(config.count.top_processes, 20);
    let other_hook = "[count]\nhook = \"cgroup-switches\"\n\ntop_processes = 20\n";
    let error = read(other_hook, &[]).unwrap_err();
    let expected = "F:4: count.top_processes: needs count.hook = \"sched-switch\": ";
    assert!(error.contains(expected), "{error}");
    let error = read("[count]\ntop_processes = 1001\n", &[]).unwrap_err();
    let expected = "F:2: count.top_processes: is 0 to 1000";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let variables = [
        ("PMUSCOPE_AGENT_INTERVAL", "3s"),
        ("PMUSCOPE_AGENT_COUNT_EVENTS", "cycles,instructions"),
        ("PMUSCOPE_AGENT_COUNT_RESERVE_COUNTERS", "0"),
        ("PMUSCOPE_AGENT_SPE_ENABLED", "auto"),
        ("PMUSCOPE_AGENT_SERIES_LABELS", "{ zone = \"1\" }"),
        ("PMUSCOPE_LOG", "info"),
    ];
    let config = read(EVERYTHING, &variables).unwrap();
    assert_eq!(config.interval, Duration::from_secs(3));
    assert_eq!(config.count.events, ["cycles,instructions"]);
    assert_eq!(config.count.reserve_counters, 0);
    assert_eq!(config.spe.enabled, Enabled::Auto);
    assert_eq!(config.series.labels["zone"], "1");
    let sources = Sources {
        environment: vec![("PMUSCOPE_AGENT_INTERVAL".into(), "3s".into())],
        flags: vec![("--interval", "interval", "4s".to_owned())],
        ..Sources::default()
    };
    assert_eq!(sources.read().unwrap().interval, Duration::from_secs(4));
}

/// Each mistake has the line, the key and the reason.
#[test]
fn a_mistake_names_line_and_key() {
    let cases = [
        (
            "intervall = \"5s\"",
            "F:1: intervall: there is no such key; the nearest are interval",
        ),
        (
            "interval = 5",
            "F:1: interval: is a time such as \"10s\" or \"500ms\"",
        ),
        (
            "\ninterval = \"5 bananas\"",
            "F:2: interval: is a time such as \"10s\"",
        ),
        ("interval = \"1ms\"", "F:1: interval: is from 10ms to 1h"),
        (
            "[counts]\nevents = []",
            "F:1: counts: there is no such key; the nearest are count.",
        ),
        (
            "[count]\n\nevens = []",
            "F:3: count.evens: there is no such key; the nearest are count.events",
        ),
        (
            "[count]\nevents = [3]",
            "F:2: count.events: invalid type: integer `3`",
        ),
        (
            "[count]\nevents = [\" \"]",
            "F:2: count.events: has an empty name",
        ),
        (
            "[count]\nby = \"process\"",
            "F:2: count.by: is container or pod",
        ),
        (
            "[count]\nchip = \"grace-hoper\"",
            "F:2: count.chip: there is no `grace-hoper`; the nearest are grace-hopper",
        ),
        (
            "[count]\nreserve_counters = -1",
            "F:2: count.reserve_counters: ",
        ),
        (
            "[count]\nmax_rows = 0",
            "F:2: count.max_rows: is 1 to 134217728",
        ),
        (
            "[count]\nmax_rows = 134217729",
            "F:2: count.max_rows: is 1 to 134217728",
        ),
        (
            "[count]\nhook = \"sched\"",
            "F:2: count.hook: there is no `sched`; the nearest are sched-switch",
        ),
        (
            "[otlp]\nheaders = \"authorization=Bearer s3cret\"",
            "F:2: otlp.headers: is a table such as { authorization = \"Bearer ...\" }",
        ),
        (
            "[otlp]\nendpoint = \"http://user:s3cret@127.0.0.1:4317\"",
            "F:2: otlp.endpoint: is the address of a collector's gRPC port such as",
        ),
        (
            "[spe]\nenabled = \"yes\"",
            "F:2: spe.enabled: is true, false or \"auto\"",
        ),
        ("[spe]\nperiod = 100", "F:2: spe.period: is 4096 at least"),
        (
            "[spe]\nfrequency = 0",
            "F:2: spe.frequency: is 1 to 10000 samples a second",
        ),
        (
            "[spe]\n\nfrequency = 10001",
            "F:3: spe.frequency: is 1 to 10000 samples a second",
        ),
        (
            "[spe]\nbudget = \"0%\"",
            "F:2: spe.budget: is a share above 0% up to 100%",
        ),
        (
            "[spe]\nbudget = \"0.5\"",
            "F:2: spe.budget: is a share above 0% up to 100%",
        ),
        (
            "[spe]\nbudget = 1",
            "F:2: spe.budget: is a share above 0% up to 100%",
        ),
        (
            "[verdict]\npeak_bandwidth = 500",
            "F:2: verdict.peak_bandwidth: is a bandwidth above 0",
        ),
        (
            "[series]\nlabels = { \"a b\" = \"\" }",
            "F:2: series.labels: `a b` cannot be a label",
        ),
        (
            "[series]\nlabels = { name = \"\" }",
            "F:2: series.labels: `name` cannot be a label",
        ),
        (
            "[series]\nlabels = { image = \"\" }",
            "F:2: series.labels: `image` cannot be a label",
        ),
        (
            "[series]\nlabels = { label_app = \"\" }",
            "F:2: series.labels: `label_app` cannot be a label",
        ),
        (
            "[series]\nlabels = { a = 1 }",
            "F:2: series.labels: invalid type",
        ),
        (
            "[http]\nlisten = \"9464\"",
            "F:2: http.listen: is ADDRESS:PORT",
        ),
        (
            "[http]\nlisten = \"example.org:80\"",
            "F:2: http.listen: is ADDRESS:PORT",
        ),
        (
            "[http]\nweb_config = \"web.yml\"",
            "F:2: http.web_config: is a path from the root",
        ),
        (
            "[otlp]\nendpoint = \"http://a:1\"\nca_file = \"/ca\"",
            "F:3: otlp.ca_file: needs an endpoint at https://",
        ),
        (
            "[otlp]\ncert_file = \"/cert\"\nendpoint = \"https://a:1\"",
            "F:2: otlp.cert_file: needs otlp.key_file beside it",
        ),
        (
            "[otlp]\nkey_file = \"/key\"",
            "F:2: otlp.key_file: needs otlp.cert_file beside it",
        ),
        (
            "[otlp]\nca_file = \"ca.pem\"",
            "F:2: otlp.ca_file: is a path from the root",
        ),
        (
            "[run]\ndirectory = \"\"",
            "F:2: run.directory: is a path from the root",
        ),
        (
            "count = 3",
            "F:1: count: there is no such key; the nearest are count.",
        ),
        ("[count]\nevents = [\n", "F:"),
        ("interval = \"1s\"\ninterval = \"2s\"", "F:2: "),
        (
            "[json]\npath = \"\\u001b[2J\"",
            "F:2: json.path: is a path from the root",
        ),
    ];
    for (text, expected) in cases {
        let error = read(text, &[]).unwrap_err();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let variables = [
        ("PMUSCOPE_AGENT_SPE_PERIOD", "many"),
        ("PMUSCOPE_AGENT_SPE_PERIODE", "1"),
    ];
    let error = read("interval = 1\n[run]\ndir = \"/\"\n", &variables).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 4, "{error}");
    assert!(lines[0].starts_with("F:1: interval: "), "{error}");
    assert!(
        lines[1].starts_with("F:3: run.dir: there is no such key"),
        "{error}"
    );
    assert!(
        lines[2].starts_with("variable PMUSCOPE_AGENT_SPE_PERIOD: spe.period: "),
        "{error}"
    );
    assert!(
        lines[3]
            .starts_with("variable PMUSCOPE_AGENT_SPE_PERIODE: spe_periode: there is no such key"),
        "{error}"
    );
}

#[test]
fn a_named_file_must_exist() {
    let sources = Sources {
        file: Some("/nowhere/agent.toml".into()),
        ..Sources::default()
    };
    let error = sources.read().unwrap_err().to_string();
    assert!(
        error.starts_with("/nowhere/agent.toml: cannot be read: "),
        "{error}"
    );
}

#[test]
fn addresses_are_read_in_every_form() {
    let listen = |text: &str| {
        let text = format!("[http]\nlisten = {text:?}");
        read(&text, &[])
            .unwrap()
            .http
            .listen
            .map(|it| it.to_string())
    };
    for (text, expected) in [
        ("127.0.0.1:0", Some("127.0.0.1:0")),
        ("[::1]:9464", Some("[::1]:9464")),
        (":9464", Some("[::]:9464")),
        ("off", None),
    ] {
        assert_eq!(listen(text).as_deref(), expected, "{text}");
    }
    let local = listen("localhost:80").unwrap();
    assert!(
        ["127.0.0.1:80", "[::1]:80"].contains(&local.as_str()),
        "{local}"
    );
}

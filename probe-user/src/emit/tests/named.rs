//! Hostile names from container runtimes.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use super::{containers, written};
use crate::{
    derive::{Report, Subject},
    emit::{
        OutputFormat,
        names::{SubjectName, shown_names},
        printable::distinct,
    },
    join::Entity,
    names::{
        RuntimeNames,
        runtime_names::{Container, Pod},
    },
};

/// Containers with a namespace, a pod, a container name and a label each.
fn report(given: &[[String; 4]]) -> Report {
    let mut report = containers(given.len() as u64);
    let mut described = RuntimeNames::default();
    for (subject, [namespace, pod_name, name, label]) in report.subjects.iter().zip(given) {
        let Subject::Entity(Entity::Container { id, pod: Some(pod) }) = subject else {
            panic!("no container: {subject:?}");
        };
        let container = Container {
            name: name.clone(),
            pod: Some(Arc::clone(pod)),
            runtime: "containerd".into(),
            image: Some(label.clone()),
            labels: [(label.clone(), label.clone()), ("a.b".into(), "x".into())].into(),
        };
        described
            .containers
            .insert(Arc::clone(id), container.into());
        let labels = [("a-b".into(), "y".into())].into();
        let described_pod = Pod {
            namespace: namespace.clone(),
            name: pod_name.clone(),
            labels,
        };
        described.pods.insert(Arc::clone(pod), described_pod.into());
    }
    report.described = Arc::new(described);
    report
}

fn given(name: &str) -> [String; 4] {
    ["shop", "web-0", name, "nginx"].map(str::to_owned)
}

fn ids(report: &Report) -> Vec<&str> {
    let subjects = report.subjects.iter();
    let ids = subjects.filter_map(|subject| match subject {
        Subject::Entity(Entity::Container { id, .. }) => Some(&**id),
        _ => None,
    });
    ids.collect()
}

#[test]
fn tables_show_names_and_other_formats_also_ids() {
    let report = report(&[given("app"), given("proxy"), given("proxy")]);
    let table = written(&report, OutputFormat::Table);
    assert!(table.contains("\n web-0/app  "), "{table}");
    // Two containers with the same name have their ids appended.
    let ids = ids(&report);
    for id in &ids[1..] {
        assert!(
            table.contains(&format!("\n web-0/proxy {}  ", &id[..12])),
            "{table}"
        );
    }
    assert!(!table.contains(&ids[0][..12]), "{table}");

    let line = written(&report, OutputFormat::Json);
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    let row = &json["rows"][0];
    assert_eq!(
        (&row["kind"], &row["name"]),
        (&"container".into(), &ids[0].into())
    );
    let names = ["namespace", "pod", "container", "image", "runtime"].map(|key| &row[key]);
    assert_eq!(names, ["shop", "web-0", "app", "nginx", "containerd"]);
    assert_eq!(row["labels"]["a.b"], "x");

    let metrics = written(&report, OutputFormat::OpenMetrics);
    let labels = r#"namespace="shop",pod="web-0",container="app""#;
    let start = format!(
        r#"pmuscope_container_info{{kind="container",name="{}","#,
        ids[0]
    );
    let info = metrics
        .lines()
        .find(|line| line.starts_with(&start))
        .unwrap();
    assert!(info.contains(labels), "{info}");
    for label in [
        r#"runtime="containerd""#,
        r#"image="nginx""#,
        r#"label_nginx="nginx""#,
        r#"label_a_b_conflict1="y""#,
        r#"label_a_b_conflict2="x""#,
    ] {
        assert!(info.contains(label), "{info} lacks {label}");
    }
    let row = format!(r#"{{kind="container",name="{}","#, ids[0]);
    let rows = metrics.lines().filter(|line| line.contains(&row));
    assert!(rows.clone().count() > 5);
    assert!(
        rows.into_iter().all(|line| line.contains(labels)),
        "{metrics}"
    );
}

fn hostile(ids: Vec<String>) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("app".to_owned()),
        "[\\x00-\\x1f\"'\\\\{}=,/ \u{202e}\u{1f600}a]{1,6}",
        Just("x".repeat(256)),
        // Names that look like the id of an unnamed container, or like a name with an appended id.
        prop::sample::select(ids.clone()),
        prop::sample::select(ids).prop_map(|id| format!("app {}", &id[..12])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn names_of_runtimes_are_distinct_and_safe_to_print(
        given in prop::collection::vec(
            prop::array::uniform4(hostile(
                ids(&containers(6)).into_iter().map(str::to_owned).collect(),
            )),
            1..6,
        ),
    ) {
        let report = report(&given);
        for in_full in [false, true] {
            let named = report.subjects.iter();
            let named: Vec<_> = named
                .map(|subject| SubjectName::new(subject, &report.described))
                .collect();
            let shown = shown_names(&named, in_full).into_iter();
            let names: Vec<String> = shown.map(|name| distinct(&name).into_owned()).collect();
            let different: BTreeSet<&String> = names.iter().collect();
            let subjects: Vec<&Subject> = report.subjects.iter().collect();
            prop_assert_eq!(different.len(), subjects.len(), "{:?}", names);
            prop_assert!(!names.iter().any(|it| it.contains(char::is_control)), "{:?}", names);
        }
        for format in [OutputFormat::Table, OutputFormat::OpenMetrics, OutputFormat::Json] {
            let text = written(&report, format);
            let controls = |char: char| char.is_control() && char != '\n';
            prop_assert!(!text.contains(controls) && !text.contains('\u{202e}'), "{}", text);
            if format == OutputFormat::OpenMetrics {
                let samples = text.lines().filter(|line| !line.starts_with('#'));
                let series: Vec<&str> = samples
                    .map(|line| line.rsplit_once(' ').unwrap().0)
                    .collect();
                let different: BTreeSet<_> = series.iter().collect();
                prop_assert_eq!(different.len(), series.len());
            }
            if format == OutputFormat::Json {
                let json: serde_json::Value = serde_json::from_str(&text).unwrap();
                for (row, id) in json["rows"].as_array().unwrap().iter().zip(ids(&report)) {
                    prop_assert_eq!(row["name"].as_str(), Some(id));
                }
            }
        }
    }
}

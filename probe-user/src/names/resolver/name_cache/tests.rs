use proptest::prelude::*;

use super::*;
use crate::names::path_ids;

const UID: &str = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn cache(paths: &[String]) -> NameCache {
    let mut cache = NameCache::new(vec!["app".to_owned()]);
    for id in paths.iter().flat_map(|path| path_ids(path)) {
        cache.request(&id, Instant::now());
    }
    cache
}

fn found(id: &str, name: &str) -> FoundContainer {
    FoundContainer {
        id: id.to_owned(),
        name: name.to_owned(),
        pod: Some(UID.to_owned()),
        ..FoundContainer::default()
    }
}

fn pod(name: &str) -> FoundPod {
    FoundPod {
        uid: UID.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        labels: HashMap::from([("app".into(), "web".into()), ("x".into(), "y".into())]),
    }
}

fn answer(containers: Vec<FoundContainer>, pods: Vec<FoundPod>) -> SourceAnswer {
    SourceAnswer {
        containers,
        pods,
        answers: 1,
        cut: 0,
    }
}

#[test]
fn only_requested_containers_are_kept_with_pod_and_chosen_labels() {
    let (a, b) = (id('a'), id('b'));
    let mut cache = cache(&[format!("/docker/{a}")]);
    let found = vec![found(&a, "web"), found(&b, "stranger")];
    cache.apply(answer(found, vec![pod("web-0")]), Instant::now());
    let described = cache.described();
    assert_eq!(described.containers.len(), 1);
    let (container, pod) = described.container(&a).unwrap();
    assert_eq!(container.name, "web");
    let pod = pod.unwrap();
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str()),
        ("shop", "web-0")
    );
    let labels: Vec<_> = pod.labels.iter().collect();
    assert_eq!(labels, [(&"app".to_owned(), &"web".to_owned())]);
    assert_eq!(cache.due(), None);
    assert_eq!((cache.health().known, cache.health().waiting), (1, 0));
}

#[test]
fn an_ended_container_is_known_until_its_cgroup_is_dropped() {
    let path = format!("/kubepods/pod{UID}/{}", id('a'));
    let mut cache = cache(std::slice::from_ref(&path));
    let found = vec![found(&id('a'), "web")];
    cache.apply(answer(found, vec![pod("web-0")]), Instant::now());
    cache.retain(path_ids(&path));
    let described = cache.described();
    assert!(described.container(&id('a')).unwrap().1.is_some());
    assert!(Arc::ptr_eq(&described, &cache.described()));
    // The pod's cgroup exists longer.
    cache.retain(path_ids(&format!("/kubepods/pod{UID}")));
    assert_eq!(cache.described().container(&id('a')), None);
    assert!(cache.described().pod(UID).is_some());
    cache.retain(path_ids("/"));
    assert!(cache.described().is_empty());
    assert_eq!(cache.health().known, 0);
}

#[test]
fn an_id_with_conflicting_or_empty_names_stays_unknown() {
    let (a, b, c) = (id('a'), id('b'), id('c'));
    let mut cache = cache(&[&a, &b, &c].map(|id| format!("/docker/{id}")));
    let found = vec![
        found(&a, "one"),
        found(&a, "other"),
        found(&b, ""),
        found(&c, "same"),
        found(&c, "same"),
    ];
    let pods = vec![pod("web-0"), pod("web-1")];
    cache.apply(answer(found, pods), Instant::now());
    let described = cache.described();
    let names: Vec<_> = described.containers.values().map(|it| &it.name).collect();
    assert_eq!(names, ["same"]);
    assert!(described.pods.is_empty());
    assert_eq!(cache.health().refused, 3);
    // Unknown ids are asked for again: the next answer may be better.
    assert!(cache.due().is_some());
}

#[test]
fn long_names_are_cut_and_counted() {
    let a = id('a');
    let mut cache = cache(&[format!("/docker/{a}")]);
    let long = FoundContainer {
        image: Some("é".repeat(600)),
        labels: HashMap::from([("app".into(), "x".repeat(TEXT))]),
        ..found(&a, &"容".repeat(100))
    };
    cache.apply(answer(vec![long], Vec::new()), Instant::now());
    let described = cache.described();
    let container = &described.containers[&*a];
    assert!(container.name.len() <= NAME && container.name.ends_with("容…"));
    assert!(container.image.as_ref().unwrap().len() <= TEXT);
    assert_eq!(container.labels["app"].len(), TEXT);
    assert_eq!(cache.health().cut, 2);
}

#[test]
fn retries_of_an_unknown_id_back_off() {
    let mut cache = cache(&[format!("/docker/{}", id('a'))]);
    let mut delays = Vec::new();
    for _ in 0..40 {
        let now = Instant::now();
        assert_eq!(cache.has_unasked(), delays.is_empty());
        let waiting = cache.waiting();
        cache.schedule_retries(&waiting, now);
        delays.push(cache.due().unwrap() - now);
    }
    assert_eq!(delays[..2], [FIRST_RETRY, 2 * FIRST_RETRY]);
    assert!(delays.is_sorted());
    assert_eq!(delays.last(), Some(&LONGEST_RETRY));
}

#[test]
fn the_number_of_requested_ids_is_bounded() {
    let mut cache = NameCache::new(Vec::new());
    let now = Instant::now();
    for at in 0..MAX_IDS + 10 {
        let path = format!("/docker/{at:064x}");
        for id in path_ids(&path) {
            cache.request(&id, now);
        }
    }
    assert_eq!(cache.health().not_asked, 10);
    assert_eq!(cache.health().waiting, MAX_IDS as u64);
    // Each is counted once, however often its cgroup is seen.
    for id in path_ids(&format!("/docker/{MAX_IDS:064x}")) {
        cache.request(&id, now);
    }
    assert_eq!(cache.health().not_asked, 10);
}

/// Ids of which many are equal, and many are requested.
fn ids() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]".prop_map(|digit| digit.repeat(64)),
        "\\PC{0,8}",
        Just(UID.to_owned()),
    ]
}

fn hostile_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[\\x00-\\x1f\"'\\\\{}=,/\u{202e}\u{1f600}a]{0,12}",
        Just("x".repeat(5000)),
        ids(),
    ]
}

prop_compose! {
    fn any_found()(
        id in ids(), name in hostile_text(), pod in proptest::option::of(hostile_text()),
        image in proptest::option::of(hostile_text()), label in hostile_text(),
    ) -> FoundContainer {
        let labels = HashMap::from([("app".to_owned(), label)]);
        FoundContainer { id, name, pod, image, labels, runtime: "test".into() }
    }
}

prop_compose! {
    fn any_pod()(
        uid in hostile_text(), namespace in hostile_text(), name in hostile_text(),
    ) -> FoundPod {
        FoundPod { uid, namespace, name, labels: HashMap::new() }
    }
}

proptest! {
    #[test]
    fn any_answer_leaves_the_cache_bounded_and_valid(
        answers in prop::collection::vec(
            (prop::collection::vec(any_found(), 0..8), prop::collection::vec(any_pod(), 0..8)),
            1..4,
        ),
    ) {
        let wanted = ['a', 'b'].map(|digit| format!("/kubepods/pod{UID}/{}", id(digit)));
        let mut cache = cache(&wanted);
        for (containers, pods) in answers {
            let before = cache.described();
            cache.apply(answer(containers, pods), Instant::now());
            let after = cache.described();
            // A known name never changes.
            for (id, container) in &before.containers {
                prop_assert_eq!(after.containers.get(id), Some(container));
            }
            for (id, container) in &after.containers {
                prop_assert!(wanted.iter().any(|path| path.ends_with(&**id)));
                prop_assert!(!container.name.is_empty() && container.name.len() <= NAME);
                prop_assert!(container.image.iter().all(|image| image.len() <= TEXT));
                prop_assert!(container.labels.values().all(|label| label.len() <= TEXT));
            }
            for (uid, pod) in &after.pods {
                prop_assert!(uid.len() <= NAME && pod.namespace.len() <= NAME);
                prop_assert!(!pod.name.is_empty() && pod.name.len() <= NAME);
            }
            prop_assert!(after.containers.len() <= 2);
            let health = cache.health();
            prop_assert_eq!(health.known + health.waiting, 2);
        }
        cache.retain(std::iter::empty());
        prop_assert!(cache.described().is_empty());
        prop_assert!(cache.pods.is_empty());
    }
}

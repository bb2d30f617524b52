use super::*;
use crate::names::resolver::source::FoundPod;

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn wanted(ids: &[&String]) -> WantedIds {
    let ids = ids.iter().map(|id| id.as_str().into());
    WantedIds::new(ids.collect(), Vec::new())
}

fn docker_state(directory: &Path, id: &str, text: &[u8]) {
    fs::create_dir(directory.join(id)).unwrap();
    fs::write(directory.join(id).join("config.v2.json"), text).unwrap();
}

#[test]
fn docker_files_give_name_image_and_labels() {
    let directory = tempfile::tempdir().unwrap();
    let (web, gone) = (id('a'), id('b'));
    let text = br#"{"StreamConfig":{},"State":{"Running":true},"Name":"/shop-web-1",
        "Image":"sha256:11","Config":{"Hostname":"x","Image":"nginx:1.27",
        "Labels":{"com.docker.compose.service":"web"}}}"#;
    docker_state(directory.path(), &web, text);
    let reply = docker(directory.path(), &wanted(&[&web, &gone]));
    assert_eq!((reply.fault, reply.absent), (None, false));
    let [found] = &reply.answer.containers[..] else {
        panic!("{:?}", reply.answer);
    };
    assert_eq!((&found.id, found.name.as_str()), (&web, "shop-web-1"));
    assert_eq!(found.image.as_deref(), Some("nginx:1.27"));
    assert_eq!(found.labels["com.docker.compose.service"], "web");
}

#[test]
fn a_file_of_a_kubelet_container_names_its_pod() {
    let directory = tempfile::tempdir().unwrap();
    let app = id('a');
    let text = br#"{"Name":"/k8s_app_web-0_shop_7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f_2"}"#;
    docker_state(directory.path(), &app, text);
    let answer = docker(directory.path(), &wanted(&[&app])).answer;
    assert_eq!(answer.containers[0].name, "app");
    let pod = FoundPod {
        uid: "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f".to_owned(),
        namespace: "shop".to_owned(),
        name: "web-0".to_owned(),
        labels: HashMap::new(),
    };
    assert_eq!(answer.pods, [pod]);
}

#[test]
fn an_unreadable_file_is_a_fault_and_other_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let ids = ['a', 'b', 'c', 'd'].map(id);
    docker_state(directory.path(), &ids[0], b"{\"Name\":");
    docker_state(directory.path(), &ids[1], &vec![b' '; LARGEST + 1]);
    // Opening a FIFO could block.
    fs::create_dir(directory.path().join(&ids[2])).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        directory.path().join(&ids[2]).join("config.v2.json"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    docker_state(directory.path(), &ids[3], b"{\"Name\":\"/good\"}");
    for unreadable in &ids[..3] {
        let reply = docker(directory.path(), &wanted(&[unreadable, &ids[3]]));
        let Some(Fault::Failed(text)) = &reply.fault else {
            panic!("{reply:?}");
        };
        assert!(text.contains(unreadable.as_str()), "{text}");
        assert_eq!(reply.answer.containers[0].name, "good");
    }
    let absent = directory.path().join("none");
    assert!(docker(&absent, &wanted(&[&ids[0]])).absent);
    assert!(podman(&absent, &wanted(&[&ids[0]])).absent);
}

#[test]
fn podman_and_cri_o_share_a_storage() {
    let storage = tempfile::tempdir().unwrap();
    let directory = storage.path().join("overlay-containers");
    fs::create_dir(&directory).unwrap();
    let (web, app, other, volatile) = (id('a'), id('b'), id('c'), id('d'));
    let uid = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";
    let stored = serde_json::json!([
        {"id": web, "names": ["web"], "image": "11", "layer": "22",
         "metadata": "{\"image-name\":\"docker.io/library/nginx:1\",\"name\":\"web\"}"},
        {"id": app, "names": [format!("k8s_app_web-0_shop_{uid}_0")],
         "metadata": "{\"image-name\":\"quay.io/app:2\",\"metadata-name\":\"app\"}"},
        {"id": other, "names": ["other"], "metadata": "no JSON"},
    ]);
    fs::write(directory.join("containers.json"), stored.to_string()).unwrap();
    let stored = serde_json::json!([{"id": volatile, "names": ["once"]}]);
    fs::write(
        directory.join("volatile-containers.json"),
        stored.to_string(),
    )
    .unwrap();

    let reply = podman(storage.path(), &wanted(&[&web, &app, &volatile]));
    assert_eq!(reply.fault, None);
    let found = reply.answer.containers.iter();
    let found: Vec<_> = found
        .map(|it| (it.name.as_str(), &*it.runtime, it.image.as_deref()))
        .collect();
    let expected = [
        ("web", "podman", Some("docker.io/library/nginx:1")),
        ("app", "cri-o", Some("quay.io/app:2")),
        ("once", "podman", None),
    ];
    assert_eq!(found, expected);
    assert_eq!(reply.answer.pods[0].namespace, "shop");
}

mod engine;
mod server;

use std::{fs, path::Path};

use super::*;

const UID: &str = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";

/// Limit of waiting: longer than any successful test takes.
const LONG: Duration = Duration::from_secs(60);

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn path(id: &str) -> String {
    format!("/kubepods/burstable/pod{UID}/{id}")
}

fn wait_until(resolver: &Resolver, condition: impl Fn(&ResolverHealth) -> bool) {
    let waited = resolver.wait_while(LONG, |cache| !condition(&cache.health()));
    assert!(waited, "{:?}", resolver.health());
}

#[test]
fn an_endpoint_parses_as_printed() {
    for text in ["auto", "off"] {
        let endpoint: RuntimeEndpoint = text.parse().unwrap();
        assert_eq!(endpoint.to_string(), text);
    }
    for wrong in ["", "on", "tcp://127.0.0.1:1", "unix://relative"] {
        let why = wrong.parse::<RuntimeEndpoint>().unwrap_err();
        assert!(
            why.contains("unix:///run/containerd/containerd.sock"),
            "{why}"
        );
    }
}

#[test]
fn without_a_runtime_rows_have_ids_only() {
    let empty = tempfile::tempdir().unwrap();
    let config = ResolverConfig {
        root: empty.path().to_owned(),
        ..ResolverConfig::default()
    };
    let resolver = Resolver::start(config).unwrap();
    resolver.request([path(&id('a')).as_str(), "/system.slice/x.service"]);
    resolver.wait_until_asked(LONG);
    assert!(resolver.names().is_empty());
    let health = ResolverHealth {
        waiting: 1,
        ..ResolverHealth::default()
    };
    assert_eq!(resolver.health(), health);
}

#[test]
fn docker_is_asked_once_it_appears() {
    let root = tempfile::tempdir().unwrap();
    let config = ResolverConfig {
        root: root.path().to_owned(),
        ..ResolverConfig::default()
    };
    let resolver = Resolver::start(config).unwrap();
    let path = format!("/docker/{}", id('a'));
    resolver.request([path.as_str()]);
    resolver.wait_until_asked(LONG);
    docker_container(root.path(), &id('a'), "web");
    wait_until(&resolver, |health| health.known == 1);
    let names = resolver.names();
    assert_eq!(names.container(&id('a')).unwrap().0.name, "web");
    // The container has ended, and Docker no longer knows it.
    fs::remove_dir_all(root.path().join("var")).unwrap();
    resolver.request_only([path.as_str()].into_iter());
    assert!(Arc::ptr_eq(&names, &resolver.names()));
    resolver.request_only(std::iter::empty());
    assert!(resolver.names().is_empty());
}

fn docker_container(root: &Path, id: &str, name: &str) {
    let directory = root.join("var/lib/docker/containers").join(id);
    fs::create_dir_all(&directory).unwrap();
    let text = format!(r#"{{"Name":"/{name}"}}"#);
    // Docker also renames a complete file.
    fs::write(directory.join("new"), text).unwrap();
    fs::rename(directory.join("new"), directory.join("config.v2.json")).unwrap();
}

mod cri {
    use super::{
        server::{Runtime, Server, socket},
        *,
    };
    use crate::names::resolver::{clip::NAME, sockets::messages::Image};

    fn start_resolver(socket: &Path) -> Resolver {
        let config = ResolverConfig {
            runtime: RuntimeEndpoint::Socket(socket.to_owned()),
            timeout: Duration::from_millis(500),
            ..ResolverConfig::default()
        };
        Resolver::start(config).unwrap()
    }

    #[test]
    fn cri_names_containers_pods_and_images() {
        let (_directory, socket) = socket();
        let mut runtime = Runtime::default().with(UID, "web-0", &id('a'), "app");
        runtime.images.push(Image {
            id: "sha256:11".to_owned(),
            repo_tags: vec!["quay.io/app:2".to_owned()],
        });
        let pause = runtime.sandboxes[0].id.clone();
        let _server = Server::start(&socket, runtime);
        let resolver = start_resolver(&socket);
        resolver.request([path(&id('a')).as_str(), &path(&pause)]);
        resolver.wait_until_asked(LONG);
        let names = resolver.names();
        let (container, pod) = names.container(&id('a')).unwrap();
        assert_eq!(container.name, "app");
        assert_eq!(&*container.runtime, "test-runtime");
        assert_eq!(container.image.as_deref(), Some("quay.io/app:2"));
        let pod = pod.unwrap();
        assert_eq!(
            (pod.namespace.as_str(), pod.name.as_str()),
            ("shop", "web-0")
        );
        assert_eq!(names.container(&pause).unwrap().0.name, "POD");
        assert!(names.pod(UID).is_some());
        let health = resolver.health();
        assert_eq!((health.known, health.waiting), (2, 0));
        assert_eq!((health.errors, health.timeouts, health.refused), (0, 0, 0));
    }

    #[test]
    fn a_long_name_of_a_runtime_is_cut() {
        let (_directory, socket) = socket();
        let mut runtime = Runtime::default().with(UID, "web-0", &id('a'), "app");
        runtime.name = Some("x".repeat(1 << 20));
        let _server = Server::start(&socket, runtime);
        let resolver = start_resolver(&socket);
        resolver.request([path(&id('a')).as_str()]);
        resolver.wait_until_asked(LONG);
        let names = resolver.names();
        assert_eq!(names.container(&id('a')).unwrap().0.runtime.len(), NAME);
        assert!(resolver.health().cut > 0);
    }

    #[test]
    fn a_container_is_named_once_its_runtime_knows_it() {
        let (_directory, socket) = socket();
        let server = Server::start(&socket, Runtime::default());
        let resolver = start_resolver(&socket);
        resolver.request([path(&id('a')).as_str()]);
        resolver.wait_until_asked(LONG);
        assert!(resolver.names().is_empty());
        server.change(|it| *it = it.clone().with(UID, "web-0", &id('a'), "app"));
        wait_until(&resolver, |health| health.known == 1);
    }

    #[test]
    fn a_hanging_or_refusing_runtime_blocks_nothing_and_recovers() {
        let (_directory, socket) = socket();
        let server = Server::start(&socket, Runtime::default().with(UID, "w", &id('a'), "app"));
        server.change(|it| it.hangs = true);
        let resolver = start_resolver(&socket);
        resolver.request([path(&id('a')).as_str()]);
        // The resolver's thread waits for the runtime; reading names does not.
        assert!(resolver.names().is_empty());
        wait_until(&resolver, |health| health.timeouts > 0);
        server.change(|it| {
            it.hangs = false;
            it.refuses = Some(tonic::Status::internal("no \u{1b}[31m today\n"));
        });
        wait_until(&resolver, |health| health.errors > 0);
        server.change(|it| it.refuses = None);
        wait_until(&resolver, |health| health.known == 1);
    }

    #[test]
    fn a_socket_may_appear_late_and_be_replaced() {
        let (_directory, socket) = socket();
        let resolver = start_resolver(&socket);
        resolver.request([path(&id('a')).as_str()]);
        resolver.wait_until_asked(LONG);
        assert_eq!(resolver.health().waiting, 1);
        let server = Server::start(&socket, Runtime::default().with(UID, "w", &id('a'), "app"));
        wait_until(&resolver, |health| health.known == 1);
        drop(server);
        resolver.request([path(&id('b')).as_str()]);
        // The socket's file exists, but has no listener.
        wait_until(&resolver, |health| health.errors > 0);
        assert!(resolver.names().container(&id('a')).is_some());
        fs::remove_file(&socket).unwrap();
        let _server = Server::start(&socket, Runtime::default().with(UID, "w", &id('b'), "new"));
        wait_until(&resolver, |health| health.known == 2);
    }

    #[test]
    fn requested_containers_among_100_000_are_asked_for_one_by_one() {
        let (_directory, socket) = socket();
        let mut runtime = Runtime::default();
        for at in 0..100_000 {
            let id = format!("{:064x}", at + 0xabc_0000);
            runtime = runtime.with("other", "other", &id, "other");
        }
        let wanted: Vec<String> = ('0'..='9').map(id).collect();
        for id in &wanted {
            runtime = runtime.with(UID, "web-0", id, "app");
        }
        let _server = Server::start(&socket, runtime);
        let config = ResolverConfig {
            runtime: RuntimeEndpoint::Socket(socket),
            ..ResolverConfig::default()
        };
        let resolver = Resolver::start(config).unwrap();
        let paths: Vec<String> = wanted.iter().map(|id| path(id)).collect();
        resolver.request(paths.iter().map(String::as_str));
        wait_until(&resolver, |health| health.known == 10);
        let names = resolver.names();
        assert_eq!((names.containers.len(), names.pods.len()), (10, 1));
        assert_eq!(names.pod(UID).unwrap().name, "web-0");
    }

    #[test]
    fn an_answer_that_is_not_grpc_is_an_error() {
        let (_directory, socket) = socket();
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let garbage = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = io::Write::write_all(&mut stream, &[0xff; 4096]);
        });
        let resolver = start_resolver(&socket);
        resolver.request([path(&id('a')).as_str()]);
        wait_until(&resolver, |health| health.errors + health.timeouts > 0);
        garbage.join().unwrap();
        assert!(resolver.names().is_empty());
    }
}

/// The ids of cgroups that are gone leave room for those of new ones.
#[test]
fn new_ids_are_asked_for_once_others_are_gone() {
    let root = tempfile::tempdir().unwrap();
    let config = ResolverConfig {
        root: root.path().to_owned(),
        ..ResolverConfig::default()
    };
    let resolver = Resolver::start(config).unwrap();
    let paths: Vec<String> = (0..=name_cache::MAX_IDS)
        .map(|at| format!("/docker/{at:064x}"))
        .collect();
    let (new, old) = paths.split_last().unwrap();
    resolver.request(old.iter().map(String::as_str));
    resolver.request_only([new.as_str()].into_iter());
    let health = resolver.health();
    assert_eq!((health.waiting, health.not_asked), (1, 0));
}

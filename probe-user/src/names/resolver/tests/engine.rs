//! Tests against a fake engine with Docker's API.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    thread::{self, JoinHandle},
};

use super::*;

/// Starts an engine that answers one request with each of `answers` (status and body), in order.
/// The thread returns the request lines.
fn engine(socket: &Path, answers: &[(&str, String)]) -> JoinHandle<Vec<String>> {
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    let answers: Vec<String> = answers
        .iter()
        .map(|(status, body)| {
            format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        })
        .collect();
    thread::spawn(move || {
        let answer = |answer: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let lines: Vec<String> = lines
                .map(Result::unwrap)
                .take_while(|it| !it.is_empty())
                .collect();
            // Fails if the answer is too large, since the client then closes the connection.
            let _ = stream.write_all(answer.as_bytes());
            lines[0].clone()
        };
        answers.into_iter().map(answer).collect()
    })
}

fn start_resolver(root: &Path) -> Resolver {
    let config = ResolverConfig {
        root: root.to_owned(),
        ..ResolverConfig::default()
    };
    Resolver::start(config).unwrap()
}

#[test]
fn engines_are_asked_for_requested_containers_only() {
    let root = tempfile::tempdir().unwrap();
    let web = id('a');
    let listed = serde_json::json!([
        {"Id": web, "Names": ["/web", "/link/alias"], "Image": "nginx", "State": "exited",
         "Labels": {"com.docker.compose.service": "web", "other": "x"}},
        {"Id": id('b'), "Names": ["/stranger"], "Image": "x", "Labels": null},
    ]);
    let answers = [
        ("500 Internal Server Error", String::new()),
        ("200 OK", "no JSON".to_owned()),
        ("200 OK", " ".repeat((4 << 20) + 1)),
        ("200 OK", listed.to_string()),
    ];
    let engine = engine(&root.path().join("run/podman/podman.sock"), &answers);
    let resolver = start_resolver(root.path());
    resolver.request([format!("/libpod_parent/libpod-{web}").as_str()]);
    wait_until(&resolver, |health| health.known == 1);
    let requests = engine.join().unwrap();
    assert!(
        requests[0].starts_with("GET /containers/json?all=1&filters="),
        "{requests:?}"
    );
    assert!(requests[0].contains(&web));
    let names = resolver.names();
    assert_eq!(names.containers.len(), 1);
    let (container, pod) = names.container(&web).unwrap();
    assert_eq!(
        (container.name.as_str(), &*container.runtime),
        ("web", "podman")
    );
    assert_eq!(container.image.as_deref(), Some("nginx"));
    assert_eq!(container.labels.len(), 1);
    assert_eq!(pod, None);
    assert_eq!(resolver.health().errors, 3);
}

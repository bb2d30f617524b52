//! TLS and passwords. The certificates in `tests/fixtures/tls` were made for these tests.

use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use test_harness::{
    agent::{Agent, AgentOptions, Answer, own, parse},
    pmuscope, shared_machine,
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::agent::requests::connected;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/tls"
    ))
    .join(name)
}

/// The response to a GET over TLS, with the client's certificate or without it. None where the
/// server refuses the connection.
fn get(agent: &Agent, path: &str, headers: &str, with_certificate: bool) -> Option<Answer> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(fixture("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match with_certificate {
        false => config.with_no_client_auth(),
        true => {
            let own = CertificateDer::from_pem_file(fixture("client.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(fixture("client.key")).unwrap();
            config.with_client_auth_cert(vec![own], key).unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(agent.address).unwrap());
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut all = Vec::new();
    let read = std::io::Read::read_to_end(&mut stream, &mut all);
    if all.is_empty() {
        assert!(read.is_err());
        return None;
    }
    Some(Answer::read(&mut all.as_slice()))
}

fn password(password: &str) -> String {
    basic("prometheus", password)
}

#[test]
fn metrics_need_a_certificate_and_a_password() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    let web = |password: &str| {
        // Relative paths start at the directory of the file.
        for name in ["server.pem", "server.key", "ca.pem"] {
            fs::copy(fixture(name), directory.path().join(name)).unwrap();
        }
        let hash = bcrypt::hash(password, 4).unwrap();
        format!(
            "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  \
             client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n\
             basic_auth_users:\n  prometheus: {hash}\n"
        )
    };
    fs::write(&file, web("one")).unwrap();
    let config = format!("interval = \"200ms\"\n[http]\nweb_config = {file:?}\n");
    let options = AgentOptions {
        config: &config,
        scheme: "https",
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let answer = get(&agent, "/metrics", &password("one"), true).unwrap();
    assert_eq!(answer.status, 200);
    assert!(own(&parse(&answer.text()), "windows_total") >= 1.0);
    for path in ["/healthz", "/readyz"] {
        let answer = get(&agent, path, "", true).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok\n"));
    }
    for path in ["/metrics", "/"] {
        assert_eq!(get(&agent, path, "", true).unwrap().status, 401);
        assert_eq!(
            get(&agent, path, &password("two"), true).unwrap().status,
            401
        );
    }
    assert!(
        get(&agent, "/metrics", &password("one"), false).is_none(),
        "no certificate"
    );
    // A request without TLS gets no HTTP response.
    let mut plain = TcpStream::connect(agent.address).unwrap();
    plain
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut response = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut response);
    assert!(!response.windows(8).any(|part| part == b"pmuscope"));

    // A wrong file is refused as a whole. A corrected file applies soon after.
    fs::write(&file, "basic_auth_users:\n  prometheus: one\n").unwrap();
    while !agent.log().contains("TLS and passwords stay as they are") {
        assert_eq!(get(&agent, "/metrics", "", true).unwrap().status, 401);
    }
    assert!(
        agent
            .log()
            .contains("web.yml:2: basic_auth_users.prometheus: ")
    );
    assert_eq!(
        get(&agent, "/metrics", &password("one"), true)
            .unwrap()
            .status,
        200
    );
    fs::write(&file, web("two")).unwrap();
    while get(&agent, "/metrics", &password("two"), true)
        .unwrap()
        .status
        != 200
    {}
    assert_eq!(
        get(&agent, "/metrics", &password("one"), true)
            .unwrap()
            .status,
        401
    );
}

/// 400 password guesses from 40 addresses delay no client with a verified password, and no probe.
/// At most one guess of each address is verified before a new password.
#[test]
fn guesses_delay_no_verified_user() {
    const ADDRESSES: u8 = 40;
    const PER_ADDRESS: u8 = 10;
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    let [hash, second] = ["one", "new"].map(|password| bcrypt::hash(password, 11).unwrap());
    let users = format!("  prometheus: {hash}\n  second: {second}\n");
    fs::write(&file, format!("basic_auth_users:\n{users}")).unwrap();
    let config = format!("interval = \"200ms\"\n[http]\nweb_config = {file:?}\n");
    let agent = Agent::with(
        &AgentOptions {
            config: &config,
            ..AgentOptions::default()
        },
        |_| {},
    );
    let server = agent.address;
    let status_of_known_user = || status_from(server, 1, "/metrics", &password("one"));
    assert_eq!(status_of_known_user(), 200);

    let (sender, statuses) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for guess in 0..u16::from(ADDRESSES) * u16::from(PER_ADDRESS) {
            let sender = sender.clone();
            scope.spawn(move || {
                // Unknown user names count as guesses too.
                let user = ["prometheus", "root"][usize::from(guess % 2)];
                let last = 2 + u8::try_from(guess % u16::from(ADDRESSES)).unwrap();
                let status = status_from(server, last, "/metrics", &basic(user, "guess"));
                sender.send(status).unwrap();
            });
        }
        drop(sender);
        // One guess is verified. The others wait or were refused.
        let mut all: Vec<u16> = Vec::new();
        let verified = |all: &[u16]| all.iter().filter(|status| **status == 401).count();
        while verified(&all) == 0 {
            all.push(statuses.recv().unwrap());
        }
        let mut count = || {
            all.extend(statuses.try_iter());
            verified(&all)
        };
        assert_eq!(status_of_known_user(), 200);
        assert_eq!(status_from(server, 1, "/healthz", &password("two")), 200);
        let before = count();
        assert!(
            before < usize::from(ADDRESSES) / 2,
            "{before} were answered"
        );
        assert_eq!(
            status_from(server, 250, "/metrics", &basic("second", "new")),
            200
        );
        let meanwhile = count() - before;
        // One more verification may have been in progress.
        assert!(meanwhile <= usize::from(ADDRESSES) + 1, "{meanwhile}");
        all.extend(&statuses);
        assert!(
            all.iter().all(|status| [401, 503].contains(status)),
            "{all:?}"
        );
        assert!(verified(&all) >= usize::from(ADDRESSES), "{all:?}");
    });
}

/// The header for a user and a password.
fn basic(user: &str, password: &str) -> String {
    let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {credentials}\r\n")
}

/// The status of the response to a GET from 127.0.1.`last`.
fn status_from(server: SocketAddr, last: u8, path: &str, headers: &str) -> u16 {
    let mut client = connected([127, 0, 1, last], server);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut client, &mut all).unwrap();
    Answer::read(&mut all.as_slice()).status
}

#[test]
fn an_invalid_web_config_fails_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    fs::write(
        &file,
        "tls_server_config:\n  cert_file: a.pem\n  key_fil: a.key\n",
    )
    .unwrap();
    let config = directory.path().join("agent.toml");
    fs::write(&config, format!("[http]\nweb_config = {file:?}\n")).unwrap();
    let output = pmuscope()
        .args(["agent", "--listen", "127.0.0.1:0", "--config"])
        .arg(config)
        .arg("--run-directory")
        .arg(directory.path().join("run"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("web.yml:3: ") && stderr.contains("key_fil"),
        "{stderr}"
    );
}

//! TLS and passwords. The certificates in `tests/fixtures/tls` are the tests' own.

use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::{
    agent::{Agent, Answer, Given, own, parse, requests::connected},
    support::{pmuscope, shared_machine},
};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/tls"
    ))
    .join(name)
}

/// The answer to a GET over TLS, with the client's certificate or without; None where the server
/// refuses the connection.
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
    let given = BASE64_STANDARD.encode(format!("prometheus:{password}"));
    format!("Authorization: Basic {given}\r\n")
}

#[test]
fn metrics_are_for_who_has_certificate_and_password() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    let web = |password: &str| {
        // Beside the file itself.
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
    let given = Given {
        config: &config,
        scheme: "https",
        ..Given::default()
    };
    let agent = Agent::with(&given, |_| {});
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
    // Without TLS nothing is said but what TLS says.
    let mut plain = TcpStream::connect(agent.address).unwrap();
    plain
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut said = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut said);
    assert!(!said.windows(8).any(|part| part == b"pmuscope"));

    // A file that is wrong opens nothing; one that is right again is in force soon.
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

/// Guesses of many addresses hold up nobody whose password was verified before, nor a probe, and
/// those of one address do not pile up.
#[test]
fn guesses_hold_up_nobody_who_is_known() {
    const ADDRESSES: u8 = 40;
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    let hash = bcrypt::hash("one", 11).unwrap();
    fs::write(&file, format!("basic_auth_users:\n  prometheus: {hash}\n")).unwrap();
    let config = format!("interval = \"200ms\"\n[http]\nweb_config = {file:?}\n");
    let agent = Agent::with(
        &Given {
            config: &config,
            ..Given::default()
        },
        |_| {},
    );
    assert_eq!(
        status_from(agent.address, 1, "/metrics", &password("one")),
        200
    );

    let (sender, statuses) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for last in 0..ADDRESSES {
            let (sender, address) = (sender.clone(), agent.address);
            scope.spawn(move || {
                // The names of users that are not there are guesses too.
                let user = ["prometheus", "root"][usize::from(last % 2)];
                let guess = BASE64_STANDARD.encode(format!("{user}:guess"));
                let guess = format!("Authorization: Basic {guess}\r\n");
                sender
                    .send(status_from(address, last + 2, "/metrics", &guess))
                    .unwrap();
            });
        }
        // The first one is under way or done; the others wait for their turns.
        assert_eq!(statuses.recv().unwrap(), 401);
        assert_eq!(
            status_from(agent.address, 1, "/metrics", &password("one")),
            200
        );
        assert_eq!(
            status_from(agent.address, 1, "/healthz", &password("two")),
            200
        );
        let answered = 1 + statuses.try_iter().count();
        assert!(
            answered < usize::from(ADDRESSES) / 2,
            "{answered} were answered"
        );
    });
    drop(sender);
    assert!(statuses.iter().all(|status| status == 401));
}

/// The status of the answer to a GET from 127.0.1.x.
fn status_from(server: SocketAddr, last: u8, path: &str, headers: &str) -> u16 {
    let mut client = connected([127, 0, 1, last], server);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut client, &mut all).unwrap();
    Answer::read(&mut all.as_slice()).status
}

#[test]
fn a_file_that_is_wrong_ends_the_start() {
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("web.yml:3: ") && said.contains("key_fil"),
        "{said}"
    );
}

//! Invalid files, and passwords.

use std::{collections::BTreeMap, net::Ipv4Addr};

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Loads a file with this text. In errors, `F` is the file.
fn load(text: &str) -> Result<Web, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    fs::write(&file, text).unwrap();
    let file_name = file.display().to_string();
    Web::load(Some(&file)).map_err(|error| error.to_string().replace(&file_name, "F"))
}

#[test]
fn a_mistake_names_line_and_key() {
    let cases = [
        ("tls_server_confg: {}\n", "F:1: ", "tls_server_confg"),
        (
            "basic_auth_users:\n  alice: secret\n",
            "F:2: ",
            "basic_auth_users.alice",
        ),
        (
            "tls_server_config:\n  cert_file: /nowhere/cert.pem\n  key_file: k\n",
            "F:2: ",
            "tls_server_config.cert_file: cannot use /nowhere/cert.pem",
        ),
        ("tls_server_config:\n  cert_file: a\n", "F:", "key_file"),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  cipher_suites: []\n",
            "F:4: ",
            "cipher_suites",
        ),
        ("basic_auth_users: [\n", "F:", ""),
    ];
    for (text, place, key) in cases {
        let Err(error) = load(text) else {
            panic!("{text} was taken");
        };
        println!("{error}");
        assert!(error.starts_with(place), "{text}\n{error}");
        assert!(error.contains(key), "{text}\n{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_file_without_settings_changes_nothing() {
    for text in ["", "\n", "basic_auth_users: {}\n"] {
        let web = load(text).unwrap();
        assert_eq!((web.scheme(), web.is_protected()), ("http", false));
    }
}

/// TLS alone lets everybody in.
#[test]
fn tls_without_users_is_no_protection() {
    let file = |name: &str| test_support::fixture("tls").join(name);
    let [certificate, key, ca] = ["server.pem", "server.key", "ca.pem"].map(file);
    let tls = format!(
        "tls_server_config:\n  cert_file: {}\n  key_file: {}\n",
        certificate.display(),
        key.display()
    );
    let web = load(&tls).unwrap();
    assert_eq!((web.scheme(), web.is_protected()), ("https", false));
    let hash = bcrypt::hash("a", 4).unwrap();
    let by_password = format!("{tls}basic_auth_users:\n  alice: {hash}\n");
    let by_certificate = format!(
        "{tls}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {}\n",
        ca.display()
    );
    for text in [by_password, by_certificate] {
        let web = load(&text).unwrap();
        assert_eq!((web.scheme(), web.is_protected()), ("https", true));
    }
}

fn authorization(scheme: &str, text: &[u8]) -> HeaderMap {
    let value = format!("{scheme} {}", BASE64_STANDARD.encode(text));
    [(AUTHORIZATION, value.parse().unwrap())]
        .into_iter()
        .collect()
}

#[tokio::test]
async fn only_clients_with_a_password_are_admitted() {
    let hash = bcrypt::hash("s3cret:ü", 4).unwrap();
    let web = load(&format!("basic_auth_users:\n  alice: {hash}\n")).unwrap();
    assert!(web.is_protected());
    let admits = async |headers: HeaderMap| {
        let was_verified = web.already_admits(&headers);
        (
            web.admits(&headers, ADDRESS).await == Admission::Granted,
            was_verified,
        )
    };
    // The second time, the password was verified before.
    for was_verified in [false, true] {
        let right = authorization("Basic", "alice:s3cret:ü".as_bytes());
        assert_eq!(admits(right).await, (true, was_verified));
    }
    assert!(
        admits(authorization("basic", "alice:s3cret:ü".as_bytes()))
            .await
            .0
    );
    for wrong in [
        HeaderMap::new(),
        authorization("Basic", b"alice:s3cret"),
        authorization("Basic", b"alice:"),
        authorization("Basic", b"alice"),
        authorization("Basic", b"bob:s3cret"),
        authorization("Basic", b"\xff\xfe:x"),
        authorization("Bearer", "alice:s3cret:ü".as_bytes()),
    ] {
        assert_eq!(admits(wrong).await, (false, false));
    }
}

#[test]
fn every_guess_takes_the_same_work() {
    let rounds = |costs: std::ops::Range<u32>| costs.map(|cost| 1_u64 << cost).sum::<u64>();
    assert_eq!(rounds(passwords::further_costs(None, 12)), 1 << 12);
    for own in 4..=12 {
        let further = rounds(passwords::further_costs(Some(own), 12));
        assert_eq!((1 << own) + further, 1 << 12);
    }
}

#[tokio::test]
async fn a_verified_password_stays_verified_until_its_hash_changes() {
    let users = |hashes: &[(&str, &str)]| {
        let hashed = |(user, password): &(&str, &str)| {
            let hash = bcrypt::hash_with_salt(password, 4, [7; 16]).unwrap();
            ((*user).to_owned(), hash.to_string())
        };
        hashes.iter().map(hashed).collect()
    };
    let first = Passwords::new(users(&[("alice", "a"), ("bob", "b")]), None).unwrap();
    for (user, password) in [("alice", "a"), ("bob", "b")] {
        let admitted = first.admit(user, password.into(), ADDRESS).await;
        assert_eq!(admitted, Admission::Granted);
    }
    let second = Passwords::new(users(&[("alice", "a"), ("bob", "c")]), Some(&first)).unwrap();
    assert!(second.is_known("alice", b"a"));
    assert!(!second.is_known("bob", b"b"));
    let third = Passwords::new(users(&[("bob", "c")]), Some(&second)).unwrap();
    assert!(!third.is_known("alice", b"a"));
}

/// One guess per address waits; further guesses get `Busy` at once.
#[tokio::test]
async fn guesses_of_one_address_do_not_pile_up() {
    // The work of a guess is long enough for all others to arrive meanwhile.
    let hash = bcrypt::hash_with_salt("a", 10, [7; 16])
        .unwrap()
        .to_string();
    let users = BTreeMap::from([("alice".to_owned(), hash)]);
    let passwords = Arc::new(Passwords::new(users, None).unwrap());
    let guess = |user: &'static str, from: IpAddr| {
        let passwords = Arc::clone(&passwords);
        async move { passwords.admit(user, b"x".to_vec(), from).await }
    };
    let [first, second] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    let admissions = tokio::join!(
        guess("alice", first),
        guess("nobody", first),
        guess("alice", second),
        guess("alice", second),
    );
    use Admission::{Busy, Denied};
    assert_eq!(admissions, (Denied, Busy, Denied, Busy));
    // All addresses of an IPv6 network are one client.
    let [first, second] = [1, 2].map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
    let admissions = tokio::join!(guess("alice", first), guess("alice", second));
    assert_eq!(admissions, (Denied, Busy));
    // All of them have been answered: the next one does not wait.
    assert_eq!(guess("alice", first).await, Denied);
}

/// A hash runs to its end even if the client has left, and no other hash begins before.
#[tokio::test]
async fn a_hash_runs_to_its_end_after_its_client_left() {
    let hash = bcrypt::hash_with_salt("a", 8, [7; 16]).unwrap();
    let users = BTreeMap::from([("alice".to_owned(), hash.to_string())]);
    let passwords = Arc::new(Passwords::new(users, None).unwrap());
    let shared = Arc::clone(&passwords);
    let client = tokio::spawn(async move { shared.admit("alice", b"a".to_vec(), ADDRESS).await });
    while passwords.is_idle() && !passwords.is_known("alice", b"a") {
        tokio::task::yield_now().await;
    }
    client.abort();
    // On a slow machine the client may have been answered before.
    let _aborted = client.await;
    loop {
        let is_idle = passwords.is_idle();
        if passwords.is_known("alice", b"a") {
            break;
        }
        // The hash blocks others until the password is remembered.
        assert!(!is_idle);
        tokio::task::yield_now().await;
    }
}

/// A change is noticed even if it comes while the files are read for the first time.
#[test]
fn a_change_during_the_first_reading_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let fixture = |name: &str| test_support::fixture("tls").join(name);
    // Reading a pipe lasts until its writer has closed it.
    let pipe = file("certificate");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let web_config = file("web.yml");
    let tls = format!(
        "tls_server_config:\n  cert_file: {}\n  key_file: {}\n",
        pipe.display(),
        fixture("server.key").display()
    );
    fs::write(&web_config, &tls).unwrap();
    let web = std::thread::scope(|scope| {
        let loading = scope.spawn(|| Web::load(Some(&web_config)));
        // Opening the pipe waits for its reader, which has read the web configuration.
        let mut writer = fs::File::options().write(true).open(&pipe).unwrap();
        fs::copy(fixture("server.pem"), file("copy")).unwrap();
        fs::rename(file("copy"), &pipe).unwrap();
        let hash = bcrypt::hash("a", 4).unwrap();
        fs::write(
            &web_config,
            format!("{tls}basic_auth_users:\n  alice: {hash}\n"),
        )
        .unwrap();
        let certificate = fs::read(fixture("server.pem")).unwrap();
        std::io::Write::write_all(&mut writer, &certificate).unwrap();
        drop(writer);
        loading.join().unwrap()
    });
    let web = web.unwrap();
    let mut current = web.current.lock().unwrap();
    assert!(current.settings.passwords.is_none());
    current.reload_if_changed(&web_config);
    assert!(current.settings.passwords.is_some());
}

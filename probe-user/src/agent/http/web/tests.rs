//! Files that are wrong, and passwords.

use super::*;

fn load(text: &str) -> Result<Web, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("web.yml");
    fs::write(&file, text).unwrap();
    let named = file.display().to_string();
    Web::load(Some(&file)).map_err(|error| error.to_string().replace(&named, "F"))
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
fn a_file_that_asks_for_nothing_changes_nothing() {
    for text in ["", "\n", "basic_auth_users: {}\n"] {
        let web = load(text).unwrap();
        assert_eq!((web.scheme(), web.is_protected()), ("http", false));
    }
}

fn authorization(scheme: &str, text: &[u8]) -> HeaderMap {
    let value = format!("{scheme} {}", BASE64_STANDARD.encode(text));
    [(AUTHORIZATION, value.parse().unwrap())]
        .into_iter()
        .collect()
}

#[tokio::test]
async fn only_who_knows_a_password_comes_in() {
    let hash = bcrypt::hash("s3cret:ü", 4).unwrap();
    let web = load(&format!("basic_auth_users:\n  alice: {hash}\n")).unwrap();
    assert!(web.is_protected());
    let admits = async |headers: HeaderMap| web.admits(&headers).await;
    // The second time it is known.
    for _ in 0..2 {
        assert!(admits(authorization("Basic", "alice:s3cret:ü".as_bytes())).await);
    }
    assert!(admits(authorization("basic", "alice:s3cret:ü".as_bytes())).await);
    for wrong in [
        HeaderMap::new(),
        authorization("Basic", b"alice:s3cret"),
        authorization("Basic", b"alice:"),
        authorization("Basic", b"alice"),
        authorization("Basic", b"bob:s3cret"),
        authorization("Basic", b"\xff\xfe:x"),
        authorization("Bearer", "alice:s3cret:ü".as_bytes()),
    ] {
        assert!(!admits(wrong).await);
    }
}

/// So that a name that is not there takes as long as one that is.
#[test]
fn nobody_has_a_hash_that_bcrypt_takes() {
    assert!(bcrypt::verify("x", passwords::NOBODY).is_ok_and(|right| !right));
}

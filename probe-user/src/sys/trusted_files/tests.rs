//! Links, pipes and permissions of other users, and how each is refused.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use rustix::fs::{FileType, mknodat};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal<T: fmt::Debug>(opened: io::Result<T>) -> String {
    opened.unwrap_err().to_string()
}

#[test]
fn a_new_directory_and_its_files_are_for_their_owner_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/own");
    let trusted = TrustedDirectory::make(&path).unwrap();
    trusted.file("state").unwrap();
    trusted.make_directory("below").unwrap();
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().mode() & 0o777;
    assert_eq!(
        (mode(""), mode("state"), mode("below")),
        (0o700, 0o600, 0o700)
    );
    assert_eq!(trusted.names().unwrap(), ["below", "state"]);
    assert!(trusted.existing("none").unwrap().is_none());
}

#[test]
fn files_that_others_can_change_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("own");
    TrustedDirectory::make(&path).unwrap();
    set_mode(&path, 0o770);
    assert!(refusal(TrustedDirectory::open(&path)).ends_with("(its mode is 0770)"));
    set_mode(&path, 0o1777);
    let trusted = TrustedDirectory::open(&path).unwrap();
    trusted.file("state").unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(path.join("state"), Some(65534), None).unwrap();
        assert!(refusal(trusted.file("state")).contains("state belongs to user 65534"));
        assert!(refusal(trusted.existing("state")).contains("state belongs to user 65534"));
    }
    set_mode(&path, 0o755);
    TrustedDirectory::open(&path).unwrap();
    // A user who can write to the parent can replace the directory, unless the parent is sticky.
    set_mode(root.path(), 0o777);
    assert!(refusal(TrustedDirectory::make(&path)).ends_with("(its mode is 0777)"));
    set_mode(root.path(), 0o1777);
    TrustedDirectory::open(&path).unwrap();
}

#[test]
fn the_directory_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("own");
    TrustedDirectory::make(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    assert!(refusal(TrustedDirectory::make(&path)).contains("belongs to user 65534"));
    let below = path.join("below");
    assert!(refusal(TrustedDirectory::make(&below)).contains("belongs to user 65534"));
}

#[test]
fn no_link_is_followed() {
    let root = tempfile::tempdir().unwrap();
    let victim = root.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "kept").unwrap();
    let path = root.path().join("own");
    let trusted = TrustedDirectory::make(&path).unwrap();
    symlink(&victim, path.join("session")).unwrap();
    symlink(victim.join("file"), path.join("lock")).unwrap();
    symlink(&victim, root.path().join("link")).unwrap();

    assert!(refusal(TrustedDirectory::make(&root.path().join("link"))).contains("symbolic link"));
    assert!(refusal(trusted.directory("session")).contains("symbolic link"));
    assert!(refusal(trusted.make_directory("session")).contains("symbolic link"));
    assert!(refusal(trusted.file("lock")).contains("symbolic link"));
    assert!(refusal(trusted.existing("lock")).contains("symbolic link"));
    trusted.remove_file("session").unwrap();
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "kept");
}

/// A link among the ancestors is followed if root made it.
#[test]
fn a_link_of_another_user_among_the_ancestors_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let victim = root.path().join("victim");
    fs::create_dir(&victim).unwrap();
    set_mode(root.path(), 0o1777);
    let link = root.path().join("link");
    symlink(&victim, &link).unwrap();
    let below = link.join("a/state");
    TrustedDirectory::make(&below).unwrap();
    fs::remove_dir_all(victim.join("a")).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    for refused in [
        TrustedDirectory::make(&below),
        TrustedDirectory::open(&below),
    ] {
        assert!(refusal(refused).contains("link belongs to user 65534"));
    }
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

#[test]
fn opening_a_special_file_does_not_block() {
    let root = tempfile::tempdir().unwrap();
    let trusted = TrustedDirectory::make(&root.path().join("own")).unwrap();
    let pipe = trusted.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    trusted.make_directory("below").unwrap();
    for name in ["pipe", "below"] {
        assert!(
            refusal(trusted.file(name)).contains("no regular file"),
            "{name}"
        );
        assert!(
            refusal(trusted.existing(name)).contains("regular file"),
            "{name}"
        );
    }
}

#[test]
fn append_follows_no_link_of_another_user() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    let link = root.path().join("link");
    append(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    symlink(&file, &link).unwrap();
    append(&link).unwrap();
    for mode in [0o770, 0o1777] {
        set_mode(root.path(), mode);
        append(&file).unwrap();
        assert!(refusal(append(&link)).contains("that others may have made"));
    }
    if geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert!(refusal(append(&file)).contains("belongs to user 65534"));
    }
}

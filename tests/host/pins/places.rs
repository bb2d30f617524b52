//! Places of pins: damaged pins, files of other users, and places that cannot be used.

use std::{fs, path::Path};

use probe_user::{
    session::{Config, Continuity, PinPath, Session, unpin},
    snapshot::Hook,
};
use rustix::mount::MountFlags;
use test_harness::{plan, shared_machine, this_machine};

use super::{config, handed_over, refusal, restamp, start};
use crate::bpffs::Bpffs;

#[test]
fn damaged_pins_are_removed() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let damages: [(&str, &dyn Fn()); 5] = [
        ("another layout", &|| restamp(&bpffs, 1, "0x1")),
        ("no stamp", &|| restamp(&bpffs, 3, "")),
        ("a map is missing", &|| {
            fs::remove_file(bpffs.sessions()[0].join("USAGE")).unwrap();
        }),
        ("a link is missing", &|| {
            fs::remove_file(bpffs.sessions()[0].join("sched_switch_link")).unwrap();
        }),
        ("a map is another one", &|| {
            let directory = bpffs.sessions().remove(0);
            fs::remove_file(directory.join("USAGE")).unwrap();
            fs::rename(directory.join("OVERFLOW"), directory.join("USAGE")).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let mut session = start("task-clock", bpffs.place()).unwrap();
        assert_eq!(session.continuity(), Continuity::New, "{what}");
        session.pull().unwrap();
        session.keep_pins();
        drop(session);
        damage();
        let mut session = start("task-clock", bpffs.place()).unwrap();
        assert_eq!(session.continuity(), Continuity::New, "{what}");
        let window = session.pull().unwrap();
        assert_eq!(handed_over(&window).times, 0, "{what}");
        assert_eq!(bpffs.sessions().len(), 1, "{what}");
        drop(session);
        assert!(bpffs.is_empty(), "{what}");
    }
}

/// The directory may be shared, and files of others stay.
#[test]
fn pins_of_others_stay() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let place = PinPath(bpffs.path().to_owned());
    let other = bpffs.path().join("cilium");
    fs::create_dir(&other).unwrap();
    drop(start("task-clock", place.clone()).unwrap());
    assert_eq!(unpin(&place).unwrap(), 0);
    assert_eq!(bpffs.files(), [other]);
}

/// A bpffs is writable for everyone unless it is mounted otherwise. Files that another user puts
/// there must not lead to the removal of other files.
#[test]
fn files_of_another_user_lead_to_no_removals() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let victim = tempfile::tempdir().unwrap();
    let bystander = victim.path().join("bystander");
    fs::write(&bystander, "").unwrap();
    let own_by_nobody =
        |path: &Path| std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    let place = bpffs.place();

    // Another user owns the directory of all pins.
    fs::create_dir(&place.0).unwrap();
    let link = place.0.join("session-x");
    std::os::unix::fs::symlink(victim.path(), &link).unwrap();
    own_by_nobody(&link);
    own_by_nobody(&place.0);
    let text = refusal(place.clone());
    assert!(text.contains("belongs to user 65534"), "{text}");
    let text = unpin(&place).unwrap_err().to_string();
    assert!(text.contains("belongs to user 65534"), "{text}");
    fs::remove_file(&link).unwrap();
    fs::remove_dir(&place.0).unwrap();

    // The directory is a symbolic link.
    std::os::unix::fs::symlink(victim.path(), &place.0).unwrap();
    own_by_nobody(&place.0);
    assert!(unpin(&place).is_err());
    let text = refusal(place.clone());
    assert!(
        text.contains("symbolic link") || text.contains("no bpffs"),
        "{text}"
    );
    fs::remove_file(&place.0).unwrap();

    // The directory is the root of the bpffs.
    let place = PinPath(bpffs.path().to_owned());
    let link = bpffs.path().join("session-x");
    std::os::unix::fs::symlink(victim.path(), &link).unwrap();
    own_by_nobody(&link);
    let theirs = bpffs.path().join("session-y");
    fs::create_dir(&theirs).unwrap();
    own_by_nobody(&theirs);
    drop(start("task-clock", place.clone()).unwrap());
    assert_eq!(unpin(&place).unwrap(), 0);
    let mut files = bpffs.files();
    files.sort();
    assert_eq!(files, [link, theirs]);
    assert!(bystander.exists());
}

#[test]
fn places_that_cannot_be_used_are_refused() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let text = refusal(PinPath("/tmp/pmuscope-pins".into()));
    assert!(text.contains("on no bpffs; mount one"), "{text}");
    assert!(!Path::new("/tmp/pmuscope-pins").exists());
    let text = refusal(PinPath(bpffs.path().join("missing/pmuscope")));
    assert!(text.contains("No such file or directory"), "{text}");

    let refused = |change: fn(&mut Config)| {
        let mut config = config(plan("task-clock"), bpffs.place());
        change(&mut config);
        let error = Session::start(config, &this_machine()).err().unwrap();
        error.to_string()
    };
    let text = refused(|config| config.hook = Hook::CgroupSwitches);
    assert!(text.contains("cgroup-switches"), "{text}");
    let text = refused(|config| config.follow_command = true);
    assert!(text.contains("command"), "{text}");
    assert!(bpffs.is_empty());

    let read_only = MountFlags::RDONLY;
    rustix::mount::mount_remount(bpffs.path(), read_only, "").unwrap();
    let text = refusal(bpffs.place());
    assert!(text.contains("mounted read-only"), "{text}");
}

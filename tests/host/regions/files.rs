//! Which files are looked at for markers, and what is said of those that have none.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use probe_user::session::markers::{Has, Markers, Observed};

use super::{
    Seen,
    programs::{self, Made, c},
};
use crate::support::{shared_machine, this_machine};

#[test]
fn a_program_whose_file_is_gone_is_told_of() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(made) = c(&["-O2"]) else { return };
    let seen = Seen::of(&made.program(), "nested", |markers, pid| {
        std::fs::remove_file(made.program()).unwrap();
        let looked = markers.observe_process(Path::new("/proc"), pid).unwrap();
        let name = format!("{} (deleted)", made.program().display());
        assert_eq!(looked.unopened, [name.into_bytes()]);
    });
    assert!(seen.calls().iter().all(|call| call.starts_with("exit")));
}

#[test]
fn a_file_of_very_many_marker_functions_is_not_observed() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(made) = c(&["-O2"]) else { return };
    let observed = Observed::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&this_machine(), &observed).unwrap();
    for (copies, expected) in [(64, Has::Markers), (65, Has::TooMuch)] {
        let Some(program) = programs::with_copies(&made, copies) else {
            return;
        };
        let has = markers.observe_file(&program).unwrap();
        assert_eq!(has, Some(expected), "{copies}");
        // The next one is another file.
        std::fs::rename(&program, program.with_extension("first")).unwrap();
    }
}

#[test]
fn a_program_without_markers_or_without_names_says_so() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(made) = c(&["-O2", "-s"]) else {
        return;
    };
    let observed = Observed::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&this_machine(), &observed).unwrap();
    let mut has = |path: &Path| markers.observe_program(path).unwrap();
    assert_eq!(has(&made.program()), Some(Has::Stripped));
    // A file is looked at once.
    assert_eq!(has(&made.program()), None);
    let Some(without) = Made::of("int main(void) { return 0; }", &["-O2"]) else {
        return;
    };
    assert_eq!(has(&without.program()), Some(Has::None));
    // The arguments of its calls are not where those of 64 bits are.
    if cfg!(target_arch = "x86_64")
        && let Some(narrow) = Made::of(
            "void pmuscope_stop(void) {} void _start(void) { pmuscope_stop(); for (;;); }",
            &["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie"],
        )
    {
        assert_eq!(has(&narrow.program()), Some(Has::Narrow));
    }
    let script = without.program().with_file_name("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    assert_eq!(has(&script), Some(Has::NoProgram));
    let error = markers
        .observe_program(Path::new("/nowhere/at all"))
        .unwrap_err();
    assert!(
        error.to_string().contains("cannot read /nowhere/at all"),
        "{error}"
    );
}

/// The loader that a file names is anybody's program: only that of the command is run.
#[test]
fn nothing_of_a_named_file_is_run() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (loader, ran) = (
        directory.path().join("loader"),
        directory.path().join("ran"),
    );
    std::fs::write(&loader, format!("#!/bin/sh\n: > {}\n", ran.display())).unwrap();
    std::fs::set_permissions(&loader, std::fs::Permissions::from_mode(0o755)).unwrap();
    let named = format!("-Wl,--dynamic-linker={}", loader.display());
    let Some(made) = c(&["-O2", &named]) else {
        return;
    };
    let observed = Observed::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&this_machine(), &observed).unwrap();
    let has = markers.observe_file(&made.program()).unwrap();
    assert_eq!((has, ran.exists()), (Some(Has::Markers), false));
    // It is one that would be run, where the program is the command.
    markers.observe_program(&made.program()).unwrap();
    assert!(ran.exists());
}

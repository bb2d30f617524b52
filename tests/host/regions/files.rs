//! Which files are searched for markers, and the messages about files without any.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use probe_user::session::markers::{MarkerScope, Markers, ScanResult};
use test_harness::{shared_machine, this_machine};

use super::{
    Observation,
    programs::{self, CompiledProgram, compile_marks},
};

#[test]
fn a_program_with_a_removed_file_is_reported() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let seen = Observation::run(&built.program(), "nested", |markers, pid| {
        std::fs::remove_file(built.program()).unwrap();
        let scan = markers.observe_process(Path::new("/proc"), pid).unwrap();
        let name = format!("{} (deleted)", built.program().display());
        assert_eq!(scan.unopened, [name.into_bytes()]);
    });
    assert!(seen.calls().iter().all(|call| call.starts_with("exit")));
}

#[test]
fn a_file_of_very_many_marker_functions_is_not_observed() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2"]) else {
        return;
    };
    let scope = MarkerScope::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&this_machine(), &scope).unwrap();
    for (copies, expected) in [(64, ScanResult::Markers), (65, ScanResult::TooMuch)] {
        let Some(program) = programs::with_copies(&built, copies) else {
            return;
        };
        let result = markers.observe_file(&program).unwrap();
        assert_eq!(result, Some(expected), "{copies}");
        // After the rename the next program is a new file.
        std::fs::rename(&program, program.with_extension("first")).unwrap();
    }
}

#[test]
fn a_program_without_markers_or_without_names_is_reported() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let Some(built) = compile_marks(&["-O2", "-s"]) else {
        return;
    };
    let scope = MarkerScope::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&this_machine(), &scope).unwrap();
    let mut scan = |path: &Path| markers.observe_program(path).unwrap();
    assert_eq!(scan(&built.program()), Some(ScanResult::Stripped));
    // Each file is searched once.
    assert_eq!(scan(&built.program()), None);
    let Some(unmarked) = CompiledProgram::build("int main(void) { return 0; }", &["-O2"]) else {
        return;
    };
    assert_eq!(scan(&unmarked.program()), Some(ScanResult::None));
    // Markers of 32-bit programs have their arguments elsewhere.
    if cfg!(target_arch = "x86_64")
        && let Some(narrow) = CompiledProgram::build(
            "void pmuscope_stop(void) {} void _start(void) { pmuscope_stop(); for (;;); }",
            &["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie"],
        )
    {
        assert_eq!(scan(&narrow.program()), Some(ScanResult::Narrow));
    }
    let script = unmarked.program().with_file_name("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    assert_eq!(scan(&script), Some(ScanResult::NoProgram));
    let error = markers
        .observe_program(Path::new("/nowhere/at all"))
        .unwrap_err();
    assert!(
        error.to_string().contains("cannot read /nowhere/at all"),
        "{error}"
    );
}

/// A file may name any program as its loader. Only the loader of the command's own file is run.
#[test]
fn the_loader_of_a_named_file_is_not_run() {
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
    let Some(built) = compile_marks(&["-O2", &named]) else {
        return;
    };
    let scope = MarkerScope::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&this_machine(), &scope).unwrap();
    let result = markers.observe_file(&built.program()).unwrap();
    assert_eq!((result, ran.exists()), (Some(ScanResult::Markers), false));
    // The command's own file may run its loader.
    markers.observe_program(&built.program()).unwrap();
    assert!(ran.exists());
}

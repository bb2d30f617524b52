//! Names functions of all kinds of programs: plain, stripped, with libraries, ended, in containers.

use std::{fs, path::Path, process::Command, sync::Arc};

use super::target::{Target, compile, following, function, is_root, run, symbols};
use crate::symbols::AddressOwner;

/// Demangled name of the C++ function whose address the program prints for `hot`.
const HOT: &str = "load::hot(int)";

#[test]
fn functions_of_fixed_and_position_independent_programs_have_names() {
    let directory = tempfile::tempdir().unwrap();
    for (name, arguments) in [("pie", ["-pie", "-fPIE"]), ("fixed", ["-no-pie", "-O1"])] {
        let program = compile(directory.path(), name, &arguments);
        let mut target = Target::start(&program);
        let mut symbols = symbols();
        for (line, function) in [("hot", HOT), ("cold", "cold")] {
            let address = target.ask(line);
            let place = symbols.name(AddressOwner::Process(target.pid()), address + 1, None);
            assert_eq!(place.function.as_deref(), Some(function), "{name}");
            assert_eq!(Path::new(&*place.module), program);
        }
        // An unmapped address.
        assert_eq!(function(&mut symbols, target.pid(), 16), None);
        target.end();
    }
}

/// Strips the program; its debug information goes into `debug`, if given.
fn strip(program: &Path, debug: Option<&Path>) {
    if let Some(debug) = debug {
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([program, debug]));
    }
    run(Command::new("strip").arg(program));
    if let Some(debug) = debug {
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run(Command::new("objcopy").arg(link).arg(program));
    }
}

#[test]
fn a_stripped_program_has_its_module_and_offset() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(
        directory.path(),
        "stripped",
        &["-no-pie", "-Wl,--build-id=sha1"],
    );
    strip(&program, None);
    let mut target = Target::start(&program);
    let address = target.ask("cold");
    let place = symbols().name(AddressOwner::Process(target.pid()), address, None);
    assert_eq!(place.function, None);
    assert_eq!(Path::new(&*place.module), program);
    assert_eq!(place.build_id.map(|id| id.len()), Some(20));
    // The linker's default base of programs at a fixed address.
    if cfg!(target_arch = "x86_64") {
        assert_eq!(place.offset, address - 0x40_0000);
    }
    target.end();
}

#[test]
fn a_debug_link_is_followed_if_the_build_ids_match() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(".debug")).unwrap();
    let debug = directory.path().join(".debug/linked.debug");
    let build = |optimise| compile(directory.path(), "linked", &[optimise, "-Wl,--build-id"]);
    let program = build("-O0");
    strip(&program, Some(&debug));
    let named = || {
        let mut target = Target::start(&program);
        let address = target.ask("cold");
        let named = function(&mut symbols(), target.pid(), address);
        target.end();
        named
    };
    assert_eq!(named().as_deref(), Some("cold"));
    // The debug file of another build is not used.
    let first_debug = fs::read(&debug).unwrap();
    build("-O1");
    strip(&program, Some(&debug));
    fs::write(&debug, first_debug).unwrap();
    assert_eq!(named(), None);
}

#[test]
fn a_library_that_is_loaded_late_has_names() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("library.c");
    fs::write(&source, "int in_library(int n) { return n * 7; }\n").unwrap();
    let library = directory.path().join("liblate.so");
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]));
    let program = compile(directory.path(), "loads", &["-DLOADS", "-ldl"]);
    let with_and_without_watch = [Some(following()).filter(|_| is_root()), Some(symbols())];
    for mut symbols in with_and_without_watch.into_iter().flatten() {
        let mut target = Target::start(&program);
        let address = target.ask("hot");
        symbols.catch_up();
        assert_eq!(
            function(&mut symbols, target.pid(), address).as_deref(),
            Some(HOT)
        );
        let address = target.ask(library.to_str().unwrap());
        symbols.catch_up();
        assert_eq!(
            function(&mut symbols, target.pid(), address).as_deref(),
            Some("in_library")
        );
        target.end();
    }
}

#[test]
fn a_process_that_ended_has_names() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "ends", &["-Wl,--build-id=none"]);
    let mut symbols = following();
    let mut target = Target::start(&program);
    let (pid, address) = (target.pid(), target.ask("hot"));
    target.end();
    symbols.catch_up();
    assert_eq!(function(&mut symbols, pid, address).as_deref(), Some(HOT));
    // The same for a program whose file is removed.
    let mut target = Target::start(&program);
    let (pid, address) = (target.pid(), target.ask("hot"));
    symbols.catch_up();
    target.end();
    fs::remove_file(&program).unwrap();
    symbols.catch_up();
    symbols.end_round(0);
    let place = symbols.name(AddressOwner::Process(pid), address, None);
    assert_eq!(place.function.as_deref(), Some(HOT));
    assert_eq!(symbols.counts().lost, 0);
    // A process that ended before the next window is dropped.
    symbols.end_round(u64::MAX);
    assert_eq!(function(&mut symbols, pid, address), None);
}

/// Whether this process has a file open.
fn is_open(path: &Path) -> bool {
    let mut open = fs::read_dir("/proc/self/fd").unwrap();
    open.any(|fd| fs::read_link(fd.unwrap().path()).is_ok_and(|file| file.starts_with(path)))
}

#[test]
fn a_file_that_no_process_has_mapped_any_more_is_closed() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [ended, lives] = ["ended", "lives"].map(|name| compile(directory.path(), name, &[]));
    let mut symbols = following();
    let [mut first, mut second] = [&ended, &lives].map(|program| Target::start(program));
    for target in [&mut first, &mut second] {
        let address = target.ask("hot");
        symbols.catch_up();
        assert_eq!(
            function(&mut symbols, target.pid(), address).as_deref(),
            Some(HOT)
        );
    }
    first.end();
    symbols.catch_up();
    symbols.end_round(0);
    assert!(is_open(&ended) && is_open(&lives));
    for _ in 0..100 {
        symbols.end_round(u64::MAX);
    }
    assert!(!is_open(&ended) && is_open(&lives));
    second.end();
}

#[test]
fn a_program_that_was_deleted_has_names_while_it_runs() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "deleted", &[]);
    let mut target = Target::start(&program);
    let address = target.ask("hot");
    fs::write(directory.path().join("new"), "another program").unwrap();
    fs::rename(directory.path().join("new"), &program).unwrap();
    assert_eq!(
        function(&mut symbols(), target.pid(), address).as_deref(),
        Some(HOT)
    );
    target.end();
}

#[test]
fn a_process_whose_first_thread_ended_has_names() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "leaves", &["-DLEAVES", "-pthread"]);
    let mut target = Target::start(&program);
    let (pid, address) = (target.pid(), target.ask("hot"));
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    while !status().contains("State:\tZ") {
        std::thread::yield_now();
    }
    // Root can read its file even if it was removed.
    if is_root() {
        fs::remove_file(&program).unwrap();
    }
    let mut symbols = symbols();
    assert_eq!(function(&mut symbols, pid, address).as_deref(), Some(HOT));
    let compiled = target.ask("jit");
    let named = function(&mut symbols, pid, compiled + 0x30);
    assert_eq!(named.as_deref(), Some("Main::run(int) [tier 2]"));
    target.end();
}

/// A root file system with the program as /bin/contained, and the command that executes it in its
/// own namespaces.
fn container(directory: &Path) -> Command {
    for name in ["bin", "tmp", "old"] {
        fs::create_dir(directory.join(name)).unwrap();
    }
    compile(
        &directory.join("bin"),
        "contained",
        &["-static", "-Wl,--build-id"],
    );
    let enter =
        "mount --bind \"$1\" \"$1\" && cd \"$1\" && pivot_root . old && exec /bin/contained";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "sh", "-c", enter, "sh"])
        .arg(directory);
    command
}

/// The process of /bin/contained below `unshare`.
fn contained(parent: u32) -> u32 {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(children).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_container_has_names_from_its_own_files() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut target = Target::run_by(&mut container(directory.path()));
    let address = target.ask("cold");
    let pid = contained(target.pid());
    let mut symbols = symbols();
    let place = symbols.name(AddressOwner::Process(pid), address, None);
    assert_eq!(place.function.as_deref(), Some("cold"));
    assert_eq!(&*place.module, "/bin/contained");
    // The name of a JIT map has the process's id in its own namespace.
    let compiled = target.ask("jit");
    let place = symbols.name(AddressOwner::Process(pid), compiled + 0x30, None);
    assert_eq!(place.function.as_deref(), Some("Main::run(int) [tier 2]"));
    assert_eq!(&*place.module, "[jit]");
    assert!(directory.path().join("tmp/perf-1.map").exists());
    assert_eq!(function(&mut symbols, pid, compiled + 0x40), None);
    target.end();
}

#[test]
fn a_container_that_ended_has_names() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut symbols = following();
    let mut target = Target::run_by(&mut container(directory.path()));
    let address = target.ask("hot");
    let pid = contained(target.pid());
    symbols.catch_up();
    target.end();
    directory.close().unwrap();
    symbols.catch_up();
    let place = symbols.name(AddressOwner::Process(pid), address, None);
    assert_eq!(place.function, Some(Arc::from(HOT)));
    assert_eq!(&*place.module, "/bin/contained");
}

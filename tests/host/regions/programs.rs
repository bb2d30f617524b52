//! C programs with markers, compiled for the tests.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;
use test_harness::hierarchy;

/// The source of marks.c.
const MARKS: &str = include_str!("marks.c");

/// A compiled program in a temporary directory.
pub(super) struct CompiledProgram {
    directory: tempfile::TempDir,
}

/// Compiles marks.c. None where there is no compiler.
pub(super) fn compile_marks(options: &[&str]) -> Option<CompiledProgram> {
    CompiledProgram::build(MARKS, options)
}

impl CompiledProgram {
    /// Compiles C source. None where there is no compiler.
    pub(super) fn build(source: &str, options: &[&str]) -> Option<Self> {
        let built = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        fs::write(built.path("source.c"), source).unwrap();
        let source = built.path("source.c");
        let linked = compile(&[source.as_path()], &built.program(), options);
        linked.then_some(built)
    }

    pub(super) fn program(&self) -> PathBuf {
        self.path("program")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A container that runs a compiled program, which waits for its input.
pub(super) struct Container {
    child: Child,
    bundle: tempfile::TempDir,
    /// The cgroup path in the hierarchy.
    pub(super) cgroup: String,
}

impl Container {
    /// Starts the container with runc, with new pid and mount namespaces.
    pub(super) fn start(built: &CompiledProgram) -> Self {
        let bundle = tempfile::tempdir().unwrap();
        fs::create_dir_all(bundle.path().join("rootfs/proc")).unwrap();
        fs::copy(built.program(), bundle.path().join("rootfs/program")).unwrap();
        let id = format!("{:064x}", u128::from(std::process::id()) << 64 | 0x5eed);
        let cgroup = format!("/pmuscope-test-regions/{id}");
        let spec = json!({
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": true},
            "process": {
                "cwd": "/",
                "user": {"uid": 0, "gid": 0},
                "args": ["/program", "nested"],
            },
            "linux": {
                "cgroupsPath": cgroup,
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}],
            },
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        });
        fs::write(bundle.path().join("config.json"), spec.to_string()).unwrap();
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(bundle.path().join("state"));
        runc.arg("run").arg("--bundle").arg(bundle.path()).arg(&id);
        let mut child = runc
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The program prints a line when it has started.
        let output = child.stdout.as_mut().unwrap();
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        Self {
            child,
            bundle,
            cgroup,
        }
    }

    /// The pid of the program on the host.
    pub(super) fn pid(&self) -> u32 {
        let directory = hierarchy().directory(&self.cgroup).unwrap();
        let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap();
        list.trim().parse().unwrap()
    }

    /// Closes the input, waits for the exit, and returns the output.
    pub(super) fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        // `start` has read the first byte.
        let mut output = "0".to_owned();
        self.child
            .stdout
            .as_mut()
            .unwrap()
            .read_to_string(&mut output)
            .unwrap();
        assert!(self.child.wait().unwrap().success());
        drop(self.bundle);
        let above = hierarchy().directory("/pmuscope-test-regions").unwrap();
        // The directory may contain cgroups of other tests.
        let _ = fs::remove_dir(above);
        output
    }
}

/// Compiles marks.c to a stripped program that calls the markers in a stripped library.
pub(super) fn with_library(built: &CompiledProgram) -> Option<PathBuf> {
    let source = built.path("library.c");
    fs::write(&source, "#include \"pmuscope.h\"\n").unwrap();
    let library = built.path("libmarks.so");
    if !compile(&[&source], &library, &["-O2", "-shared", "-fPIC", "-s"]) {
        return None;
    }
    // The program only declares the functions of the library.
    let source = built.path("callers.c");
    let declared = "void pmuscope_tag_addr(const char *, const void *, const void *);\n\
                    void pmuscope_start(const char *);\nvoid pmuscope_stop(void);\n";
    let text = MARKS.replace("#include \"pmuscope.h\"\n", declared);
    fs::write(&source, text).unwrap();
    let program = built.path("callers");
    let linked = compile(
        &[&source, &library],
        &program,
        &["-O2", "-s", "-Wl,-rpath,$ORIGIN"],
    );
    linked.then_some(program)
}

/// A shared object with `copies` functions of the name `pmuscope_stop`.
pub(super) fn with_copies(built: &CompiledProgram, copies: usize) -> Option<PathBuf> {
    let write_source = |at: usize| {
        let source = built.path(&format!("copy{at}.c"));
        let text = format!(
            "static void pmuscope_stop(void) {{}}\nvoid call{at}(void) {{ pmuscope_stop(); }}\n"
        );
        fs::write(&source, text).unwrap();
        source
    };
    let sources: Vec<PathBuf> = (0..copies).map(write_source).collect();
    let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
    let program = built.path("copies.so");
    compile(&sources, &program, &["-O0", "-shared", "-fPIC"]).then_some(program)
}

fn compile(sources: &[&Path], into: &Path, options: &[&str]) -> bool {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../probe-common/include");
    let mut compiler = Command::new("cc");
    compiler
        .args(options)
        .args(["-Wall", "-Wextra", "-Werror", "-pthread"]);
    compiler
        .arg("-I")
        .arg(include)
        .arg("-o")
        .arg(into)
        .args(sources);
    match compiler.status() {
        Ok(status) => {
            assert!(status.success(), "{compiler:?}");
            true
        }
        Err(error) => {
            println!("skipped: no C compiler ({error})");
            false
        }
    }
}

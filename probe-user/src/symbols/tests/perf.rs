//! perf names the same addresses the same.

use std::process::Command;

use super::target::{Target, compile, following, is_root};
use crate::symbols::Space;

#[test]
fn perf_has_the_same_names() {
    if !is_root() {
        return;
    }
    if Command::new("perf").arg("--version").output().is_err() {
        println!("skipped: perf is not installed (apt-get install linux-perf)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let program = compile(directory.path(), "burns", &["-Wl,--build-id", "-O1"]);
    let mut symbols = following();
    let mut command = Command::new("perf");
    // User mode alone: perf 6.1 aborts at this machine's kernel (util/build-id.c:1010).
    let sampling = "record -q -B -N -e cpu-clock:u -c 250000 -k mono -o";
    command.args(sampling.split(' '));
    let mut target = Target::of(command.arg(&data).arg("--").arg(&program));
    target.ask("burn");
    target.end();
    symbols.catch_up();
    let script = Command::new("perf")
        .args(["script", "-F", "pid,time,ip,sym,dso", "--ns", "-i"])
        .arg(&data)
        .output()
        .unwrap();
    let script = String::from_utf8(script.stdout).unwrap();
    let mut of_program = 0;
    for line in script.lines() {
        let mut words = line.split_whitespace();
        let pid: u32 = words.next().unwrap().parse().unwrap();
        let time = words.next().unwrap().trim_end_matches(':').replace('.', "");
        let address = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let rest = words.collect::<Vec<_>>().join(" ");
        let (name, module) = rest.rsplit_once(" (").unwrap();
        let module = module.trim_end_matches(')');
        let place = symbols.name(Space::Process(pid), address, time.parse().ok());
        let ours = place.function.as_deref().unwrap_or("[unknown]");
        // perf leaves arguments out, and makes names for stubs of the linker.
        let plain = ours.split('(').next() == Some(name);
        assert!(plain || name.ends_with("@plt"), "{line}: {place:?}");
        assert_eq!(&*place.module, module, "{line}");
        of_program += u32::from(name == "load::hot");
    }
    assert!(of_program > 50, "{script}");
}

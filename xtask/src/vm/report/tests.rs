//! Tests of how console output becomes results.

use super::*;

fn read(console: &str, show: Show, death: Option<Death>) -> (Totals, Vec<String>) {
    let mut totals = Totals::default();
    let mut report = Report::new("guest", &mut totals, true, show);
    let mut shown: Vec<_> = console.lines().flat_map(|l| report.line(l)).collect();
    shown.extend(death.into_iter().flat_map(|death| report.close(&death)));
    (totals, shown)
}

fn test(name: &str, output: &str, status: u8) -> String {
    let words = if status == 0 {
        "ok. 1 passed; 0"
    } else {
        "FAILED. 0 passed; 1"
    };
    format!(
        "@@ begin vm {name}\n\nrunning 1 test\ntest {name} ... {output}\n\n\
         test result: {words} failed; 0 ignored\n@@ exit {status}\n"
    )
}

fn console() -> String {
    let plan = "EFI stub: Booting\n@@ plan vm a::x\n@@ plan vm a::y\n@@ plan vm b\n";
    let tests = [
        test("a::x", "0.2% off\nok\r\nkernel: no longer affine", 0),
        test("a::y", "skipped: no PMU\nok", 0),
        test("b", "\nthread 'b' panicked\nFAILED\nkernel: splat", 101),
    ];
    format!("{plan}{}@@ end\n", tests.concat())
}

#[test]
fn results_are_counted_and_reasons_listed_at_the_end() {
    let (totals, shown) = read(&console(), Show::All, Some(Death::Quit));
    assert_eq!(
        totals.to_string(),
        "failed: [guest] b\n    thread 'b' panicked\nfailed in guest: b\n\
         1 passed, 1 failed, 1 skipped"
    );
    assert!(shown.iter().any(|line| line == "    skipped: no PMU"));
    assert!(shown.iter().any(|line| line == "    0.2% off"));
    assert!(shown.iter().any(|line| line.starts_with("FAILED  b")));
}

#[test]
fn only_the_output_of_failed_and_skipped_tests_is_shown() {
    let (_, shown) = read(&console(), Show::Failures, Some(Death::Quit));
    let shown: Vec<_> = shown
        .iter()
        .map(|line| line.split(" (").next().unwrap())
        .collect();
    let expected = [
        "    kernel: no longer affine",
        "ok      a::x",
        "    skipped: no PMU",
        "skipped a::y",
        "    thread 'b' panicked",
        "    kernel: splat",
        "FAILED  b",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_fault_in_the_kernels_log_fails_the_running_test() {
    let console = console().replace("no longer affine", "WARNING: at x");
    let (totals, shown) = read(&console, Show::Failures, None);
    assert_eq!(
        totals.to_string(),
        "failed: [guest] a::x\n    kernel: WARNING: at x\nfailed: [guest] b\n    \
         thread 'b' panicked\nfailed in guest: a::x, b\n0 passed, 2 failed, 1 skipped"
    );
    assert_eq!(shown[0], "    0.2% off");
    assert!(shown[2].contains("a fault in the kernel's log"));
}

#[test]
fn a_fault_outside_of_the_tests_fails_the_guest() {
    let console = console().replace("@@ end", "kernel: BUG: x\n@@ end");
    let (totals, shown) = read(&console, Show::Failures, None);
    assert_eq!((totals.passed, totals.failed.len()), (1, 2));
    assert_eq!(totals.failed[1].reason, ["    kernel: BUG: x"]);
    assert!(shown.contains(&"    kernel: BUG: x".to_owned()));
}

#[test]
fn recorded_output_of_a_test_is_kept_and_not_shown() {
    let tests = test("a", "recording r {1}\r\nsaid\nrecording r {2}\nok", 0);
    let mut totals = Totals::default();
    let mut report = Report::new("guest", &mut totals, true, Show::All);
    let console = format!("@@ plan vm a\n{tests}@@ end\n");
    let shown: Vec<_> = console.lines().flat_map(|l| report.line(l)).collect();
    assert_eq!(shown[0], "    said");
    assert!(
        shown.len() == 2 && shown[1].starts_with("ok      a"),
        "{shown:?}"
    );
    assert_eq!(report.recordings["r"], "{1}\n{2}\n");
}

#[test]
fn exit_0_without_a_passed_test_is_no_pass() {
    let console = "@@ plan vm a\n@@ begin vm a\n@@ exit 0\n@@ end\n";
    let (totals, _) = read(console, Show::All, None);
    assert_eq!(
        totals.to_string(),
        "failed: [guest] a\nfailed in guest: a\n0 passed, 1 failed"
    );
}

#[test]
fn a_hang_names_the_test_and_counts_the_rest() {
    let console = "@@ plan vm a\n@@ plan vm b\n@@ begin vm a\ntest a ... \nstep 1\n";
    let death = Some(Death::Silent(Duration::from_secs(7)));
    let (totals, shown) = read(console, Show::Failures, death);
    assert_eq!((totals.passed, totals.failed.len()), (0, 2));
    assert_eq!(totals.failed[0].reason, ["    step 1"]);
    assert!(
        shown
            .iter()
            .any(|line| line.contains("hung while a ran: ended after 7 s"))
    );
    assert!(shown.iter().any(|line| line.contains("b (not run)")));
}

//! Options that this machine cannot satisfy are refused before anything runs.

use super::*;

#[test]
fn a_quota_of_cpu_time_bounds_the_threads() {
    assert_eq!(max_threads(8, None), 8);
    assert_eq!(max_threads(8, Some(2.5)), 2);
    assert_eq!(max_threads(8, Some(0.1)), 1);
    assert_eq!(max_threads(2, Some(1e9)), 2);
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_option() {
    let machine = Machine::this();
    let measure = |threads: &[usize], sizes: &[u64]| {
        let options = RooflineOptions {
            threads: threads.into(),
            sizes: sizes.into(),
            runs: 1,
        };
        measure(&machine, &options).unwrap_err().to_string()
    };
    let error = measure(&[100_000], &[]);
    assert!(
        error.starts_with("--threads 100000: this process has "),
        "{error}"
    );
    let error = measure(&[], &[u64::MAX]);
    assert!(
        error.starts_with("--sizes 18446744073709551615: of the memory"),
        "{error}"
    );
}

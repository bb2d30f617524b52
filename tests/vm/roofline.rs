//! `roofline` runs on both architectures, as the static binary: its kernels are assembly.

use std::{env, process::Command};

use serde_json::Value;

#[test]
fn roofline_measures_with_the_vectors_of_the_machine() {
    let binary = env::var_os("PMUSCOPE_BIN").expect("the init names the binary");
    let tiny = [
        "roofline", "--sizes", "192K", "--runs", "1", "--format", "json",
    ];
    let output = Command::new(binary).args(tiny).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let vectors = json["vectors"].as_str().unwrap();
    if cfg!(target_arch = "aarch64") {
        assert_eq!(vectors, "neon");
    }
    let bandwidths = json["bandwidths"].as_array().unwrap();
    for bandwidth in bandwidths {
        assert!(
            bandwidth["bytes_per_second"]["best"].as_f64().unwrap() > 0.0,
            "{bandwidth}"
        );
    }
    assert!(!bandwidths.is_empty());
}

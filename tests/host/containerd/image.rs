//! An image made without tools, with busybox as its only file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

pub(super) const IMAGE: &str = "localhost/pmuscope-test:1";

/// Writes an image with only busybox in the format of `docker save`.
pub(super) fn write(directory: &Path) -> PathBuf {
    let root = directory.join("image");
    fs::create_dir_all(root.join("layer/bin")).unwrap();
    let busybox = Command::new("sh")
        .args(["-c", "command -v busybox"])
        .output();
    let busybox = String::from_utf8(busybox.unwrap().stdout).unwrap();
    fs::copy(busybox.trim(), root.join("layer/bin/busybox")).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("tar", &["-cf", "layer.tar", "-C", "layer", "bin"]);
    let sum = run("sha256sum", &["layer.tar"]);
    let sum = sum.split(' ').next().unwrap();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        // The pause container also runs this image.
        "config": {"Entrypoint": ["/bin/busybox", "sleep", "1000000"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{sum}")]},
    });
    let manifest = json!([
        {"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]},
    ]);
    fs::write(root.join("config.json"), config.to_string()).unwrap();
    fs::write(root.join("manifest.json"), manifest.to_string()).unwrap();
    run(
        "tar",
        &[
            "-cf",
            "image.tar",
            "manifest.json",
            "config.json",
            "layer.tar",
        ],
    );
    root.join("image.tar")
}

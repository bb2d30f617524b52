//! The image: an OCI image layout in a tar file (OCI image specification 1.1, "Image Layout"), with
//! one index of both architectures. Each architecture has one layer with one file, the
//! static binary.

use std::{collections::BTreeMap, io::Read as _};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    VERSION,
    pack::{self, Entry, hex},
};

/// The image name, the same as in the chart's values.
const NAME: &str = "localhost/pmuscope";

// Media types of the OCI image specification.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub(super) fn write(binaries: &[(&str, Vec<u8>)], modified: u64) -> Result<Vec<u8>> {
    let mut blobs = Blobs::default();
    let mut manifests = Vec::new();
    for (architecture, binary) in binaries {
        let file = Entry::file("pmuscope", 0o755, binary.clone());
        let layer = pack::tar(&[file], modified)?;
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": ["/pmuscope"],
                "Cmd": ["agent"],
                "Labels": labels(),
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
            "history": [{"created_by": "cargo xtask dist"}],
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blobs.add(CONFIG, config.to_string().into_bytes()),
            "layers": [blobs.add(LAYER, pack::gzip(&layer)?)],
            "annotations": labels(),
        });
        let mut manifest = blobs.add(MANIFEST, manifest.to_string().into_bytes());
        manifest["platform"] = json!({"architecture": architecture, "os": "linux"});
        manifests.push(manifest);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
        "annotations": labels(),
    });
    let mut index = blobs.add(INDEX, index.to_string().into_bytes());
    index["annotations"] = json!({
        "org.opencontainers.image.ref.name": VERSION,
        // containerd takes the whole name from here.
        "io.containerd.image.name": format!("{NAME}:{VERSION}"),
    });
    let top = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [index]});

    let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    let mut entries = vec![
        Entry::file("oci-layout", 0o644, layout),
        Entry::file("index.json", 0o644, top.to_string()),
        Entry::directory("blobs"),
        Entry::directory("blobs/sha256"),
    ];
    entries.extend(blobs.0.into_iter().map(|(digest, bytes)| {
        Entry::file(format!("blobs/{}", digest.replace(':', "/")), 0o644, bytes)
    }));
    pack::tar(&entries, modified)
}

fn labels() -> Value {
    json!({
        "org.opencontainers.image.title": "pmuscope",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
    })
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// Contents by digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds a blob; returns its descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        self.0.insert(digest, bytes);
        descriptor
    }
}

/// Checks that every blob that the image names is in it, and that its layers hold the binaries.
pub(super) fn check(image: &[u8], binaries: &[(&str, Vec<u8>)]) -> Result<()> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(image).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(path, bytes);
    }
    let blob = |descriptor: &Value| -> Result<&Vec<u8>> {
        let named = descriptor["digest"].as_str().context("no digest")?;
        let path = format!("blobs/{}", named.replace(':', "/"));
        let bytes = files.get(&path).with_context(|| format!("no {path}"))?;
        ensure!(digest(bytes) == named, "{path} has another digest");
        ensure!(descriptor["size"] == bytes.len(), "{path} has another size");
        Ok(bytes)
    };
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).context("is no JSON");
    let top = parse(files.get("index.json").context("no index.json")?)?;
    let index = parse(blob(&top["manifests"][0])?)?;
    for (at, (architecture, binary)) in binaries.iter().enumerate() {
        let descriptor = &index["manifests"][at];
        ensure!(
            descriptor["platform"]["architecture"] == *architecture,
            "no manifest of {architecture}"
        );
        let manifest = parse(blob(descriptor)?)?;
        let config = parse(blob(&manifest["config"])?)?;
        let mut layer = Vec::new();
        GzDecoder::new(&blob(&manifest["layers"][0])?[..]).read_to_end(&mut layer)?;
        ensure!(
            config["rootfs"]["diff_ids"][0] == digest(&layer),
            "the layer of {architecture} has another digest"
        );
        let mut layer = tar::Archive::new(&layer[..]);
        let mut entry = layer.entries()?.next().context("an empty layer")??;
        let mut found = Vec::new();
        entry.read_to_end(&mut found)?;
        let mode = entry.header().mode()?;
        ensure!(
            mode == 0o755 && found == *binary,
            "not the binary of {architecture}"
        );
    }
    Ok(())
}

//! The files in which Docker, podman and CRI-O describe their containers. Reading them needs no
//! running daemon.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::source::{Fault, FoundContainer, LARGEST, Reply, SourceAnswer, WantedIds};

/// Docker's `config.v2.json` of a container.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerState {
    /// The name, with a leading slash.
    name: String,
    #[serde(default)]
    config: DockerConfig,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DockerConfig {
    image: Option<String>,
    labels: Option<HashMap<String, String>>,
}

/// Reads `/var/lib/docker/containers/ID/config.v2.json`.
pub(super) fn docker(directory: &Path, wanted: &WantedIds) -> Reply {
    let mut reply = Reply::default();
    if let Err(error) = fs::metadata(directory) {
        return unreadable_directory(directory, &error);
    }
    for id in wanted.open_containers() {
        let state = match read_json::<DockerState>(&directory.join(id).join("config.v2.json")) {
            Ok(Some(state)) => state,
            Ok(None) => continue,
            Err(fault) => {
                reply.fault = Some(fault);
                continue;
            }
        };
        reply.answer.answers += 1;
        reply.answer.add(FoundContainer {
            id: id.to_owned(),
            name: state.name,
            pod: None,
            image: state.config.image,
            labels: state.config.labels.unwrap_or_default(),
            runtime: "docker".into(),
        });
    }
    reply
}

/// A container in the common storage of podman and CRI-O.
#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    /// A [`StoredMetadata`] as JSON text.
    #[serde(default)]
    metadata: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct StoredMetadata {
    image_name: Option<String>,
    /// The container's name in its pod; only CRI-O writes it.
    metadata_name: Option<String>,
}

/// Reads `/var/lib/containers/storage/DRIVER-containers/containers.json`, and
/// `volatile-containers.json` with the containers that do not survive a boot.
pub(super) fn podman(storage: &Path, wanted: &WantedIds) -> Reply {
    let mut reply = Reply::default();
    let entries = match fs::read_dir(storage) {
        Ok(entries) => entries,
        Err(error) => return unreadable_directory(storage, &error),
    };
    let runtimes = [Arc::from("podman"), Arc::from("cri-o")];
    let directories = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let is_driver_directory = name.to_str()?.ends_with("-containers");
        is_driver_directory.then(|| entry.path())
    });
    let files = directories.flat_map(|directory| {
        ["containers.json", "volatile-containers.json"].map(|name| directory.join(name))
    });
    for file in files.collect::<Vec<PathBuf>>() {
        match read_json::<Vec<StoredContainer>>(&file) {
            Ok(Some(stored)) => {
                reply.answer.answers += 1;
                let stored = stored.into_iter().filter(|it| wanted.contains(&it.id));
                stored.for_each(|stored| add_stored(&mut reply.answer, stored, &runtimes));
            }
            Ok(None) => {}
            Err(fault) => reply.fault = Some(fault),
        }
    }
    reply
}

fn add_stored(answer: &mut SourceAnswer, stored: StoredContainer, [podman, crio]: &[Arc<str>; 2]) {
    let metadata = serde_json::from_str::<StoredMetadata>(&stored.metadata).unwrap_or_default();
    let runtime = match metadata.metadata_name {
        Some(_) => crio,
        None => podman,
    };
    answer.add(FoundContainer {
        id: stored.id,
        name: stored.names.into_iter().next().unwrap_or_default(),
        pod: None,
        image: metadata.image_name.filter(|name| !name.is_empty()),
        labels: HashMap::new(),
        runtime: Arc::clone(runtime),
    });
}

/// The reply of a source whose directory cannot be read.
fn unreadable_directory(directory: &Path, error: &io::Error) -> Reply {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Reply::absent(),
        _ => Reply::failed(file_fault(directory, error)),
    }
}

/// The content of a JSON file; None if it does not exist.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_fault(path, error)),
    };
    let mut text = Vec::new();
    let limit = LARGEST as u64 + 1;
    let read = file.take(limit).read_to_end(&mut text);
    read.map_err(|error| file_fault(path, error))?;
    if text.len() > LARGEST {
        return Err(file_fault(
            path,
            format!("it is larger than {LARGEST} bytes"),
        ));
    }
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| file_fault(path, error))
}

/// Opens a regular file. Fails for other kinds of files, which could block.
fn open(path: &Path) -> io::Result<File> {
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

fn file_fault(path: &Path, error: impl std::fmt::Display) -> Fault {
    Fault::Failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;

//! Finds and reads the files of one CPU model.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{mapfile, processor::Processor};
use crate::catalogue::error::{CatalogueError, Problem};

/// Name of the table of CPU models.
const MAPFILE: &str = "mapfile.csv";

/// Directories that may have the table, relative to the given one, as in the kernel's sources.
const TABLE_DIRECTORIES: [&str; 5] = ["", "x86", "arm64", "arch/x86", "arch/arm64"];

/// Largest size of a file in bytes; the kernel's have up to 4 MB.
const MAX_SIZE: u64 = 64 << 20;

/// Maximum number of files of a model.
const MAX_FILES: usize = 1_000;

/// A JSON object of a file: an event or a metric.
pub(super) type Entry = Map<String, Value>;

/// The files of one CPU model.
pub(super) struct Directory {
    /// The model's directory, for messages and headings.
    pub(super) path: PathBuf,
    /// Events and metrics, with the name of the file.
    pub(super) entries: Vec<(String, Entry)>,
    /// Entries for the whole architecture, to which `ArchStdEvent` refers.
    pub(super) standard: Vec<Entry>,
}

pub(super) fn error(path: &Path, problem: Problem) -> CatalogueError {
    CatalogueError {
        file: path.display().to_string().into(),
        line: None,
        problem,
    }
}

/// Reads the files of the CPU's model, or of the model whose directory is given.
///
/// # Errors
/// No row of mapfile.csv is for the CPU, or a file cannot be read.
pub(super) fn read(path: &Path, processor: &Processor) -> Result<Directory, CatalogueError> {
    let mut bases = TABLE_DIRECTORIES
        .iter()
        .map(|below| path.join(below))
        .filter(|base| base.join(MAPFILE).is_file())
        .peekable();
    let (model, files) = if bases.peek().is_some() {
        files_by_table(path, bases, processor)?
    } else {
        (path.to_owned(), json_below(path)?)
    };
    let mut entries = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&model).unwrap_or(file);
        let name = name.display().to_string();
        let read = entries_of(file)?.into_iter();
        entries.extend(read.map(|entry| (name.clone(), entry)));
    }
    let mut ancestors = model.ancestors().skip(1).take(3);
    let base = ancestors.find(|base| base.join(MAPFILE).is_file());
    let mut standard = Vec::new();
    for file in base.map(json_in).transpose()?.unwrap_or_default() {
        standard.extend(entries_of(&file)?);
    }
    Ok(Directory {
        path: model,
        entries,
        standard,
    })
}

/// The model's directory, and the files that a table names for the CPU. `bases` are the directories
/// with a table.
fn files_by_table(
    path: &Path,
    bases: impl Iterator<Item = PathBuf>,
    processor: &Processor,
) -> Result<(PathBuf, Vec<PathBuf>), CatalogueError> {
    for base in bases {
        let table = base.join(MAPFILE);
        let text = String::from_utf8_lossy(&read_limited(&table)?).into_owned();
        let named = mapfile::paths(&text, processor).into_iter();
        // A table of the whole kernel also names models whose files are not here.
        let mut existing: Vec<PathBuf> = named
            .map(|it| base.join(it))
            .filter(|it| it.exists())
            .collect();
        let Some(first) = existing.first().cloned() else {
            continue;
        };
        if first.is_dir() {
            return match &existing[..] {
                [one] => Ok((one.clone(), json_below(one)?)),
                _ => {
                    let names: Vec<String> =
                        existing.iter().map(|it| it.display().to_string()).collect();
                    Err(error(&table, Problem::SeveralModels(names.join(", "))))
                }
            };
        }
        existing.retain(|file| file.is_file());
        let model = first.parent().and_then(Path::parent).unwrap_or(&base);
        return Ok((model.to_owned(), existing));
    }
    Err(error(path, Problem::NoModel(processor.to_string())))
}

/// The JSON files in a directory, sorted by name.
fn json_in(path: &Path) -> Result<Vec<PathBuf>, CatalogueError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(path)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut files = read().map_err(|problem| error(path, Problem::Read(problem)))?;
    files.retain(|file| file.extension().is_some_and(|it| it == "json") && file.is_file());
    files.sort();
    if files.len() > MAX_FILES {
        return Err(error(path, Problem::TooManyFiles(files.len(), MAX_FILES)));
    }
    Ok(files)
}

/// The JSON files in a directory, and in its directories `events` and `metrics` (intel/perfmon).
fn json_below(path: &Path) -> Result<Vec<PathBuf>, CatalogueError> {
    let mut files = json_in(path)?;
    for below in ["events", "metrics"] {
        let below = path.join(below);
        if below.is_dir() {
            files.extend(json_in(&below)?);
        }
    }
    match files.is_empty() {
        true => Err(error(
            path,
            Problem::Nothing("JSON file of events or metrics"),
        )),
        false => Ok(files),
    }
}

/// The content of a file of at most [`MAX_SIZE`] bytes.
fn read_limited(path: &Path) -> Result<Vec<u8>, CatalogueError> {
    let read = || -> io::Result<Vec<u8>> {
        let size = fs::metadata(path)?.len();
        if size > MAX_SIZE {
            let text = format!("it has {size} bytes, more than {MAX_SIZE}");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        fs::read(path)
    };
    read().map_err(|problem| error(path, Problem::Read(problem)))
}

/// The objects of a file. The file has a list of them, or an object with a header and such lists
/// (intel/perfmon).
fn entries_of(path: &Path) -> Result<Vec<Entry>, CatalogueError> {
    let json: Value = serde_json::from_slice(&read_limited(path)?)
        .map_err(|problem| error(path, Problem::Json(problem)))?;
    let lists = match json {
        Value::Object(mut object) => ["Events", "Metrics"]
            .iter()
            .filter_map(|list| object.remove(*list))
            .collect(),
        list => vec![list],
    };
    let entries = lists.into_iter().flat_map(|list| match list {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    });
    Ok(entries
        .filter_map(|entry| match entry {
            Value::Object(entry) => Some(entry),
            _ => None,
        })
        .collect())
}

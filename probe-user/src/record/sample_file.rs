//! The samples as a Parquet file. A file without its end cannot be read, so a recording is written
//! in parts of ten seconds, each a whole file; at its end they become one.

use std::{
    fs::{self, File},
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Mapping, Sample, Sink,
    columns::COLUMNS,
    merge::merge,
    rows::{self, Rows, Writer},
};

/// The longest time that a part is open. A round ends it, and those are 100 ms apart.
const PART: Duration = Duration::from_millis(9_800);

/// What is put behind the file's name for the directory of its parts.
const PARTS: &str = ".parts";

/// The file of `--output`.
pub struct SampleFile {
    path: PathBuf,
    /// Open from the start, so that it is known that it can be written.
    file: File,
    directory: PathBuf,
    about: Vec<(String, String)>,
    /// One for each thread that decodes.
    threads: Vec<Mutex<Thread>>,
    state: Mutex<State>,
}

/// What one thread writes.
struct Thread {
    number: usize,
    rows: Rows,
    open: Option<(PathBuf, Writer)>,
}

/// What all threads share.
struct State {
    /// When the parts that are open were begun.
    since: Instant,
    /// The number of these parts.
    number: u32,
    /// Whole parts, in the order of their numbers.
    whole: Vec<PathBuf>,
    mappings: Vec<Arc<Mapping>>,
    /// How many of them are in whole parts.
    written: usize,
}

impl SampleFile {
    /// Begins the file, written by this many threads, with what is known of the recording: names
    /// and values.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, or where parts of an earlier recording are in the way.
    pub fn begin(
        path: &Path,
        threads: NonZeroUsize,
        mut about: Vec<(String, String)>,
    ) -> io::Result<Self> {
        let mut directory = path.as_os_str().to_owned();
        directory.push(PARTS);
        let directory = PathBuf::from(directory);
        fs::create_dir(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(
                error.kind(),
                format!(
                    "{} has the samples of a recording that did not come to its end, or of one \
                     that is running: move it away, or name another file",
                    directory.display()
                ),
            ),
            _ => at(&directory, &error),
        })?;
        let file = File::create(path).map_err(|error| {
            // It is empty.
            let _ = fs::remove_dir(&directory);
            at(path, &error)
        })?;
        let units: serde_json::Map<_, _> = COLUMNS
            .iter()
            .map(|column| (column.name.to_owned(), column.unit.into()))
            .collect();
        about.push((
            "units".to_owned(),
            serde_json::Value::Object(units).to_string(),
        ));
        let threads = (0..threads.get()).map(|number| {
            Mutex::new(Thread {
                number,
                rows: Rows::new(),
                open: None,
            })
        });
        Ok(Self {
            path: path.to_owned(),
            file,
            directory,
            about,
            threads: threads.collect(),
            state: Mutex::new(State {
                since: Instant::now(),
                number: 0,
                whole: Vec::new(),
                mappings: Vec::new(),
                written: 0,
            }),
        })
    }

    /// Ends it, with what is known of the recording by now.
    ///
    /// # Errors
    ///
    /// Where it cannot be written: then its parts are still there.
    pub fn finish(self, about: &[(String, String)]) -> io::Result<()> {
        // A part that cannot be ended is not among the whole ones; the others become the file.
        let ended = self.end_parts();
        let Self {
            path,
            file,
            directory,
            about: mut known,
            state,
            ..
        } = self;
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(about);
        known.push(mappings(&state.mappings));
        merge(file, &state.whole, &known).map_err(|error| {
            let left = directory.display();
            let message = format!("{}: {error}; its parts are in {left}", path.display());
            io::Error::new(error.kind(), message)
        })?;
        ended?;
        fs::remove_dir_all(&directory).map_err(|error| at(&directory, &error))
    }

    /// Removes it: nothing was recorded.
    ///
    /// # Errors
    ///
    /// Where it cannot be removed.
    pub fn discard(self) -> io::Result<()> {
        fs::remove_dir_all(&self.directory).map_err(|error| at(&self.directory, &error))?;
        fs::remove_file(&self.path).map_err(|error| at(&self.path, &error))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&self, number: usize) -> MutexGuard<'_, Thread> {
        let thread = &self.threads[number % self.threads.len()];
        thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the open parts whole. The first error is given, and ends none of the others.
    ///
    /// # Errors
    ///
    /// Where one of them cannot be written.
    pub fn end_parts(&self) -> io::Result<()> {
        let mut state = self.state();
        let mut about = self.about.clone();
        about.push(mappings(&state.mappings[state.written..]));
        state.written = state.mappings.len();
        let mut result = Ok(());
        for number in 0..self.threads.len() {
            match self.thread(number).end(&about) {
                Ok(part) => state.whole.extend(part),
                Err(error) => result = result.and(Err(error)),
            }
        }
        state.since = Instant::now();
        state.number += 1;
        result
    }
}

impl Thread {
    /// The open part; a new one where there is none.
    fn part(&mut self, directory: &Path, number: u32) -> io::Result<(&mut Rows, &mut Writer)> {
        let Self { rows, open, .. } = self;
        let (_, writer) = match open {
            Some(open) => open,
            None => {
                // Those who read the whole directory pass over names with a point before them.
                let name = format!(".{number:06}-{:02}.open", self.number);
                let path = directory.join(name);
                let writer = File::create_new(&path).and_then(rows::begin);
                let writer = writer.map_err(|error| at(&path, &error))?;
                open.insert((path, writer))
            }
        };
        Ok((rows, writer))
    }

    /// Makes the open part whole, and says where it is then.
    fn end(&mut self, about: &[(String, String)]) -> io::Result<Option<PathBuf>> {
        let Some((path, mut writer)) = self.open.take() else {
            return Ok(None);
        };
        self.rows.write(&mut writer)?;
        rows::end(writer, about)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{}.parquet", name.trim_start_matches('.'));
        let whole = path.with_file_name(name);
        fs::rename(&path, &whole)?;
        Ok(Some(whole))
    }
}

impl Sink for SampleFile {
    fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
        // Before the thread's: the end of a part takes both in this order.
        let number = self.state().number;
        let mut thread = self.thread(thread);
        let (rows, writer) = thread.part(&self.directory, number)?;
        rows.add(samples, writer)
    }

    fn mapping(&self, mapping: &Arc<Mapping>) {
        self.state().mappings.push(Arc::clone(mapping));
    }

    fn round(&self) -> io::Result<()> {
        if self.state().since.elapsed() < PART {
            return Ok(());
        }
        self.end_parts()
    }
}

/// The metadata that names addresses.
fn mappings(mappings: &[Arc<Mapping>]) -> (String, String) {
    let mappings: Vec<&Mapping> = mappings.iter().map(|mapping| &**mapping).collect();
    let text = serde_json::to_string(&mappings).unwrap_or_default();
    ("mappings".to_owned(), text)
}

/// An error with the file that it is about.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

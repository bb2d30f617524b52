//! Saves totals by a child process, which waits for their file system where counting must not.
//!
//! A thread could not be left behind: the kernel keeps a process as long as one of its threads
//! waits for a frozen file system, with all that it holds.

use std::{
    io::{self, BufRead, BufReader, Read as _, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    thread,
    time::Duration,
};

use rustix::process::getppid;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use super::rights;
use crate::{state::Encoded, sys::own_files::OwnDirectory};

/// How long a save is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The answer to a save that was made.
const SAVED: &str = "saved";

/// Saves into a directory.
pub(super) struct Saver {
    directory: PathBuf,
    command: fn(&Path) -> Command,
    child: Option<Helper>,
}

/// A child that saves, behind a thread that talks to it.
struct Helper {
    saves: SyncSender<Vec<Encoded>>,
    answers: Receiver<io::Result<()>>,
    /// An answer is due.
    saving: bool,
}

impl Saver {
    /// `command` starts [`save_for_parent`].
    pub(super) fn new(directory: &Path, command: fn(&Path) -> Command) -> Self {
        Self {
            directory: directory.to_owned(),
            command,
            child: None,
        }
    }

    /// Saves these files, in their order.
    ///
    /// # Errors
    ///
    /// Why they were not saved. Where the file system does not answer, these and those of later
    /// calls are not saved until it does.
    pub(super) fn save(&mut self, files: Vec<Encoded>) -> io::Result<()> {
        let mut helper = match self.child.take() {
            Some(helper) => helper,
            None => Helper::start((self.command)(&self.directory))?,
        };
        if helper.saving {
            match helper.answers.try_recv() {
                // Of an earlier save.
                Ok(_) => {}
                Err(TryRecvError::Empty) => {
                    self.child = Some(helper);
                    return Err(late());
                }
                Err(TryRecvError::Disconnected) => return Err(ended()),
            }
        }
        helper.saves.send(files).map_err(|_| ended())?;
        match helper.answers.recv_timeout(PATIENCE) {
            Ok(answer) => {
                helper.saving = false;
                self.child = Some(helper);
                answer
            }
            Err(RecvTimeoutError::Timeout) => {
                helper.saving = true;
                self.child = Some(helper);
                Err(late())
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

fn late() -> io::Error {
    let why = format!(
        "its file system has not answered for {} s",
        PATIENCE.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn ended() -> io::Error {
    io::Error::other("the process that saves has ended")
}

impl Helper {
    fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (saves, files) = sync_channel::<Vec<Encoded>>(1);
        let (answer, answers) = sync_channel(1);
        rights::without(|| {
            let mut child = command.spawn()?;
            let talk = move || {
                for files in files {
                    let answered = ask(&mut child, &files);
                    let goes_on = answered.is_ok();
                    if answer.send(answered.unwrap_or_else(Err)).is_err() || !goes_on {
                        break;
                    }
                }
                // It ends where nobody asks any more.
                drop(child.stdin.take());
                let _ = child.wait();
            };
            thread::Builder::new().name("state".to_owned()).spawn(talk)
        })?;
        Ok(Self {
            saves,
            answers,
            saving: false,
        })
    }
}

/// Has a child save files. The outer error is one of the child itself.
fn ask(child: &mut Child, files: &[Encoded]) -> io::Result<io::Result<()>> {
    let (Some(input), Some(output)) = (&mut child.stdin, &mut child.stdout) else {
        return Err(ended());
    };
    writeln!(input, "{}", files.len())?;
    for file in files {
        writeln!(input, "{} {}", file.bytes.len(), file.name)?;
        input.write_all(&file.bytes)?;
    }
    let mut answer = String::new();
    // One line, and nothing after it.
    BufReader::new(output).read_line(&mut answer)?;
    let answer = answer.strip_suffix('\n').ok_or_else(ended)?;
    Ok(match (answer, answer.parse()) {
        (SAVED, _) => Ok(()),
        (_, Ok(number)) => Err(io::Error::from_raw_os_error(number)),
        (why, Err(_)) => Err(io::Error::other(why.to_owned())),
    })
}

/// Saves what the parent writes to the standard input into a directory, until that ends: the
/// child's side of an agent's state.
///
/// # Errors
///
/// Where the parent cannot be read or answered.
pub fn save_for_parent(directory: &Path) -> io::Result<()> {
    let parent = getppid();
    // A service manager ends all processes at one time, and the parent has something to save then.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout());
    while let Some(files) = files(&mut input)? {
        let saved = OwnDirectory::make(directory).and_then(|own| {
            let mut files = files.iter();
            // The next agent may have saved what is newer than that of one that was killed.
            files.try_for_each(|file| file.put(&own, || getppid() == parent))
        });
        match saved.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => writeln!(output, "{SAVED}")?,
            Err((Some(number), _)) => writeln!(output, "{number}")?,
            Err((None, error)) => writeln!(output, "{}", error.to_string().replace('\n', " "))?,
        }
        output.flush()?;
    }
    Ok(())
}

/// The files of a save; none at the end.
fn files(input: &mut impl BufRead) -> io::Result<Option<Vec<Encoded>>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let number: usize = line.trim_end().parse().map_err(|_| wrong())?;
    let mut files = Vec::new();
    for _ in 0..number {
        line.clear();
        input.read_line(&mut line)?;
        let (length, name) = line.trim_end().split_once(' ').ok_or_else(wrong)?;
        let length = length.parse().map_err(|_| wrong())?;
        let mut bytes = Vec::new();
        input.take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let name = name.to_owned();
        files.push(Encoded { name, bytes });
    }
    Ok(Some(files))
}

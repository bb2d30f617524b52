//! Saves totals in a child process, so that a hung file system blocks the agent for at most a
//! second.
//!
//! A thread would not do: while it waits for a frozen file system, the kernel cannot end the
//! agent's process, and its locks, port and memory stay in use.

use std::{
    io::{self, BufRead, BufReader, Read as _, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::getppid;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::timeout,
};

use super::privileges;
use crate::{state::EncodedState, sys::trusted_files::TrustedDirectory};

/// How long the agent waits for a save.
const SAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The child's answer to a successful save.
const SAVED: &str = "saved";

/// Saves into a directory.
pub(super) struct Saver {
    directory: PathBuf,
    command: fn(&Path) -> Command,
    child: Option<Helper>,
    /// Whether a save is in progress.
    saving: watch::Sender<bool>,
}

/// A child that saves, and the thread that talks to it.
struct Helper {
    saves: SyncSender<Vec<EncodedState>>,
    answers: Receiver<io::Result<()>>,
    /// When the unanswered save began; None if all were answered.
    saving_since: Option<Instant>,
}

impl Saver {
    /// `command` makes the command that runs [`save_for_parent`]; `saving` is true during a save.
    pub(super) fn new(
        directory: &Path,
        command: fn(&Path) -> Command,
        saving: watch::Sender<bool>,
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            command,
            child: None,
            saving,
        }
    }

    /// Saves files in the given order.
    ///
    /// # Errors
    ///
    /// If they were not saved. Later calls fail too, while the file system does not answer.
    pub(super) fn save(&mut self, files: Vec<EncodedState>) -> io::Result<()> {
        self.saving.send_replace(true);
        let saved = self.save_in_child(files);
        self.saving.send_replace(false);
        saved
    }

    fn save_in_child(&mut self, files: Vec<EncodedState>) -> io::Result<()> {
        let mut helper = match self.child.take() {
            Some(helper) => helper,
            None => Helper::start((self.command)(&self.directory))?,
        };
        if let Some(since) = helper.saving_since {
            match helper.answers.try_recv() {
                // The answer to an earlier save.
                Ok(_) => {}
                Err(TryRecvError::Empty) => {
                    self.child = Some(helper);
                    return Err(not_answered(since));
                }
                Err(TryRecvError::Disconnected) => return Err(ended()),
            }
        }
        let since = Instant::now();
        helper.saves.send(files).map_err(|_| ended())?;
        match helper.answers.recv_timeout(SAVE_TIMEOUT) {
            Ok(answer) => {
                helper.saving_since = None;
                self.child = Some(helper);
                answer
            }
            Err(RecvTimeoutError::Timeout) => {
                helper.saving_since = Some(since);
                self.child = Some(helper);
                Err(not_answered(since))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

/// Waits until no save is in progress, at most for the longest time of a save. False if one still
/// is.
pub(super) async fn await_save(saves: &mut watch::Receiver<bool>) -> bool {
    // An error of the channel says that nobody saves any longer.
    let ended = timeout(SAVE_TIMEOUT, saves.wait_for(|saving| !saving)).await;
    ended.is_ok()
}

fn not_answered(since: Instant) -> io::Error {
    let seconds = since.elapsed().as_secs();
    let why = format!("its file system has not answered for {seconds} s");
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn ended() -> io::Error {
    io::Error::other("the process that saves has ended")
}

impl Helper {
    fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (saves, files) = sync_channel::<Vec<EncodedState>>(1);
        let (answer, answers) = sync_channel(1);
        privileges::run_without(|| {
            let mut child = command.spawn()?;
            let run = move || {
                for files in files {
                    let answered = request_save(&mut child, &files);
                    let child_works = answered.is_ok();
                    if answer.send(answered.unwrap_or_else(Err)).is_err() || !child_works {
                        break;
                    }
                }
                // The child ends when its input is closed.
                drop(child.stdin.take());
                let _ = child.wait();
            };
            thread::Builder::new().name("state".to_owned()).spawn(run)
        })?;
        Ok(Self {
            saves,
            answers,
            saving_since: None,
        })
    }
}

/// Makes a child save files. The outer error is about the child, the inner error about the save.
fn request_save(child: &mut Child, files: &[EncodedState]) -> io::Result<io::Result<()>> {
    let (Some(input), Some(output)) = (&mut child.stdin, &mut child.stdout) else {
        return Err(ended());
    };
    writeln!(input, "{}", files.len())?;
    for file in files {
        writeln!(input, "{} {}", file.bytes.len(), file.name)?;
        input.write_all(&file.bytes)?;
    }
    let mut answer = String::new();
    // The child writes one line for each save, so the reader buffers nothing after it.
    BufReader::new(output).read_line(&mut answer)?;
    let answer = answer.strip_suffix('\n').ok_or_else(ended)?;
    Ok(match (answer, answer.parse()) {
        (SAVED, _) => Ok(()),
        (_, Ok(number)) => Err(io::Error::from_raw_os_error(number)),
        (why, Err(_)) => Err(io::Error::other(why.to_owned())),
    })
}

/// What the child runs: saves the files that the parent writes to standard input, until the parent
/// closes it.
///
/// # Errors
///
/// If the parent cannot be read or answered.
pub fn save_for_parent(directory: &Path) -> io::Result<()> {
    let parent = getppid();
    // A service manager signals all processes at once, and the parent still has totals to save.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout());
    while let Some(files) = read_files(&mut input)? {
        let saved = TrustedDirectory::make(directory).and_then(|target| {
            let mut files = files.iter();
            // If the parent was killed, the next agent may already have saved newer totals.
            files.try_for_each(|file| file.put(&target, || getppid() == parent))
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

/// Reads the files of one save; None at the end of the input.
fn read_files(input: &mut impl BufRead) -> io::Result<Option<Vec<EncodedState>>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let file_count: usize = line.trim_end().parse().map_err(|_| invalid())?;
    let mut files = Vec::new();
    for _ in 0..file_count {
        line.clear();
        input.read_line(&mut line)?;
        let (length, name) = line.trim_end().split_once(' ').ok_or_else(invalid)?;
        let length = length.parse().map_err(|_| invalid())?;
        let mut bytes = Vec::new();
        input.take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let name = name.to_owned();
        files.push(EncodedState { name, bytes });
    }
    Ok(Some(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending_child(_: &Path) -> Command {
        Command::new("true")
    }

    #[test]
    fn a_save_is_in_progress_until_it_ends() {
        let (saving, mut saves) = watch::channel(false);
        let mut saver = Saver::new(Path::new("/"), ending_child, saving);
        // The child gives no answer.
        assert!(saver.save(Vec::new()).is_err());
        assert!(saves.has_changed().unwrap() && !*saves.borrow_and_update());
    }

    /// An agent that ends waits for a save in progress, and no longer than a save may take.
    #[tokio::test]
    async fn the_end_of_a_save_is_waited_for() {
        let (saving, mut saves) = watch::channel(false);
        assert!(await_save(&mut saves).await);
        saving.send_replace(true);
        let ends = async { saving.send_replace(false) };
        let (has_ended, was_saving) = tokio::join!(await_save(&mut saves), ends);
        assert!(has_ended && was_saving);
        saving.send_replace(true);
        let began = Instant::now();
        assert!(!await_save(&mut saves).await);
        assert!(began.elapsed() >= SAVE_TIMEOUT);
    }
}

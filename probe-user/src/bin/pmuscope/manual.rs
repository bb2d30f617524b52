//! `pmuscope man`: shows or writes the pages of the manual, which are made from the declarations of
//! the options.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, IsTerminal as _, Seek as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use clap::Command;
use clap_mangen::Man;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::print::to_stdout;

/// Arguments of `man`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pmuscope man stat
  pmuscope man mem record
  pmuscope man --directory ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// The verb that the page is of [default: the page that names all verbs]
    #[arg(value_name = "VERB")]
    verb: Vec<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "verb")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, command: Command) -> Result<ExitCode> {
    let command = documented(command);
    if let Some(directory) = &args.directory {
        let written = fs::create_dir_all(directory).and_then(|()| write_pages(&command, directory));
        written.with_context(|| format!("cannot write to {}", directory.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut wanted = &command;
    for name in &args.verb {
        let Some(verb) = wanted.find_subcommand(name) else {
            bail!(
                "there is no verb `{}`: `pmuscope --help` names them",
                args.verb.join(" ")
            );
        };
        wanted = verb;
    }
    let text = page(wanted).context("cannot make the page")?;
    if !io::stdout().is_terminal() {
        to_stdout(|out| out.write_all(&text))?;
        return Ok(ExitCode::SUCCESS);
    }
    let error = Err(show(&text));
    error.context("cannot run `man` (the same text is in `pmuscope VERB --help`)")
}

/// A command and its subcommands as their pages show them: with all options that `--help` shows.
fn documented(command: Command) -> Command {
    // clap_mangen leaves out texts that `-h` leaves out.
    fn with_all_texts(command: Command) -> Command {
        let command = command.mut_args(|arg| arg.hide_short_help(false));
        command.mut_subcommands(with_all_texts)
    }
    let mut command = command.disable_help_subcommand(true);
    command.build();
    with_all_texts(command)
}

/// Writes the pages of a command and of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    fs::write(directory.join(format!("{name}.1")), page(command)?)?;
    let mut subcommands = command.get_subcommands().filter(|it| !it.is_hide_set());
    subcommands.try_for_each(|verb| write_pages(verb, directory))
}

/// The page of a command in roff.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let after = { command.get_after_long_help() }.or(command.get_after_help());
    let sections = after.map(|text| sections(&text.to_string()));
    // clap_mangen would join the lines of examples as if they were sentences.
    let plain = command
        .clone()
        .after_help(None::<&str>)
        .after_long_help(None::<&str>);
    let mut out = Vec::new();
    let program = concat!("pmuscope ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(plain).source(program).manual("pmuscope");
    man.render(&mut out)?;
    out.extend(sections.unwrap_or_default().into_bytes());
    Ok(out)
}

/// Paragraphs in roff. A first line with a colon at its end is a heading, and the lines below it
/// stay as they are.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    for paragraph in text.split("\n\n") {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        // Writing to a string does not fail.
        let _ = match first.strip_suffix(':') {
            Some(heading) => {
                let heading = heading.to_uppercase();
                writeln!(roff, ".SH {heading}\n.nf\n{}\n.fi", escaped(rest))
            }
            None => writeln!(roff, ".PP\n{}", escaped(paragraph)),
        };
    }
    roff
}

/// Escapes text so that roff takes no line of it for a command.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.chars().next() {
        Some('.' | '\'') => format!("\\&{line}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces this process by `man`, which shows a page. Returns only if that fails, with the error.
fn show(page: &[u8]) -> io::Error {
    let run_man = || -> io::Result<io::Error> {
        let mut file = File::from(memfd_create("pmuscope.1", MemfdFlags::CLOEXEC)?);
        file.write_all(page)?;
        file.rewind()?;
        let mut man = process::Command::new("man");
        Ok(man.args(["--local-file", "-"]).stdin(file).exec())
    };
    run_man().unwrap_or_else(|error| error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;

    use super::*;

    fn files(directory: &Path) -> BTreeMap<PathBuf, String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into(), text)
            })
            .collect()
    }

    #[test]
    fn the_pages_in_deploy_are_up_to_date() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/man");
        let written = tempfile::tempdir().unwrap();
        write_pages(&documented(crate::Args::command()), written.path()).unwrap();
        let (kept, written) = (files(&kept), files(written.path()));
        assert!(kept == written, "run `cargo xtask docs`");
    }

    /// `-h` leaves some options out; the pages have them all.
    #[test]
    fn each_option_is_explained() {
        fn check(command: &Command) {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(
                    !arg.is_hide_short_help_set(),
                    "{}: {}",
                    command.get_name(),
                    arg.get_id()
                );
                assert!(
                    arg.get_help().is_some(),
                    "{}: {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&documented(crate::Args::command()));
    }
}

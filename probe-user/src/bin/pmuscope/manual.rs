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
    let mut command = command.disable_help_subcommand(true);
    command.build();
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

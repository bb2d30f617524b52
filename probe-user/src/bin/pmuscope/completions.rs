//! `pmuscope completions`: what a shell loads to complete options, events and metrics with Tab. The
//! shell then asks this program, which knows what this machine counts.

use std::{collections::BTreeSet, ffi::OsStr, io::Write as _, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Command, builder::PossibleValuesParser};
use clap_complete::{
    ArgValueCompleter, CompleteEnv, CompletionCandidate,
    env::{EnvCompleter, Shells},
};
use probe_user::{
    catalogue::{Catalogue, resolve_hardware},
    list::{Availability, Inventory},
    machine::Machine,
};

use crate::print::to_stdout;

/// The environment variable by which a shell asks for completions.
const VARIABLE: &str = "PMUSCOPE_COMPLETE";

/// Arguments of `completions`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  source <(pmuscope completions bash)    # in ~/.bashrc
  source <(pmuscope completions zsh)     # in ~/.zshrc, after compinit
  pmuscope completions fish > ~/.config/fish/completions/pmuscope.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(
        value_name = "SHELL",
        value_parser = PossibleValuesParser::new(Shells::builtins().names())
    )]
    shell: String,
}

/// If a shell asks for completions, answers it and ends the process; otherwise returns.
pub(crate) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let shells = Shells::builtins();
    let shell: &dyn EnvCompleter = shells.completer(&args.shell).context("an unknown shell")?;
    let name = "pmuscope";
    to_stdout(|out| {
        shell.write_registration(VARIABLE, name, name, name, out)?;
        let extra = match shell.name() {
            "bash" => BASH,
            "zsh" => ZSH,
            _ => "",
        };
        out.write_all(extra.as_bytes())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Added to clap's code for bash. Bash splits words at `=` and `:`, which names of events and
/// groups contain, and replaces only the text behind the last one. So this passes whole words to
/// clap, and returns the completions without the text up to that character.
const BASH: &str = r#"
_pmuscope() {
    local line="${COMP_LINE:0:COMP_POINT}" COMP_CWORD current
    local -a COMP_WORDS
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *[[:space:]] ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    current="${COMP_WORDS[COMP_CWORD]}"
    _clap_complete_pmuscope "$1" "$current" "$3"
    if [[ $current == *[=:]* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*[=:]}"}"}")
    fi
}
complete -o nospace -o bashdefault -F _pmuscope pmuscope
"#;

/// Added to clap's code for zsh: if zsh autoloads the file as the function `_pmuscope`, the first
/// call must complete too.
const ZSH: &str = r#"
if [[ $funcstack[1] == _pmuscope ]]; then
    _clap_dynamic_completer_pmuscope "$@"
fi
"#;

/// Completes a list of events.
pub(crate) fn events() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        complete_last(current, |inventory| {
            let events = inventory.sections.iter().flat_map(|it| &it.events);
            let offered = events.filter(|it| may_be_here(&it.availability));
            offered
                .filter_map(|it| Some((it.names.first()?.clone(), it.description.clone())))
                .collect()
        })
    })
}

/// Completes a list of metrics and their groups.
pub(crate) fn metrics() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        complete_last(current, |inventory| {
            let metrics = { inventory.metrics.iter() }
                .filter(|it| may_be_here(&it.availability))
                .map(|it| (it.name.clone(), Some(it.title.clone())));
            let groups = { inventory.metrics.iter() }
                .map(|it| (format!("group:{}", it.group), None))
                .collect::<BTreeSet<_>>();
            metrics.chain(groups).collect()
        })
    })
}

/// Whether a name is offered: this machine counts it, or it could not be tried (without the rights
/// to open events).
fn may_be_here(availability: &Availability) -> bool {
    !matches!(availability, Availability::NotHere(_))
}

/// Completes the last name of a list.
fn complete_last(
    current: &OsStr,
    names: impl Fn(&Inventory) -> Vec<(String, Option<String>)>,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let start = current.rfind([',', '{']).map_or(0, |at| at + 1);
    let (before, last) = current.split_at(start);
    // An error completes nothing: a shell shows no messages here.
    let candidates = inventory().map(|it| names(&it)).unwrap_or_default();
    let matching = { candidates.into_iter() }.filter(|(name, _)| name.starts_with(last));
    matching
        .map(|(name, help)| {
            CompletionCandidate::new(format!("{before}{name}")).help(help.map(Into::into))
        })
        .collect()
}

fn inventory() -> Result<Inventory> {
    let machine = Machine::this();
    let catalogue = Catalogue::builtin()?;
    let hardware = resolve_hardware(&machine, None);
    Ok(Inventory::of_this_machine(&machine, &catalogue, &hardware)?)
}

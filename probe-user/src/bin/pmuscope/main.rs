//! The `pmuscope` binary: arguments in, exit code out.

mod agent;
mod calibrate;
mod completions;
mod derive;
mod diff;
mod doctor;
mod ending;
mod hot;
mod list;
mod live;
mod logging;
mod manual;
mod mem;
mod perf_hints;
mod print;
mod record;
mod report;
mod roofline;
mod rows;
mod sampling;
mod stat;
mod terminal;
mod times;
mod top;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use probe_user::{emit::printable::printable_lines, sys::descriptors};

/// Which container (pod, process) causes what the hardware counters see.
#[derive(Parser)]
#[command(
    name = "pmuscope",
    version,
    after_help = "Examples:
  pmuscope doctor                     # can it count here, and what is missing?
  pmuscope stat                       # what each container does, every second
  pmuscope top                        # the same, with keys to sort, filter and look closer
  pmuscope record -- COMMAND          # into a file, for `pmuscope report` and `pmuscope diff`

PMUSCOPE_LOG=debug (info, warn, error) in the environment chooses the messages."
)]
struct Args {
    /// Show errors as the only messages
    #[arg(short, long, global = true, display_order = 1000)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count events per container: for a command, or for the whole machine until Ctrl-C
    Stat(stat::Args),
    /// Watch what `stat` counts on a terminal: choose rows, sort, filter, go back in time
    Top(top::Args),
    /// Record what `stat` counts into a file, for `report`, `diff`, `stat --replay` and `top
    /// --replay`
    Record(record::Args),
    /// Show a whole recording: as a page with plots (HTML), or one view of it
    Report(report::Args),
    /// Compare two recordings, or two parts of one: every metric, and whether the difference
    /// exceeds what chance allows
    Diff(diff::Args),
    /// List the PMUs and events of this machine, and why it cannot count the others
    List(list::Args),
    /// Check whether this machine can count, and print a remedy for what is missing
    Doctor(doctor::Args),
    /// Sample memory accesses per container: their data sources and latencies (Arm's SPE, AMD's
    /// IBS, Intel's PEBS)
    Mem(mem::Args),
    /// Sample where in code each container causes an event: addresses with their shares
    Hot(hot::Args),
    /// Count all the time, and serve the last window to Prometheus
    Agent(agent::Args),
    /// Measure what this machine can do: bandwidth, latency and floating-point peak
    Roofline(roofline::Args),
    /// Measure what this machine's events count for its memory traffic, so that the shares of
    /// containers have an error
    Calibrate(calibrate::Args),
    /// Compare what was estimated with what the hardware counted
    Verify(verify::Args),
    /// Compute metrics from other counts: output of perf stat, or lines event=value
    Derive(derive::Args),
    /// Print what a shell loads to complete options, events and metrics with Tab
    Completions(completions::Args),
    /// Show a page of the manual, or write all of them
    Man(manual::Args),
}

fn main() -> ExitCode {
    completions::answer(Args::command);
    let args = Args::try_parse().unwrap_or_else(|error| perf_hints::with_hint(error).exit());
    logging::init(args.quiet);
    let allowed = descriptors::allow_least().map_err(anyhow::Error::from);
    let result = allowed.and_then(|()| match args.command {
        Command::Stat(args) => stat::run(args),
        Command::Top(args) => top::run(args),
        Command::Record(args) => record::run(args),
        Command::Report(args) => report::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::List(args) => list::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Mem(args) => mem::run(args),
        Command::Hot(args) => hot::run(args),
        Command::Agent(args) => agent::run(&args),
        Command::Roofline(args) => roofline::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Derive(args) => derive::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => manual::run(&args, Args::command()),
    });
    result.unwrap_or_else(|error| {
        print::error(format_args!("{}", printable_lines(&error_text(&error))));
        // A shell's exit codes for a command that it cannot start.
        let code = match error
            .downcast_ref::<ending::NotStarted>()
            .map(|error| error.0.kind())
        {
            Some(std::io::ErrorKind::NotFound) => 127,
            Some(_) => 126,
            None => 1,
        };
        ExitCode::from(code)
    })
}

/// The error with its causes, except those that its text already contains.
fn error_text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    /// clap checks the declaration of a verb only when that verb runs.
    #[test]
    fn every_verb_is_declared_right() {
        super::Args::command().debug_assert();
    }

    /// Lines of the help that run pmuscope are valid.
    #[test]
    fn examples_are_valid() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string);
            for line in help.unwrap_or_default().lines() {
                let line = line.split(" #").next().unwrap();
                let words = line.split_whitespace().take_while(|word| *word != ">");
                let words: Vec<&str> = words.collect();
                if words.first() == Some(&"pmuscope") {
                    let parsed = super::Args::try_parse_from(&words);
                    let error = parsed.err().map(|error| error.to_string());
                    assert_eq!(error, None, "{line}");
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&super::Args::command());
    }

    /// The error for these arguments; None if they are valid.
    fn parse_error(words: &[&str]) -> Option<String> {
        let words = [&["pmuscope"], words].concat();
        let error = super::Args::try_parse_from(words).err();
        error.map(|error| super::perf_hints::with_hint(error).to_string())
    }

    /// A word that begins with `-` is a command's name only after `--`. After the command's name it
    /// is an argument of the command.
    #[test]
    fn an_unknown_option_is_refused_and_no_command() {
        let verbs: [&[&str]; 5] = [
            &["stat"],
            &["hot"],
            &["mem"],
            &["mem", "record"],
            &["mem", "calibrate"],
        ];
        for verb in verbs {
            let with_args = |args: &[&'static str]| parse_error(&[verb, args].concat());
            let error = with_args(&["--evnt", "x", "--", "true"]).unwrap();
            assert!(error.contains("unexpected argument '--evnt'"), "{error}");
            assert_eq!(with_args(&["true", "--evnt", "-I", "x"]), None, "{verb:?}");
            assert_eq!(with_args(&["--", "--evnt", "x"]), None, "{verb:?}");
        }
    }

    #[test]
    fn an_option_of_perf_has_a_hint() {
        let error = parse_error(&["stat", "-a", "sleep", "1"]).unwrap();
        assert!(
            error.contains("tip: all CPUs are counted without this option"),
            "{error}"
        );
        let error = parse_error(&["stat", "--tid", "1"]).unwrap();
        assert!(
            error.contains("`--by process`") && !error.contains("--wide"),
            "{error}"
        );
        let error = parse_error(&["stat", "-x,", "--", "true"]).unwrap();
        assert!(error.contains("tip: CSV is `--format csv`"), "{error}");
        let error = parse_error(&["hot", "-F", "99", "--", "true"]).unwrap();
        assert!(error.contains("freq=99"), "{error}");
        // Options of perf that exist here too are accepted.
        assert_eq!(parse_error(&["mem", "record", "-p", "1"]), None);
    }
}

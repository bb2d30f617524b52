//! Hints for options of perf and of other verbs that have another name here.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Options of `perf stat`, `perf record` and other verbs of pmuscope, and what to use instead.
const HINTS: &[(&[&str], &str)] = &[
    (
        &["-a", "--all-cpus"],
        "all CPUs are counted without this option",
    ),
    (
        &["-C", "--cpu"],
        "all CPUs are counted; there is no choice of CPUs",
    ),
    (
        &["-t", "--tid", "-u", "--uid", "--per-thread"],
        "processes have rows of their own with `--by process`",
    ),
    (
        &["-G"],
        "`--cgroup PATH` shows one cgroup and those below it",
    ),
    (
        &["--for-each-cgroup"],
        "each cgroup has a row with `--by cgroup`",
    ),
    (&["-x", "--field-separator"], "CSV is `--format csv`"),
    (&["-j", "--json-output"], "JSON is `--format json`"),
    (
        &["-r", "--repeat"],
        "a command runs once; `pmuscope diff` compares recordings",
    ),
    (
        &["-F", "--freq"],
        "a frequency is a term: `hot -e cycles/freq=99/`, `stat --sample cycles/freq=99/`",
    ),
    (
        &["-c", "--count"],
        "a period is a term: `hot -e cycles/period=100000/`",
    ),
    (&["--interval"], "that is `-I`"),
    (
        &["--filter", "--container", "--pod"],
        "rows are chosen by `--filter NAME` in stat and hot, by `/` in top, by `--search` in \
         report and by `--pods` in diff",
    ),
    (&["--log-fd"], "that is `--output-fd`"),
    (&["-g", "--call-graph"], "there are no call graphs"),
    (
        &["-d", "--detailed"],
        "more metrics are `-M group:NAME`; `pmuscope list metrics` has their groups",
    ),
    (&["-T", "--transaction"], "choose events with `-e`"),
    (
        &["--topdown", "--td-level"],
        "that is `-M group:topdown`, and level 2 `-M group:topdown_l2`",
    ),
    (&["--metrics"], "that is `-M`"),
    (
        &["-D", "--delay"],
        "start the command first, and count when it is ready",
    ),
    (
        &["--per-socket", "--per-core", "--per-die", "--per-node"],
        "rows are containers; metrics of a socket stand below them",
    ),
    (&["-A", "--no-aggr"], "rows are sums over all CPUs"),
    (&["-i", "--no-inherit"], "threads and children are counted"),
    (&["-B", "--big-num"], "all digits are `--exact`"),
    (
        &["-v", "--verbose"],
        "messages are chosen by the environment: PMUSCOPE_LOG=debug",
    ),
];

/// Adds a hint to the error about an option that perf or another verb has.
pub(crate) fn with_hint(mut error: Error) -> Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some((_, hint)) = HINTS.iter().find(|(known, _)| known.contains(&&**option))
    {
        let hint = ContextValue::StyledStrs(vec![(*hint).into()]);
        error.insert(ContextKind::Suggested, hint);
        // clap suggests an option of a similar name, which has another meaning.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
    }
    error
}

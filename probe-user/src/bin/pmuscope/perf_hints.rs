//! Hints for options of perf that have another name here.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Options of `perf stat` or `perf record`, and what to use instead.
const HINTS: &[(&str, &str)] = &[
    ("-a", "all CPUs are counted without `-a`"),
    ("-C", "all CPUs are counted; there is no choice of CPUs"),
    ("-p", "processes have rows of their own with `--by process`"),
    ("-t", "processes have rows of their own with `--by process`"),
    ("-G", "`--cgroup PATH` shows one cgroup and those below it"),
    (
        "--for-each-cgroup",
        "each cgroup has a row with `--by cgroup`",
    ),
    ("-x", "CSV is `--format csv`"),
    ("-j", "JSON is `--format json`"),
    (
        "-r",
        "a command runs once; `pmuscope diff` compares recordings",
    ),
    (
        "-F",
        "a frequency is a term: `hot -e cycles/freq=99/`, `stat --sample cycles/freq=99/`",
    ),
    ("-c", "a period is a term: `hot -e cycles/period=100000/`"),
    ("-g", "there are no call graphs"),
];

/// Adds a hint to the error about an option of perf.
pub(crate) fn with_hint(mut error: Error) -> Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some((_, hint)) = HINTS.iter().find(|(perf_option, _)| perf_option == option)
    {
        let hint = ContextValue::StyledStrs(vec![(*hint).into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

//! Options that users of perf type and that are called otherwise here.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// An option of `perf stat` or `perf record`, and what is in its place.
const PERFS: &[(&str, &str)] = &[
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

/// The same error, with what is in the place of an option of perf's.
pub(crate) fn with_hint(mut error: Error) -> Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some((_, hint)) = PERFS.iter().find(|(perfs, _)| perfs == option)
    {
        let hint = ContextValue::StyledStrs(vec![(*hint).into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

//! The filter and the format of messages: `PMUSCOPE_LOG`, and an option for messages of the BPF
//! programs.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use probe_user::emit::printable::printable;
use tracing::field::Field;
use tracing_subscriber::{EnvFilter, field::MakeExt as _, fmt::format};

use crate::terminal;

/// Replaces the filter of the subscriber.
static REPLACE_FILTER: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Only errors are shown.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether only errors are shown.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Shows messages from here on; if `quiet`, only errors.
pub(crate) fn init(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_writer(terminal::messages)
        .without_time()
        .fmt_fields(format::debug_fn(write_field).delimited(" "))
        .with_target(false)
        // Internal errors go to eprintln, which panics if standard error cannot be written.
        .log_internal_errors(false)
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    let replace = move |filter| {
        // This fails only once the subscriber is dropped, and the global one never is.
        let _ = handle.reload(filter);
    };
    let _ = REPLACE_FILTER.set(Box::new(replace));
    subscriber.init();
}

/// Shows messages of the BPF programs in later sessions. If `show` is false, only `PMUSCOPE_LOG`
/// decides.
pub(crate) fn show_kernel_log(show: bool) {
    let filter = match show {
        true => filter().add_directive("kernel=debug".parse().expect("a directive")),
        false => filter(),
    };
    if let Some(replace) = REPLACE_FILTER.get() {
        replace(filter);
    }
}

fn filter() -> EnvFilter {
    if is_quiet() {
        return EnvFilter::new("error");
    }
    EnvFilter::try_from_env("PMUSCOPE_LOG").unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Writes a field of a message. The message text is written without its field's name.
fn write_field(out: &mut format::Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(out, "{}", printable(&value)),
        // Source locations, which messages of the crate `log` have as fields.
        name if name.starts_with("log.") => Ok(()),
        name => write!(out, "{name}={}", printable(&value)),
    }
}

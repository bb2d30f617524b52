//! Which messages are shown, and how: those that `PMUSCOPE_LOG` names, and those of the kernel's
//! programs where an option asks for them.

use std::{fmt, sync::OnceLock};

use probe_user::emit::printable::printable;
use tracing::field::Field;
use tracing_subscriber::{EnvFilter, field::MakeExt as _, fmt::format};

use crate::terminal;

/// Replaces the filter.
static REPLACE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Shows messages from here on.
pub(crate) fn begin() {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_writer(terminal::messages)
        .without_time()
        .fmt_fields(format::debug_fn(field).delimited(" "))
        .with_target(false)
        // By eprintln, which ends the process where a message cannot be written.
        .log_internal_errors(false)
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    let replace = move |filter| {
        // It fails once the subscriber is gone, and this one stays.
        let _ = handle.reload(filter);
    };
    let _ = REPLACE.set(Box::new(replace));
    subscriber.init();
}

/// Shows messages of the kernel's programs in the sessions that begin from here on, or only where
/// `PMUSCOPE_LOG` names them.
pub(crate) fn show_kernel_log(show: bool) {
    let filter = match show {
        true => filter().add_directive("kernel=debug".parse().expect("a directive")),
        false => filter(),
    };
    if let Some(replace) = REPLACE.get() {
        replace(filter);
    }
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_env("PMUSCOPE_LOG").unwrap_or_else(|_| EnvFilter::new("info"))
}

/// A field of a message: the text itself has no name before it.
fn field(out: &mut format::Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(out, "{}", printable(&value)),
        // Where in the source a message of the crate `log` comes from.
        name if name.starts_with("log.") => Ok(()),
        name => write!(out, "{name}={}", printable(&value)),
    }
}

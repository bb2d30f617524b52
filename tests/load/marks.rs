//! Calls the marker functions in its arguments: `tag=NAME@START-END` (hex), `start=NAME`, `stop`,
//! and between them `burn=MS`, `thread=NAME:MS` (a thread that uses CPU time before, in and after a
//! phase) and `threads=N:MS`. Prints each marker call with its thread, and the times before and
//! after it.

use std::{error::Error, ffi::CString, ptr, thread, time::Duration};

use probe_common::tags;
use rustix::{
    thread::gettid,
    time::{ClockId, clock_gettime},
};

/// Executes the arguments in order.
pub(super) fn mark(words: &[String]) -> Result<(), Box<dyn Error>> {
    for word in words {
        let (call, rest) = word.split_once('=').unwrap_or((word, ""));
        match call {
            "tag" => {
                let (name, range) = rest.split_once('@').ok_or("no range")?;
                let (start, end) = range.split_once('-').ok_or("no end")?;
                let address = |text| usize::from_str_radix(text, 16).map(pointer);
                let (name, range) = (CString::new(name)?, address(start)?..address(end)?);
                timed(word, || tags::tag_addr(&name, range));
            }
            "start" => {
                let name = CString::new(rest)?;
                timed(word, || tags::start(&name));
            }
            "stop" => timed(word, tags::stop),
            "burn" => super::burn(Duration::from_millis(rest.parse()?)),
            "thread" => in_phase(rest)?,
            "threads" => {
                let (count, time) = rest.split_once(':').ok_or("no time")?;
                let time = Duration::from_millis(time.parse()?);
                let burn = |_| thread::spawn(move || super::burn(time));
                let threads: Vec<_> = (0..count.parse::<u32>()?).map(burn).collect();
                for thread in threads {
                    thread.join().map_err(|_| "a thread has panicked")?;
                }
            }
            _ => return Err(format!("no call: {word}").into()),
        }
    }
    Ok(())
}

/// A pointer that is never read.
fn pointer(address: usize) -> *const u8 {
    ptr::without_provenance(address)
}

fn in_phase(text: &str) -> Result<(), Box<dyn Error>> {
    let (name, time) = text.split_once(':').ok_or("no time")?;
    let (name, time) = (name.to_owned(), Duration::from_millis(time.parse()?));
    let phase = CString::new(name.as_str())?;
    let thread = thread::spawn(move || {
        super::burn(time);
        timed(&format!("start={name}"), || tags::start(&phase));
        super::burn(time);
        timed("stop", tags::stop);
        super::burn(time);
    });
    thread.join().map_err(|_| "a thread has panicked".into())
}

/// Calls a marker, and prints the times before and after, in ns of `CLOCK_MONOTONIC`.
fn timed(word: &str, call: impl FnOnce()) {
    let now = || {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let before = now();
    call();
    let after = now();
    println!(
        "marked {word} {} {before} {after}",
        gettid().as_raw_nonzero()
    );
}

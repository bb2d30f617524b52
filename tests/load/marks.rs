//! Calls marker functions, as words say: `tag=NAME@START-END` (hex), `start=NAME`, `stop`, and
//! between them `burn=MS` and `thread=NAME:MS`: a thread that is in a phase while it uses CPU time.

use std::{error::Error, ffi::CString, ptr, time::Duration};

use probe_common::tags;

/// Does what the words say, in their order.
pub(super) fn mark(words: &[String]) -> Result<(), Box<dyn Error>> {
    for word in words {
        let (call, rest) = word.split_once('=').unwrap_or((word, ""));
        match call {
            "tag" => {
                let (name, range) = rest.split_once('@').ok_or("no range")?;
                let (start, end) = range.split_once('-').ok_or("no end")?;
                let address = |text| usize::from_str_radix(text, 16).map(at);
                tags::tag_addr(&CString::new(name)?, address(start)?..address(end)?);
            }
            "start" => tags::start(&CString::new(rest)?),
            "stop" => tags::stop(),
            "burn" => super::burn(Duration::from_millis(rest.parse()?)),
            "thread" => thread(rest)?,
            _ => return Err(format!("no call: {word}").into()),
        }
    }
    Ok(())
}

/// An address that nobody reads.
fn at(address: usize) -> *const u8 {
    ptr::without_provenance(address)
}

fn thread(text: &str) -> Result<(), Box<dyn Error>> {
    let (name, time) = text.split_once(':').ok_or("no time")?;
    let (name, time) = (CString::new(name)?, Duration::from_millis(time.parse()?));
    let thread = std::thread::spawn(move || {
        tags::start(&name);
        super::burn(time);
        tags::stop();
    });
    thread.join().map_err(|_| "a thread has panicked".into())
}

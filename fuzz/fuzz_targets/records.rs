//! Any bytes at any offset: the iterator ends, gives no more items than there are bytes, agrees
//! with the walk that the kernel makes, which looks at one window after the other, and what it
//! decodes does not depend on what lies behind a window.
#![no_main]

use libfuzzer_sys::fuzz_target;
use probe_common::spe::{BadKind, Bytes, Found, Record, Records, Stream};

/// A window on the data: behind their end are zeros, behind the window bytes on which the decoder
/// may not depend.
struct Window<'a> {
    data: &'a [u8],
    behind: u8,
}

impl Bytes for Window<'_> {
    fn byte(&self, at: u32) -> u8 {
        assert!(at < 64, "the decoder looked at byte {at}");
        self.data.get(at as usize).copied().unwrap_or(0)
    }

    fn word(&self, at: u32) -> u64 {
        assert!(at < 64, "the decoder looked at byte {at}");
        let byte = |i: u32| {
            let behind = if at + i < 64 { 0 } else { self.behind };
            let place = (at + i) as usize;
            self.data.get(place).copied().unwrap_or(behind)
        };
        u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(byte))
    }
}

/// What a walk over the data finds, where other bytes lie behind them, and the bytes that it
/// accounts for.
fn walked(data: &[u8], offset: usize, behind: u8) -> Vec<Result<Record, BadKind>> {
    let base = (offset % (1 << 16)) as u64;
    let mut stream = Stream::new(base, base + data.len() as u64);
    let mut record = Record::EMPTY;
    let mut items = Vec::new();
    let mut last = stream.at;
    loop {
        let limit = stream.window();
        let at = (stream.at - base) as usize;
        let found = match limit {
            0 => stream.finish(),
            _ => {
                let data = &data[at..at + limit as usize];
                Some(stream.decode(&Window { data, behind }, &mut record))
            }
        };
        match found {
            Some(Found::Record) => items.push(Ok(record)),
            Some(Found::Bad { kind, at, bytes }) => {
                assert!(at >= base && at <= stream.end && bytes > 0);
                items.push(Err(kind));
            }
            Some(Found::Padding(bytes) | Found::Lost(bytes)) => {
                assert_eq!(last + bytes, stream.at);
            }
            Some(Found::Part) => {}
            None => return items,
        }
        last = stream.at;
    }
}

fuzz_target!(|input: (u32, &[u8])| {
    let (offset, data) = (input.0 as usize, input.1);
    let mut items = Vec::new();
    for item in Records::at(data, offset) {
        if let Err(bad) = item {
            assert!(bad.at <= data.len());
        }
        items.push(item.map_err(|bad| bad.kind));
        assert!(items.len() <= data.len());
    }
    assert_eq!(items, walked(data, offset, 0));
    assert_eq!(items, walked(data, offset, 0xb2));
});

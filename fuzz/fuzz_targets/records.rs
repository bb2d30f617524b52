//! For any bytes at any offset, the iterator ends and returns no more items than bytes. It agrees
//! with the kernel's way to decode, window by window, and does not depend on the bytes after a
//! window.
#![no_main]

use libfuzzer_sys::fuzz_target;
use probe_common::spe::{BadKind, Bytes, Record, Records, Stream, WindowContent};

/// A window of the data. After the end of the data are zeros; after the window are bytes on which
/// the decoder must not depend.
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
            let index = (at + i) as usize;
            self.data.get(index).copied().unwrap_or(behind)
        };
        u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(byte))
    }
}

/// Decodes window by window, with the byte `behind` after each window.
fn decode_by_windows(data: &[u8], offset: usize, behind: u8) -> Vec<Result<Record, BadKind>> {
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
            Some(WindowContent::Record) => items.push(Ok(record)),
            Some(WindowContent::Bad { kind, at, bytes }) => {
                assert!(at >= base && at <= stream.end && bytes > 0);
                items.push(Err(kind));
            }
            Some(WindowContent::Padding(bytes) | WindowContent::Lost(bytes)) => {
                assert_eq!(last + bytes, stream.at);
            }
            Some(WindowContent::Part) => {}
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
    assert_eq!(items, decode_by_windows(data, offset, 0));
    assert_eq!(items, decode_by_windows(data, offset, 0xb2));
});

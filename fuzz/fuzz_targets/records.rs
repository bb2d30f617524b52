//! Any bytes at any offset: the iterator ends, gives no more items than there are
//! bytes, agrees with the cell decoder that the kernel runs, and what it decodes
//! does not depend on the bytes behind the data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use probe_common::spe::{Bytes, Cell, Record, Records, decode_record};

/// A cell followed by bytes of which the decoder may not depend.
struct Window<'a> {
    cell: &'a [u8; 64],
    behind: u8,
}

impl Bytes for Window<'_> {
    fn byte(&self, at: u32) -> u8 {
        assert!(at < 64, "the decoder looked at byte {at}");
        self.cell[at as usize]
    }

    fn word(&self, at: u32) -> u64 {
        assert!(at < 64, "the decoder looked at byte {at}");
        let byte = |i: u32| {
            self.cell
                .get((at + i) as usize)
                .copied()
                .unwrap_or(self.behind)
        };
        u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(byte))
    }
}

fuzz_target!(|input: (u32, &[u8])| {
    let (offset, data) = input;
    let mut items = 0;
    for item in Records::at(data, offset as usize) {
        if let Err(bad) = item {
            assert!(bad.at <= data.len());
        }
        items += 1;
        assert!(items <= data.len());
    }
    let mut given = Vec::new();
    for cell in data.as_chunks::<64>().0 {
        let [mut record, mut other] = [Record::EMPTY; 2];
        let outcome = decode_record(&Window { cell, behind: 0 }, offset, &mut record);
        let again = decode_record(&Window { cell, behind: 0xb2 }, offset, &mut other);
        assert_eq!((outcome, record), (again, other));
        match outcome {
            Ok(Cell::Record) => given.push(Ok(record)),
            Ok(Cell::Padding(next)) => assert!(next >= 64),
            Err(kind) => given.push(Err(kind)),
        }
    }
    // Behind one whole record in a cell, the iterator goes from cell to cell.
    let mut first = [0; 64];
    first[0] = 0x49;
    first[63] = 0x01;
    let cells: Vec<u8> = [&first[..], data.as_chunks::<64>().0.as_flattened()].concat();
    if !has_alignment(&cells) {
        let found: Vec<_> = Records::new(&cells)
            .skip(1)
            .map(|r| r.map_err(|bad| bad.kind))
            .collect();
        assert_eq!(found, given);
    }
});

/// Alignment packets lead past whole cells, which the loop above does not follow.
fn has_alignment(data: &[u8]) -> bool {
    data.windows(2).any(|w| w[0] & 0xfc == 0x20 && w[1] == 0)
}

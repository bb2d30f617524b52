//! Records built from random fields, in random packet order, are given back; damage
//! costs what it touches and no more.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use probe_common::spe::{BadCounts, BadKind, Cell, Record, Records, decode_record};
use proptest::{collection::vec, option, prelude::*};
use support::{fields::Fields, random::Random};

fn sized(sizes: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = (u8, u64)> {
    (sizes, any::<u64>()).prop_map(|(log2, word)| (log2, word >> (64 - (8 << log2))))
}

fn fields() -> impl Strategy<Value = Fields> {
    let address = || option::of(any::<u64>());
    let addresses = (address(), address(), address(), address(), address());
    let counter = || option::of(any::<u16>());
    let counters = (counter(), counter(), counter());
    let contexts = (option::of(any::<u32>()), option::of(any::<u32>()));
    let rest = (
        option::of((0..4u8, any::<u8>())),
        option::of(sized(0..=3)),
        option::of(sized(0..=3)),
        option::of(any::<u64>()),
    );
    (addresses, counters, contexts, rest).prop_map(|(a, c, x, r)| Fields {
        pc: a.0,
        branch_target: a.1,
        virtual_address: a.2,
        physical_address: a.3,
        previous_target: a.4,
        total_latency: c.0,
        issue_latency: c.1,
        translation_latency: c.2,
        context_el1: x.0,
        context_el2: x.1,
        operation: r.0,
        events: r.1,
        data_source: r.2,
        timestamp: r.3,
    })
}

/// A record in a cell of its own, and what it holds: fields are left out until it fits.
fn cell(mut fields: Fields, random: &mut Random) -> ([u8; 64], Fields) {
    let bytes = random.cell(&mut fields);
    (bytes, fields.widened())
}

/// The record, so that a first one does not fill a cell by chance and the iterator
/// take the buffer for one of cells.
fn uneven(n: usize, base: usize, mut bytes: Vec<u8>) -> Vec<u8> {
    if n == 0 && (base + bytes.len()).is_multiple_of(64) {
        bytes.insert(0, 0);
    }
    bytes
}

fn window(cell: &[u8], behind: u8) -> [u8; 72] {
    let mut window = [behind; 72];
    window[..64].copy_from_slice(cell);
    window
}

fn decoded(data: &[u8], base: usize) -> Vec<Result<Fields, BadKind>> {
    Records::at(data, base)
        .map(|item| item.map(|r| Fields::of(&r)).map_err(|bad| bad.kind))
        .collect()
}

proptest! {
    #[test]
    fn a_cell_gives_its_fields_back(fields in fields(), seed: u64, offset: u32, behind: u8) {
        let (bytes, fields) = cell(fields, &mut Random(seed));
        let mut record = Record::EMPTY;
        let found = decode_record(&window(&bytes, behind), offset, &mut record);
        prop_assert_eq!(found, Ok(Cell::Record));
        prop_assert_eq!(Fields::of(&record), fields);
        prop_assert_eq!(record.skipped(), 0);
    }

    #[test]
    fn a_buffer_of_cells_gives_its_records_back(
        records in vec(fields(), 1..20), seed: u64, base in 0..100usize,
    ) {
        let mut random = Random(seed);
        let (mut data, mut given) = (Vec::new(), Vec::new());
        for fields in records {
            let (bytes, fields) = cell(fields, &mut random);
            data.extend(bytes);
            given.push(Ok(fields));
            // The driver pads with zeros, in whole cells here.
            if random.below(4) == 0 {
                data.resize(data.len() + 64, 0);
            }
        }
        prop_assert_eq!(decoded(&data, base * 64), given);
    }

    #[test]
    fn records_of_any_size_with_padding_anywhere(
        records in vec(fields(), 1..20), seed: u64, base in 0..5_000usize,
    ) {
        let mut random = Random(seed);
        let (mut data, mut given) = (Vec::new(), Vec::new());
        for (n, fields) in records.into_iter().enumerate() {
            data.extend(uneven(n, base, random.record(&fields)));
            let pads = usize::try_from(random.below(40)).unwrap();
            data.resize(data.len() + pads, 0);
            if random.below(3) == 0 {
                // An alignment packet, and garbage up to the multiple it names.
                let first = 0x20 | random.byte() & 3;
                let multiple = 2 << (first & 0xf);
                let place = base + data.len();
                let next = place / multiple * multiple + multiple - base;
                if next >= data.len() + 2 {
                    data.extend([first, 0]);
                    data.resize(next, 0xff);
                }
            }
            given.push(Ok(fields.widened()));
        }
        prop_assert_eq!(decoded(&data, base), given);
    }

    #[test]
    fn damage_costs_its_cell_only(
        records in vec(fields(), 2..20), seed: u64, garbage in any::<[u8; 32]>(),
    ) {
        let mut random = Random(seed);
        let cells: Vec<_> = records.into_iter().map(|f| cell(f, &mut random)).collect();
        // Behind the first cell, from which the iterator knows that there are cells.
        let hit = 1 + usize::try_from(random.below(cells.len() as u64 - 1)).unwrap();
        let mut data: Vec<u8> = cells.iter().flat_map(|(bytes, _)| *bytes).collect();
        data[hit * 64..][..32].copy_from_slice(&garbage);
        let (before, rest) = data.split_at(hit * 64);
        let mut found = decoded(before, 0);
        let mut record = Record::EMPTY;
        match decode_record(&window(&rest[..64], 0), 0, &mut record) {
            Ok(Cell::Record) => found.push(Ok(Fields::of(&record))),
            Ok(Cell::Padding(next)) => prop_assume!(next <= 64),
            Err(kind) => found.push(Err(kind)),
        }
        found.extend(cells[hit + 1..].iter().map(|(_, fields)| Ok(fields.clone())));
        prop_assert_eq!(decoded(&data, 0), found);
    }

    #[test]
    fn a_short_tail_costs_the_last_record(
        records in vec(fields(), 1..10), seed: u64, in_cells: bool,
    ) {
        let mut random = Random(seed);
        let (mut data, mut ends, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for (n, fields) in records.into_iter().enumerate() {
            let (bytes, fields) = if in_cells {
                let (bytes, fields) = cell(fields, &mut random);
                (bytes.to_vec(), fields)
            } else {
                (uneven(n, 0, random.record(&fields)), fields.widened())
            };
            data.extend(bytes);
            ends.push(data.len());
            given.push(fields);
        }
        let cut = usize::try_from(random.below(data.len() as u64 + 1)).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let found = decoded(&data[..cut], 0);
        for (found, given) in found.iter().zip(&given[..whole]) {
            prop_assert_eq!(found.as_ref(), Ok(given));
        }
        match &found[whole.min(found.len())..] {
            [] => {}
            [Err(kind)] => prop_assert_eq!(*kind, BadKind::CutShort),
            more => prop_assert!(false, "{:?}", more),
        }
    }

    #[test]
    fn any_bytes_are_records_or_counted(data in vec(any::<u8>(), 0..600), base: usize) {
        let mut counts = BadCounts::default();
        let (mut records, mut items) = (0, 0);
        for item in Records::at(&data, base) {
            match item {
                Ok(_) => records += 1,
                Err(bad) => {
                    prop_assert!(bad.at <= data.len());
                    counts.add(bad.kind);
                }
            }
            items += 1;
            prop_assert!(items <= data.len());
        }
        prop_assert_eq!(records + counts.total(), items as u64);
    }

    #[test]
    fn what_lies_behind_a_cell_does_not_matter(bytes: [[u8; 32]; 2], offset: u32, behind: u8) {
        let cell = bytes.as_flattened();
        let [mut one, mut other] = [Record::EMPTY; 2];
        let first = decode_record(&window(cell, 0), offset, &mut one);
        let second = decode_record(&window(cell, behind), offset, &mut other);
        prop_assert_eq!((first, one), (second, other));
    }
}

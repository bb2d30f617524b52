//! The decoder gives back records built from random fields in random packet order; damage costs
//! only the records that it touches.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use probe_common::spe::{BadCounts, BadKind, Record, Records, Stream, WindowContent};
use proptest::{collection::vec, option, prelude::*};
use test_support::{Fields, Random};

/// Log2 of a payload's size in bytes, and a payload of this size.
fn sized(sizes: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = (u8, u64)> {
    (sizes, any::<u64>()).prop_map(|(log2, word)| (log2, word >> (64 - (8 << log2))))
}

fn fields() -> impl Strategy<Value = Fields> {
    let address = || option::of(any::<u64>());
    let addresses = (address(), address(), address(), address(), address());
    let counter = || option::of(any::<u16>());
    let counters = (counter(), counter(), counter());
    let contexts = (option::of(any::<u32>()), option::of(any::<u32>()));
    let others = (
        option::of((0..4u8, any::<u8>())),
        option::of(sized(0..=3)),
        option::of(sized(0..=3)),
        option::of(any::<u64>()),
    );
    (addresses, counters, contexts, others).prop_map(|(a, c, x, r)| Fields {
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

/// A record in a cell of its own, and those of its fields that fit.
fn cell(mut fields: Fields, random: &mut Random) -> ([u8; 64], Fields) {
    let bytes = random.cell(&mut fields);
    (bytes, fields.as_decoded())
}

/// The record that the decoder must return; None for an end packet alone, which is no record.
fn expected_record(fields: Fields) -> Option<Result<Fields, BadKind>> {
    (fields != Fields::default()).then_some(Ok(fields))
}

/// The record in one of the layouts that cores use or might use: at a multiple of 64 as Neoverse
/// cores write it, without gaps, or of any size at any offset.
fn laid_out(mut fields: Fields, place: usize, random: &mut Random) -> (Vec<u8>, Fields) {
    let word = |random: &mut Random| Some(random.word());
    let ordered = |load: bool, random: &mut Random| Fields {
        pc: word(random),
        issue_latency: Some(random.half()),
        total_latency: Some(random.half()),
        events: Some((1, random.half().into())),
        operation: Some((u8::from(load), random.byte())),
        virtual_address: load.then_some(random.word()),
        translation_latency: load.then_some(random.half()),
        timestamp: word(random),
        ..Fields::default()
    };
    match random.below(5) {
        0 => {
            let mut bytes = vec![0; place.next_multiple_of(64) - place];
            bytes.extend(random.cell(&mut fields));
            (bytes, fields)
        }
        1 => {
            let mut bytes = vec![0; place.next_multiple_of(64) - place];
            let fields = ordered(true, random);
            bytes.extend(fields.neoverse());
            (bytes, fields)
        }
        kind @ 2..4 => {
            let fields = ordered(kind == 2, random);
            let bytes = fields.dense();
            assert_eq!(bytes.len(), if kind == 2 { 44 } else { 32 });
            (bytes, fields)
        }
        _ => (random.record(&fields), fields),
    }
}

/// A window: the cell, and `behind` in each byte after it.
fn window(cell: &[u8], behind: u8) -> [u8; 72] {
    let mut window = [behind; 72];
    window[..64].copy_from_slice(cell);
    window
}

/// Decodes one window as the eBPF program does.
fn decode_window(window: &[u8; 72], place: u64, record: &mut Record) -> WindowContent {
    let place = place % (1 << 16);
    Stream::new(place, place + 64).decode(window, record)
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
        let found = decode_window(&window(&bytes, behind), offset.into(), &mut record);
        let expected = match fields == Fields::default() {
            true => WindowContent::Padding(64),
            false => WindowContent::Record,
        };
        prop_assert_eq!(found, expected);
        prop_assert_eq!(Fields::of(&record), fields);
        prop_assert_eq!(record.skipped(), 0);
    }

    #[test]
    fn a_buffer_of_cells_gives_its_records_back(
        records in vec(fields(), 1..20), seed: u64, base in 0..100usize,
    ) {
        let mut random = Random(seed);
        let (mut data, mut expected) = (Vec::new(), Vec::new());
        for fields in records {
            let (bytes, fields) = cell(fields, &mut random);
            data.extend(bytes);
            expected.extend(expected_record(fields));
            // The driver pads with zeros, in whole cells here.
            if random.below(4) == 0 {
                data.resize(data.len() + 64, 0);
            }
        }
        prop_assert_eq!(decoded(&data, base * 64), expected);
    }

    #[test]
    fn any_mix_of_layouts_and_padding_is_decoded(
        records in vec(fields(), 1..20), seed: u64, base in 0..5_000usize,
    ) {
        let mut random = Random(seed);
        let (mut data, mut expected) = (Vec::new(), Vec::new());
        for fields in records {
            let (bytes, fields) = laid_out(fields, base + data.len(), &mut random);
            data.extend(bytes);
            let pads = usize::try_from(random.below(3) * random.below(60)).unwrap();
            data.resize(data.len() + pads, 0);
            if random.below(6) == 0 {
                // An alignment packet, and garbage up to the multiple that the packet names.
                let first = 0x20 | random.byte() & 3;
                let multiple = 2 << (first & 0xf);
                let place = base + data.len();
                let next = place / multiple * multiple + multiple - base;
                if next >= data.len() + 2 {
                    data.extend([first, 0]);
                    data.resize(next, 0xff);
                }
            }
            expected.extend(expected_record(fields.as_decoded()));
        }
        prop_assert_eq!(decoded(&data, base), expected);
    }

    #[test]
    fn damage_costs_its_cell_only(
        records in vec(fields(), 2..20), seed: u64, garbage in any::<[u8; 32]>(),
    ) {
        let mut random = Random(seed);
        let cells: Vec<_> = records.into_iter().map(|f| cell(f, &mut random)).collect();
        // The damage is after the first cell, which shows the iterator that records fill cells.
        let hit = 1 + usize::try_from(random.below(cells.len() as u64 - 1)).unwrap();
        let mut data: Vec<u8> = cells.iter().flat_map(|(bytes, _)| *bytes).collect();
        data[hit * 64..][..32].copy_from_slice(&garbage);
        let mut record = Record::EMPTY;
        let place = 64 * hit as u64;
        let alone = decode_window(&window(&data[hit * 64..][..64], 0), place, &mut record);
        // If the garbage hit the end of the record, the damaged record may reach into the next
        // cell.
        let (lost_after, of_hit_cell) = match alone {
            WindowContent::Padding(64) => (0, Some(vec![])),
            WindowContent::Bad { kind, .. } if kind != BadKind::CutShort => {
                (0, Some(vec![Err(kind)]))
            }
            WindowContent::Padding(65..) => return Err(TestCaseError::reject("alignment")),
            _ => (1, None),
        };
        let intact = |range: std::ops::Range<usize>| {
            cells[range].iter().filter_map(|(_, fields)| expected_record(fields.clone()))
        };
        let found = decoded(&data, 0);
        let before: Vec<_> = intact(0..hit).collect();
        let after: Vec<_> = intact((hit + 1 + lost_after).min(cells.len())..cells.len()).collect();
        prop_assert!(found.starts_with(&before), "{:?}", alone);
        prop_assert!(found.ends_with(&after), "{:?}", alone);
        if let Some(own) = of_hit_cell {
            prop_assert_eq!(found, [before, own, after].concat());
        }
    }

    #[test]
    fn truncation_costs_only_the_last_record(
        records in vec(fields(), 1..10), seed: u64, in_cells: bool,
    ) {
        let mut random = Random(seed);
        let (mut data, mut ends, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for fields in records {
            let (bytes, fields) = if in_cells {
                let (bytes, fields) = cell(fields, &mut random);
                (bytes.to_vec(), fields)
            } else {
                (random.record(&fields), fields.as_decoded())
            };
            data.extend(bytes);
            if fields != Fields::default() {
                ends.push(data.len());
                expected.push(fields);
            }
        }
        let cut = usize::try_from(random.below(data.len() as u64 + 1)).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let found = decoded(&data[..cut], 0);
        for (found, expected) in found.iter().zip(&expected[..whole]) {
            prop_assert_eq!(found.as_ref(), Ok(expected));
        }
        match &found[whole.min(found.len())..] {
            [] => {}
            [Err(kind)] => prop_assert_eq!(*kind, BadKind::CutShort),
            others => prop_assert!(false, "{:?}", others),
        }
    }

    #[test]
    fn any_bytes_give_records_or_counted_damage(data in vec(any::<u8>(), 0..600), base: usize) {
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
    fn bytes_after_a_cell_are_ignored(bytes: [[u8; 32]; 2], offset: u32, behind: u8) {
        let cell = bytes.as_flattened();
        let [mut one, mut other] = [Record::EMPTY; 2];
        let first = decode_window(&window(cell, 0), offset.into(), &mut one);
        let second = decode_window(&window(cell, behind), offset.into(), &mut other);
        prop_assert_eq!((first, one), (second, other));
    }
}

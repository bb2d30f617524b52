//! Damaged data: the decoder detects each kind of damage, names it, and continues after it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use probe_common::spe::{BadCounts, BadKind, Records, SourceTable};

/// Decodes a cell that begins with these bytes, followed by zeros: each record, good or bad.
fn decode(bytes: &[u8]) -> Vec<Result<(), BadKind>> {
    let mut cell = [0; 64];
    cell[..bytes.len()].copy_from_slice(bytes);
    let found = Records::new(&cell).map(|item| item.map(drop).map_err(|bad| bad.kind));
    found.collect()
}

/// A load's operation packet, padding, and the end in the last byte of the cell.
fn good() -> [u8; 64] {
    let mut cell = [0; 64];
    cell[0] = 0x49;
    cell[63] = 0x01;
    cell
}

#[test]
fn every_kind_of_damage_in_a_cell_is_detected() {
    assert_eq!(decode(&good()), [Ok(())]);
    assert_eq!(decode(&[0; 64]), []);
    assert_eq!(decode(&[0xff]), [Err(BadKind::Header)]);
    assert_eq!(decode(&[0x20, 0x48]), [Err(BadKind::ExtendedHeader)]);
    assert_eq!(decode(&[0x49, 0x00]), [Err(BadKind::CutShort)]);
    // An address packet that reaches past the cell.
    let mut cell = [0; 64];
    cell[58] = 0xb0;
    assert_eq!(decode(&cell), [Err(BadKind::CutShort)]);
    // An extended header as the last byte.
    cell[58] = 0;
    cell[63] = 0x20;
    assert_eq!(decode(&cell), [Err(BadKind::CutShort)]);
}

/// An end packet alone ends no record, wherever it is (DDI 0487, D18.2).
#[test]
fn an_end_alone_is_no_record() {
    assert_eq!(decode(&[0x01]), []);
    assert_eq!(decode(&[0x49, 0x00, 0x01, 0x01, 0x00, 0x01]), [Ok(())]);
    let mut cells = good().to_vec();
    cells.extend([0x01; 64]);
    cells.extend(good());
    assert_eq!(Records::new(&cells).count(), 2);
}

#[test]
fn every_first_byte_is_a_packet_or_bad() {
    let begins_packet = |b: u8| {
        matches!(
            b,
            0x00 | 0x01 | 0x20..=0x23 | 0x48..=0x4b | 0x64..=0x67 | 0x71 | 0x98..=0x9f | 0xb0..=0xb7
        ) || matches!(b & 0xcf, 0x42 | 0x43)
    };
    for first in 0..=u8::MAX {
        let outcome = decode(&[first, 0x00]);
        assert_eq!(
            outcome.first() == Some(&Err(BadKind::Header)),
            !begins_packet(first),
            "{first:#x}: {outcome:?}"
        );
    }
}

#[test]
fn alignment_packets_lead_to_the_next_multiple() {
    for low in 0..4 {
        let boundary = 2 << low;
        let mut bytes = [0; 64];
        bytes[..2].copy_from_slice(&[0x20 | low, 0x00]);
        // Any bytes may be between the packet and the multiple.
        bytes[2..boundary.max(2)].fill(0xff);
        bytes[boundary.max(2)] = 0x49;
        bytes[63] = 0x01;
        assert_eq!(decode(&bytes), [Ok(())], "{low}");
    }
}

#[test]
fn bad_records_are_counted_by_kind() {
    let mut counts = BadCounts::default();
    for (n, kind) in BadKind::ALL.into_iter().enumerate() {
        for _ in 0..=n {
            counts.add(kind);
        }
    }
    for (n, kind) in (1..).zip(BadKind::ALL) {
        assert_eq!(counts.get(kind), n, "{}", kind.name());
    }
    assert_eq!(counts.total(), 10);
}

#[test]
fn damage_stays_in_its_cell() {
    let mut data = [good(), good(), good(), good()].concat();
    data[64..128].fill(0xff);
    let found: Vec<_> = Records::new(&data).collect();
    let kinds: Vec<_> = found.iter().map(|item| item.map(drop)).collect();
    let bad = kinds[1].unwrap_err();
    assert_eq!((bad.at, bad.kind), (64, BadKind::Header));
    assert_eq!(kinds, [Ok(()), Err(bad), Ok(()), Ok(())]);
    assert_eq!(
        bad.to_string(),
        "SPE data at byte 64: a byte that begins no packet; the record is left out"
    );
}

#[test]
fn damage_in_the_first_cell_costs_that_cell() {
    let mut data = [good(), good(), good()].concat();
    data[5] = 0xff;
    let found: Vec<_> = Records::new(&data).map(|item| item.is_ok()).collect();
    assert_eq!(found, [false, true, true]);
}

#[test]
fn damage_between_records_of_other_sizes_ends_with_the_next_end() {
    let record = [0x49, 0x00, 0x98, 0x07, 0x00, 0x01];
    let mut data = record.repeat(5);
    // The second record's operation packet.
    data[6..8].fill(0xff);
    let found: Vec<_> = Records::new(&data).collect();
    assert_eq!(found.len(), 5);
    let bad = found[1].unwrap_err();
    assert_eq!((bad.at, bad.kind), (6, BadKind::Header));
    assert!(found.iter().filter(|item| item.is_ok()).count() == 4);
}

#[test]
fn records_longer_than_a_window_are_decoded() {
    let mut record = vec![0x49, 0x00];
    record.resize(150, 0);
    record.extend([0x98, 0x07, 0x00, 0x01]);
    let data = record.repeat(3);
    for item in Records::new(&data) {
        let record = item.unwrap();
        assert_eq!(record.total_latency(), Some(7));
        assert!(record.operation().is_some());
    }
    assert_eq!(Records::new(&data).count(), 3);
}

#[test]
fn a_record_without_end_is_unterminated() {
    let mut data = vec![0x49, 0x00];
    data.resize(4096, 0);
    data.extend(good());
    data.extend([0x49, 0x00, 0x01]);
    let found: Vec<_> = Records::new(&data).collect();
    let kinds: Vec<_> = found
        .iter()
        .map(|item| item.map(drop).map_err(|bad| (bad.at, bad.kind)))
        .collect();
    assert_eq!(kinds, [Err((0, BadKind::Unterminated)), Ok(()), Ok(())]);
}

/// If the end of a record is lost, its packets are followed by those of the next record, which
/// repeat some kinds.
#[test]
fn a_record_without_end_does_not_damage_the_next() {
    let load = |latency| {
        let mut cell = good();
        cell[2..5].copy_from_slice(&[0x98, latency, 0x00]);
        cell
    };
    let mut data = [load(1), load(2), load(3)].concat();
    data[127] = 0;
    let found: Vec<_> = Records::new(&data)
        .map(|item| {
            item.map(|record| record.total_latency())
                .map_err(|bad| (bad.at, bad.kind))
        })
        .collect();
    assert_eq!(
        found,
        [Ok(Some(1)), Err((64, BadKind::Unterminated)), Ok(Some(3))]
    );
}

/// One record of another layout does not affect the records after it. The first of 10,001 records
/// fills a cell, and the others have no gaps.
#[test]
fn the_first_record_does_not_decide_the_layout() {
    let dense = [0x49, 0x00, 0x98, 0x07, 0x00, 0x00, 0x00, 0x00].into_iter();
    let dense: Vec<u8> = dense.chain([0x71, 1, 2, 3, 4, 5, 6, 7, 8]).collect();
    let data = [good().to_vec(), dense.repeat(10_000)].concat();
    assert_eq!(Records::new(&data).filter(Result::is_ok).count(), 10_001);
    assert_eq!(Records::new(&data).count(), 10_001);
}

#[test]
fn alignment_counts_from_the_start_of_the_buffer() {
    // At offset 100 of the buffer, the alignment packet leads to 112, a multiple of 2^4, with
    // garbage in between.
    let mut data = vec![0x49, 0x00, 0x01, 0x23, 0x00];
    data.resize(12, 0xff);
    data.extend([0x49, 0x01, 0x01]);
    let found: Vec<_> = Records::at(&data, 100).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    // At another offset the same bytes are damaged.
    assert!(Records::at(&data, 104).any(|item| item.is_err()));
}

#[test]
fn only_listed_cores_have_a_table() {
    // Neoverse V2 r0p1, AmpereOne, HIP12, Olympus; Neoverse N3 and unknown parts of Arm and NVIDIA.
    assert_eq!(
        SourceTable::for_midr(0x411f_d4f1),
        Some(SourceTable::Common)
    );
    assert_eq!(
        SourceTable::for_midr(0xc00f_ac40),
        Some(SourceTable::AmpereOne)
    );
    assert_eq!(
        SourceTable::for_midr(0x480f_d060),
        Some(SourceTable::HiSilicon)
    );
    assert_eq!(
        SourceTable::for_midr(0x4e0f_0100),
        Some(SourceTable::Common)
    );
    for midr in [0x4e0f_0040, 0x410f_d8e0, 0x410f_fff0, 0] {
        assert_eq!(SourceTable::for_midr(midr), None, "{midr:#x}");
    }
    assert_eq!(SourceTable::Common.load(0x1), None);
    assert_eq!(SourceTable::Common.load(0x100), None);
}

/// Sources of data from other cores: their caches, and lines that are reported as modified.
#[test]
fn sources_of_other_cores_are_peers() {
    let numbers = |table: SourceTable| -> Vec<u32> {
        let peers = table.peers();
        (0..64).filter(|number| peers >> number & 1 != 0).collect()
    };
    assert_eq!(numbers(SourceTable::Common), [0x9, 0xa, 0xc, 0xd]);
    assert_eq!(numbers(SourceTable::AmpereOne), [0x0, 0x5]);
    assert_eq!(numbers(SourceTable::HiSilicon), [0, 1, 3, 4, 5, 6, 7, 17]);
}

//! Published records and packets decode to their published meaning.
//!
//! Source: tests/fixtures/spe/README.md; the packets and the frame are those of
//! `test_spe_decoder.py` and `test_payload.py` of the same repository.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use probe_common::spe::{
    BadKind, Branch, Class, Events, ExceptionLevel, LoadStoreKind, Operation, Record, Records,
    SecurityState, Source, SourceTable, Stream, WindowContent,
};

/// The bytes of a text of hexadecimal pairs, comments left out.
fn bytes(text: &str) -> Vec<u8> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn only_record(data: &[u8]) -> Record {
    let mut records = Records::new(data);
    let record = records.next().unwrap().unwrap();
    assert_eq!(records.next(), None);
    record
}

/// The record of these packets, with an end packet appended.
fn packets(text: &str) -> Record {
    only_record(&[bytes(text), vec![0x01]].concat())
}

fn branch(record: &Record) -> Branch {
    match record.operation() {
        Some(Operation::Branch(branch)) => branch,
        other => panic!("not a branch: {other:?}"),
    }
}

#[test]
fn recorded_branches_are_decoded() {
    let end = bytes(include_str!("../../tests/fixtures/spe/branch-end.hex"));
    let timestamp = bytes(include_str!(
        "../../tests/fixtures/spe/branch-timestamp.hex"
    ));
    for (data, issue, total, time) in [
        (&end, 39, 40, None),
        (&timestamp, 41, 42, Some(3_913_207_673_451)),
    ] {
        let record = only_record(data);
        let pc = record.pc().unwrap();
        assert_eq!(pc.address(), 0x7ffd_bf21_43e0);
        assert_eq!(
            (pc.level(), pc.state()),
            (ExceptionLevel::El0, SecurityState::NonSecure)
        );
        assert!(branch(&record).is_conditional() && !branch(&record).is_indirect());
        let target = record.branch_target().unwrap();
        assert_eq!(target.address(), 0x7ffd_bf21_4408);
        assert_eq!(target.level(), ExceptionLevel::El0);
        assert_eq!(record.events(), Some(Events::RETIRED));
        assert_eq!(record.issue_latency(), Some(issue));
        assert_eq!(record.total_latency(), Some(total));
        assert_eq!(record.timestamp(), time);
        // What the record does not hold is absent, not zero.
        assert_eq!(record.thread(), None);
        assert_eq!(record.virtual_address(), None);
        assert_eq!(record.data_source(), None);
        assert_eq!(record.translation_latency(), None);
    }
    // Both cells as one buffer.
    let both: Vec<_> = Records::new(&[end, timestamp].concat()).collect();
    assert_eq!(both.len(), 2);
    assert!(both.iter().all(Result::is_ok));
}

#[test]
fn published_addresses_are_decoded() {
    let pc = packets("b0 5c 8b 8c 86 c2 c0 ff c0").pc().unwrap();
    assert_eq!(pc.address(), 0xffff_c0c2_868c_8b5c);
    assert_eq!(
        (pc.level(), pc.state()),
        (ExceptionLevel::El2, SecurityState::NonSecure)
    );
    let target = packets("b1 e0 89 8c 86 c2 c0 ff c0").branch_target();
    assert_eq!(target.unwrap().address(), 0xffff_c0c2_868c_89e0);
    let va = packets("b2 c0 26 c2 07 20 fc ff 00").virtual_address();
    assert_eq!(va.unwrap().address(), 0xffff_fc20_07c2_26c0);
    assert_eq!(va.unwrap().tag(), 0);
    let pa = packets("b3 e8 09 8a d8 0b 08 00 80").physical_address();
    let pa = pa.unwrap();
    assert_eq!(pa.address(), 0x80b_d88a_09e8);
    assert_eq!(pa.space(), SecurityState::NonSecure);
    assert!(!pa.tag_checked() && pa.tag() == 0);
}

/// NS and NSE, bits 63 and 60: with RME there are four states, and a realm is not non-secure.
#[test]
fn all_security_states_are_decoded() {
    for (top, state) in [
        ("00", SecurityState::Secure),
        ("80", SecurityState::NonSecure),
        ("10", SecurityState::Root),
        ("90", SecurityState::Realm),
    ] {
        let [pc, pa] =
            ["b0", "b3"].map(|header| packets(&format!("{header} 40 00 00 00 00 00 00 {top}")));
        assert_eq!(pc.pc().unwrap().state(), state);
        assert_eq!(pa.physical_address().unwrap().space(), state);
        assert_eq!(pa.physical_address().unwrap().address(), 0x40);
    }
    // Addresses of a realm's kernel (EL1) have their top byte filled with ones as well.
    let kernel = packets("b0 40 00 00 00 00 80 ff b0").pc().unwrap();
    assert_eq!(
        (kernel.level(), kernel.address()),
        (ExceptionLevel::El1, 0xffff_8000_0000_0040)
    );
}

#[test]
fn published_counters_and_timestamps_are_decoded() {
    assert_eq!(packets("99 07 00").issue_latency(), Some(7));
    assert_eq!(packets("98 0b 00").total_latency(), Some(11));
    assert_eq!(packets("9a 01 00").translation_latency(), Some(1));
    // Index 4, also with an extended header: cycles of the alternate clock.
    for text in ["9c 05 00", "20 9c 05 00"] {
        let record = packets(text);
        assert_eq!(record.alternate_issue_latency(), Some(5));
        assert_eq!((record.issue_latency(), record.skipped()), (None, 0));
    }
    let time = only_record(&bytes("71 6c f8 a5 83 00 0c 00 00"));
    assert_eq!(time.timestamp(), Some(13_196_348_225_644));
    assert_eq!(packets("43 00").data_source(), Some(0));
}

#[test]
fn published_operations_are_decoded() {
    let access = |text| match packets(text).operation() {
        Some(Operation::LoadStore(op)) => (op.is_store(), op.kind()),
        other => panic!("not a load or store: {other:?}"),
    };
    assert_eq!(access("49 00"), (false, LoadStoreKind::General));
    assert_eq!(access("49 01"), (true, LoadStoreKind::General));
    assert_eq!(access("49 05"), (true, LoadStoreKind::SimdFp));
    let ordered = LoadStoreKind::Ordered {
        atomic: true,
        exclusive: false,
        acquire_release: true,
    };
    assert_eq!(access("49 16"), (false, ordered));
    // As in perf, LDST is 0 for an atomic that returns a value, and 1 for one that returns none.
    let class = |text| Class::from_record(&packets(text));
    assert_eq!(
        [class("49 16"), class("49 17")],
        [Class::Load, Class::Store]
    );
    assert!(branch(&packets("4a 01")).is_conditional());
    assert!(branch(&packets("4a 02")).is_indirect());
}

#[test]
fn published_events_are_decoded() {
    let events = |text| packets(text).events().unwrap();
    assert_eq!(events("52 02 00"), Events::RETIRED);
    let load = events("52 16 00");
    for event in [Events::RETIRED, Events::L1D_ACCESS, Events::TLB_ACCESS] {
        assert!(load.contains(event));
    }
    assert_eq!(load.bits().count_ones(), 3);
    assert!(events("52 42 00").contains(Events::NOT_TAKEN));
    let miss = events("52 1e 03");
    assert!(miss.contains(Events::L1D_REFILL));
    assert!(miss.contains(Events::LLC_ACCESS) && miss.contains(Events::LLC_MISS));
    assert_eq!(miss.bits().count_ones(), 6);
}

/// A timestamp that ends a record, then a load of an N1 whose own end is cut off.
#[test]
fn a_published_frame_is_decoded() {
    let frame = bytes(
        "71 af f9 04 81 00 0c 00 00 b0 00 b6 a9 e4 aa aa 00 80 49 00 52 16 00 99 04 00 98 08 00
         b2 43 da 5d e6 aa aa 00 00 9a 01 00 b3 43 5a 95 2c 03 08 00 80 43 00",
    );
    let mut records = Records::new(&frame);
    let first = records.next().unwrap().unwrap();
    assert_eq!(first.timestamp(), Some(13_196_304_120_239));
    let cut = records.next().unwrap().unwrap_err();
    assert_eq!((cut.kind, cut.at), (BadKind::CutShort, frame.len()));
    assert_eq!(records.next(), None);

    // The load alone, with the timestamp packet as its end.
    let load = only_record(&[&frame[9..], &frame[..9]].concat());
    assert_eq!(load.pc().unwrap().address(), 0xaaaa_e4a9_b600);
    assert_eq!(load.virtual_address().unwrap().address(), 0xaaaa_e65d_da43);
    assert_eq!(load.physical_address().unwrap().address(), 0x803_2c95_5a43);
    assert_eq!(load.issue_latency(), Some(4));
    assert_eq!(load.total_latency(), Some(8));
    assert_eq!(load.translation_latency(), Some(1));
    assert_eq!(load.timestamp(), Some(13_196_304_120_239));
    // Recorded on an Altra (Neoverse N1).
    let table = SourceTable::for_midr(0x413f_d0c1).unwrap();
    let origin = table.load(load.data_source().unwrap()).unwrap();
    assert_eq!(origin.source, Source::L1d);
}

#[test]
fn the_kernel_decodes_a_recorded_cell_like_user_space() {
    let data = bytes(include_str!("../../tests/fixtures/spe/branch-end.hex"));
    let mut window = [0xff; 72];
    window[..64].copy_from_slice(&data);
    let mut record = Record::EMPTY;
    let found = Stream::new(0, 64).decode(&window, &mut record);
    assert_eq!(found, WindowContent::Record);
    assert_eq!(record, only_record(&data));
}

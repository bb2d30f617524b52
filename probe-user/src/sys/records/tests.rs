//! Parses records as the kernel writes them, damaged records, and random bytes.

use proptest::prelude::*;

use super::{
    body::{words, words32},
    *,
};

const TRAILER: [u8; 16] = *b"sixteen bytes...";

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, (kind, 0), body, &TRAILER);
    record
}

#[test]
fn each_type_gives_its_fields() {
    let comm = [&words32(&[10, 11])[..], b"name\0\0\0\0"].concat();
    let task = words32(&[10, 1, 11, 2, 0, 0]);
    let cases = [
        (
            bindings::PERF_RECORD_AUX,
            words(&[64, 128, 9]),
            PerfRecord::Aux {
                offset: 64,
                size: 128,
                flags: 9,
            },
        ),
        (
            bindings::PERF_RECORD_LOST,
            words(&[7, 12]),
            PerfRecord::Lost(12),
        ),
        (
            bindings::PERF_RECORD_COMM,
            comm,
            PerfRecord::Comm {
                pid: 10,
                tid: 11,
                name: b"name",
                exec: false,
            },
        ),
        (
            bindings::PERF_RECORD_FORK,
            task.clone(),
            PerfRecord::Fork(Task {
                pid: 10,
                tid: 11,
                parent: 1,
                parent_tid: 2,
            }),
        ),
        (
            bindings::PERF_RECORD_EXIT,
            task,
            PerfRecord::Exit(Task {
                pid: 10,
                tid: 11,
                parent: 1,
                parent_tid: 2,
            }),
        ),
        (
            bindings::PERF_RECORD_MMAP2,
            [
                &words(&[10, 4096, 8192, 512, 0x3_0000_0008, 7, 0, 5])[..],
                b"/a b\0\0\0\0",
            ]
            .concat(),
            PerfRecord::Map(Map {
                pid: 10,
                start: 4096,
                size: 8192,
                offset: 512,
                build_id: None,
                inode: Some(Inode {
                    major: 8,
                    minor: 3,
                    number: 7,
                }),
                executable: true,
                name: b"/a b",
            }),
        ),
        (
            bindings::PERF_RECORD_THROTTLE,
            vec![0; 72],
            PerfRecord::Other,
        ),
    ];
    let bytes: Vec<u8> = cases
        .iter()
        .flat_map(|(kind, body, _)| record(*kind, body))
        .collect();
    let mut records = PerfRecords::<16>::new(&bytes);
    for (_, _, record) in &cases {
        assert_eq!(records.next(), Some((*record, &TRAILER)));
    }
    assert_eq!((records.next(), records.damaged), (None, 0));
}

#[test]
fn flags_mark_an_exec_and_a_build_id() {
    let mut comm = Vec::new();
    let body = [&words32(&[10, 10])[..], b"name\0\0\0\0"].concat();
    put(
        &mut comm,
        (bindings::PERF_RECORD_COMM, 1 << 13),
        &body,
        &TRAILER,
    );
    let mut records = PerfRecords::<16>::new(&comm);
    let parsed = records.next().map(|(record, _)| record);
    assert!(
        matches!(parsed, Some(PerfRecord::Comm { exec: true, .. })),
        "{parsed:?}"
    );

    let id: Vec<u8> = (1..=20).collect();
    let begin = words(&[10, 4096, 8192, 0]);
    let end = [&words32(&[1, 2])[..], b"/data\0\0\0"].concat();
    // A size above 20 is cut to 20.
    for (size, length) in [(20, 20), (8, 8), (255, 20)] {
        let body = [&begin[..], &[size, 0, 0, 0], &id, &end].concat();
        let mut map = Vec::new();
        put(
            &mut map,
            (bindings::PERF_RECORD_MMAP2, 1 << 14),
            &body,
            &TRAILER,
        );
        let mut records = PerfRecords::<16>::new(&map);
        let Some((PerfRecord::Map(map), _)) = records.next() else {
            panic!("no mapping")
        };
        assert_eq!(map.build_id, Some(&id[..length]));
        assert_eq!((map.executable, map.name), (false, &b"/data"[..]));
    }
}

#[test]
fn a_record_shorter_than_its_type_ends_the_bytes() {
    let whole = record(bindings::PERF_RECORD_LOST, &words(&[7, 1]));
    let short = record(bindings::PERF_RECORD_AUX, &words(&[64]));
    let bytes = [&whole[..], &short, &whole].concat();
    let mut records = PerfRecords::<16>::new(&bytes);
    assert_eq!(records.next(), Some((PerfRecord::Lost(1), &TRAILER)));
    assert_eq!(records.next(), None);
    assert_eq!(records.damaged, short.len() + whole.len());
}

proptest! {
    #[test]
    fn every_byte_is_a_record_or_damage(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        has_valid_size in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if has_valid_size && bytes.len() >= 48 {
            let size = u16::try_from(bytes.len() / 8 * 8).unwrap();
            bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        }
        let mut records = PerfRecords::<16>::new(&bytes);
        let count = records.by_ref().count();
        prop_assert!(records.damaged + count * (HEADER + TRAILER.len()) <= bytes.len());
        prop_assert!(count > 0 || records.damaged == bytes.len());
    }
}

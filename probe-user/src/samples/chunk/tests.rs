//! Parquet's own reader must read the chunks as they were written.

use std::{fs::File, sync::Arc};

use parquet::{
    basic::{Repetition, Type as Physical},
    data_type::{Int32Type, Int64Type},
    file::{
        properties::WriterProperties,
        reader::{FileReader as _, SerializedFileReader},
        writer::SerializedFileWriter,
    },
    record::Field,
    schema::types::Type,
};
use proptest::prelude::*;

use super::*;
use crate::samples::column_buffers::Presence;

/// The values that Parquet's reader reads from a file with one column of `values`.
fn read_back(values: &[Option<i64>]) -> Option<Vec<Option<i64>>> {
    let present: Vec<i64> = values.iter().copied().flatten().collect();
    let (dictionary, indices) = match present.is_empty() {
        true => (Dictionary::default(), Vec::new()),
        false => dictionary_encoded::<Int64Type>(&present)?,
    };
    let mut presence = Presence::default();
    // Adds batches, as a recording does.
    for batch in values.chunks(100) {
        let count = batch.iter().flatten().count();
        presence.add(batch.len(), count, batch.iter().map(Option::is_some));
    }
    let column = Type::primitive_type_builder("x", Physical::INT64)
        .with_repetition(Repetition::OPTIONAL)
        .build()
        .unwrap();
    let schema = Type::group_type_builder("all").with_fields(vec![Arc::new(column)]);
    let file = tempfile::tempfile().unwrap();
    let mut writer = SerializedFileWriter::new(
        file.try_clone().unwrap(),
        Arc::new(schema.build().unwrap()),
        Arc::new(WriterProperties::default()),
    )
    .unwrap();
    let column = writer.schema_descr().column(0);
    let mut group = writer.next_row_group().unwrap();
    append(&mut group, &column, presence.levels(), &indices, dictionary).unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    Some(read(file))
}

fn read(file: File) -> Vec<Option<i64>> {
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    let field = |field: &Field| match field {
        Field::Long(value) => Some(*value),
        Field::Null => None,
        other => panic!("{other:?}"),
    };
    rows.map(|row| field(row.unwrap().get_column_iter().next().unwrap().1))
        .collect()
}

/// Runs of equal values, some of them null, with at most `distinct` different values.
fn column(distinct: u64) -> impl Strategy<Value = Vec<Option<i64>>> {
    let value = (0..distinct).prop_map(|n| (n * 0x1234_5678_9abc).cast_signed());
    let run = (value, 1..20_usize, prop::bool::weighted(0.8))
        .prop_map(|(value, count, is_present)| vec![is_present.then_some(value); count]);
    prop::collection::vec(run, 1..400).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Numbers of distinct values around 2, and around 256, where an index no longer fits a byte.
    #[test]
    fn values_are_read_as_written(
        values in prop_oneof![column(1), column(2), column(3), column(256), column(257)]
    ) {
        if let Some(read) = read_back(&values) {
            prop_assert_eq!(read, values);
        }
    }
}

/// Indices of all widths, in packed groups, with an incomplete last group.
#[test]
fn every_width_is_read_back() {
    for distinct in [
        1_u32, 2, 3, 4, 5, 8, 9, 255, 256, 257, 511, 512, 513, 2047, 2048,
    ] {
        let mut state = 1_u32;
        let scattered = (0..distinct * 5 + 3).map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Each value occurs at least once.
            let value = if at < distinct {
                at
            } else {
                (state >> 8) % distinct
            };
            Some(i64::from(value) - 7)
        });
        let values: Vec<Option<i64>> = scattered.collect();
        assert_eq!(read_back(&values), Some(values), "{distinct}");
    }
    assert_eq!(read_back(&[None; 9]), Some(vec![None; 9]));
}

#[test]
fn too_many_distinct_values_get_no_dictionary() {
    let values: Vec<i32> = (0..8 * 2049).map(|n| n % 2049).collect();
    assert!(dictionary_encoded::<Int32Type>(&values).is_none());
    assert!(dictionary_encoded::<Int32Type>(&values[..2048]).is_none());
    assert!(dictionary_encoded::<Int32Type>(&[5; 3]).is_none());
    let (dictionary, indices) = dictionary_encoded::<Int32Type>(&[5; 4]).unwrap();
    assert_eq!((dictionary.count, indices), (1, vec![0; 4]));
}

//! Encodes two kinds of column chunks: those with few distinct values, and those with nulls only.
//! This saves time: the parquet crate hashes every value and visits the definition level of every
//! row.

use std::fs::File;

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, EncodingMask},
    column::{
        page::{CompressedPage, Page, PageWriter as _},
        writer::ColumnCloseResult,
    },
    data_type::DataType,
    errors::ParquetError,
    file::{
        metadata::ColumnChunkMetaData,
        writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite},
    },
    schema::types::ColumnDescPtr,
};

use super::column_buffers::Levels;

/// Number of values in a bit-packed group.
const GROUP: usize = 8;

/// Maximum number of distinct values in a dictionary: the lookup table must fit the first-level
/// cache.
const MAX_DISTINCT: usize = 2048;

/// Number of slots of the lookup table: at least half of them stay free.
const SLOTS: usize = 2 * MAX_DISTINCT;

/// Content of a free slot; other slots have the index of a value.
const FREE: u16 = u16::MAX;

/// Dictionary-encodes a column of numbers: returns the dictionary and each value's index. None if
/// more than [`MAX_DISTINCT`], or more than a quarter, of the values are distinct: plain encoding
/// is smaller then.
pub(super) fn dictionary_encoded<T: DataType>(values: &[T::T]) -> Option<(Dictionary, Vec<u16>)>
where
    T::T: Copy + DictionaryNumber,
{
    let max_distinct = MAX_DISTINCT.min(values.len() / 4);
    let mut slots = vec![FREE; SLOTS];
    let mut distinct: Vec<T::T> = Vec::with_capacity(max_distinct);
    let mut indices = Vec::with_capacity(values.len());
    let mut last = None;
    for value in values {
        let index = match last {
            Some((previous, index)) if previous == *value => index,
            _ => {
                let mut slot = value.slot();
                while slots[slot] != FREE && distinct[usize::from(slots[slot])] != *value {
                    slot = (slot + 1) % SLOTS;
                }
                if slots[slot] == FREE {
                    if distinct.len() == max_distinct {
                        return None;
                    }
                    slots[slot] = u16::try_from(distinct.len()).expect("at most MAX_DISTINCT");
                    distinct.push(*value);
                }
                slots[slot]
            }
        };
        last = Some((*value, index));
        indices.push(index);
    }
    let mut dictionary = Dictionary::default();
    for value in distinct {
        value.add_to(&mut dictionary);
    }
    Some((dictionary, indices))
}

/// Numbers that can be dictionary-encoded.
pub(super) trait DictionaryNumber {
    /// First slot to try in a table of [`SLOTS`].
    fn slot(self) -> usize;
    /// Adds this number to the values of a dictionary.
    fn add_to(self, dictionary: &mut Dictionary);
}

impl DictionaryNumber for i64 {
    fn slot(self) -> usize {
        // Multiplicative hashing: the upper bits depend on all others.
        let hash = self.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(hash >> (u64::BITS - SLOTS.ilog2())).expect("a few bits")
    }

    fn add_to(self, dictionary: &mut Dictionary) {
        dictionary.add(&self.to_le_bytes());
    }
}

impl DictionaryNumber for i32 {
    fn slot(self) -> usize {
        i64::from(self).slot()
    }

    fn add_to(self, dictionary: &mut Dictionary) {
        dictionary.add(&self.to_le_bytes());
    }
}

/// The distinct values of a column chunk, in the order of their indices.
#[derive(Default)]
pub(super) struct Dictionary {
    count: u32,
    plain: Vec<u8>,
}

impl Dictionary {
    pub(super) fn from_texts<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut dictionary = Self::default();
        for text in texts {
            let length = u32::try_from(text.len()).expect("a name or a path");
            dictionary.plain.extend(length.to_le_bytes());
            dictionary.add(text.as_bytes());
        }
        dictionary
    }

    /// Adds a value in Parquet's plain encoding.
    pub(super) fn add(&mut self, plain: &[u8]) {
        self.plain.extend(plain);
        self.count += 1;
    }

    /// Number of bits of the largest index.
    fn width(&self) -> usize {
        (u32::BITS - self.count.saturating_sub(1).leading_zeros()) as usize
    }
}

/// Writes the chunk of the next column. Its values are `indices` into `dictionary`; `levels` says
/// which rows have one.
pub(super) fn append(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column: &ColumnDescPtr,
    levels: Levels<'_>,
    indices: &[u16],
    dictionary: Dictionary,
) -> Result<(), ParquetError> {
    let mut sink = TrackedWrite::new(Vec::new());
    let mut pages = SerializedPageWriter::new(&mut sink);
    let mut encodings = vec![Encoding::RLE, Encoding::PLAIN];
    let mut encoding = Encoding::PLAIN;
    let mut dictionary_at = None;
    let rows = match levels {
        Levels::None(rows) | Levels::All(rows) => rows,
        Levels::Some(each) => each.len(),
    };
    let mut page = Vec::new();
    write_levels(levels, &mut page);
    if !indices.is_empty() {
        encoding = Encoding::RLE_DICTIONARY;
        encodings.push(encoding);
        let width = dictionary.width();
        page.push(u8::try_from(width).expect("at most 16 bits"));
        hybrid(indices, u64::from, width, &mut page);
        let length = dictionary.plain.len();
        let values = Page::DictionaryPage {
            buf: dictionary.plain.into(),
            num_values: dictionary.count,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        dictionary_at = Some(
            pages
                .write_page(CompressedPage::new(values, length))?
                .offset,
        );
    }
    let length = page.len();
    let page = Page::DataPage {
        buf: page.into(),
        num_values: u32::try_from(rows).expect("rows of a row group"),
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let data_at = pages.write_page(CompressedPage::new(page, length))?.offset;
    let bytes = Bytes::from(sink.into_inner()?);
    let size = bytes.len().cast_signed() as i64;
    let metadata = ColumnChunkMetaData::builder(column.clone())
        .set_compression(Compression::UNCOMPRESSED)
        .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
        .set_total_compressed_size(size)
        .set_total_uncompressed_size(size)
        .set_num_values(rows.cast_signed() as i64)
        .set_dictionary_page_offset(dictionary_at.map(u64::cast_signed))
        .set_data_page_offset(data_at.cast_signed())
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    group.append_column(&bytes, close)
}

/// Writes the length of the encoded definition levels in bytes, then the levels.
fn write_levels(levels: Levels<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; 4]);
    match levels {
        Levels::None(rows) => run(rows, 0, 1, out),
        Levels::All(rows) => run(rows, 1, 1, out),
        Levels::Some(each) => hybrid(each, |level| level.cast_unsigned().into(), 1, out),
    }
    let length = u32::try_from(out.len() - start - 4).expect("less than a byte for a row");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Encodes values with Parquet's RLE/bit-packing hybrid. `bits` gives the bits of a value: `width`
/// bits, at most 16.
fn hybrid<T: Copy + PartialEq>(
    values: &[T],
    bits: impl Fn(T) -> u64,
    width: usize,
    out: &mut Vec<u8>,
) {
    let mut rest = values;
    while !rest.is_empty() {
        let is_packed =
            |group: &&[T]| group.len() < GROUP || group.iter().any(|value| *value != group[0]);
        let groups = rest.chunks(GROUP).take_while(is_packed).count();
        let (to_pack, runs) = rest.split_at(rest.len().min(groups * GROUP));
        if groups > 0 {
            varint((groups as u64) << 1 | 1, out);
        }
        for group in to_pack.chunks(GROUP) {
            // Half a group has at most 64 bits.
            let half = |values: &[T]| {
                let values = values.iter().rev();
                values.fold(0, |packed, value| packed << width | bits(*value))
            };
            let (low, high) = group.split_at(group.len().min(GROUP / 2));
            let packed = u128::from(half(low)) | u128::from(half(high)) << (width * GROUP / 2);
            out.extend_from_slice(&packed.to_le_bytes()[..width]);
        }
        rest = runs;
        if let Some(value) = runs.first() {
            let count = runs.iter().take_while(|other| *other == value).count();
            run(count, bits(*value), width, out);
            rest = &runs[count..];
        }
    }
}

/// Encodes a run: `count` times the same value.
fn run(count: usize, value: u64, width: usize, out: &mut Vec<u8>) {
    varint((count as u64) << 1, out);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8)]);
}

/// Encodes a number in ULEB128.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests;

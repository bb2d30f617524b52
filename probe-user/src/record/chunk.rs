//! Column chunks that are encoded here: those whose values are few, and those of nulls alone.
//! Parquet's crate would look up every value by its hash, and every row's level.

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

use super::waiting::Levels;

/// Values that are packed together.
const GROUP: usize = 8;

/// The most different numbers of a column that is written as a dictionary: the table to look them
/// up stays in the first-level cache.
const MOST: usize = 2048;

/// Places of that table, so that half of it is free.
const PLACES: usize = 2 * MOST;

/// A place that is free.
const FREE: u16 = u16::MAX;

/// Gives every one of the numbers of a column the place of its value in a dictionary, where there
/// are few enough different ones: a quarter of all at most, since others are smaller as they are.
pub(super) fn numbered<T: DataType>(values: &[T::T]) -> Option<(Dictionary, Vec<u16>)>
where
    T::T: Copy + Bits,
{
    let most = MOST.min(values.len() / 4);
    let mut places = vec![FREE; PLACES];
    let mut held: Vec<T::T> = Vec::with_capacity(most);
    let mut numbers = Vec::with_capacity(values.len());
    let mut last = None;
    for value in values {
        let number = match last {
            Some((same, number)) if same == *value => number,
            _ => {
                let mut place = value.place();
                while places[place] != FREE && held[usize::from(places[place])] != *value {
                    place = (place + 1) % PLACES;
                }
                if places[place] == FREE {
                    if held.len() == most {
                        return None;
                    }
                    places[place] = u16::try_from(held.len()).expect("at most MOST");
                    held.push(*value);
                }
                places[place]
            }
        };
        last = Some((*value, number));
        numbers.push(number);
    }
    let mut dictionary = Dictionary::default();
    for value in held {
        value.add_to(&mut dictionary);
    }
    Some((dictionary, numbers))
}

/// A number by its bits.
pub(super) trait Bits {
    /// Where to look first in a table of [`PLACES`].
    fn place(self) -> usize;
    /// Adds it to the values of a dictionary.
    fn add_to(self, dictionary: &mut Dictionary);
}

impl Bits for i64 {
    fn place(self) -> usize {
        // Multiplicative hashing: the upper bits depend on all others.
        let hash = self.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(hash >> (u64::BITS - PLACES.ilog2())).expect("a few bits")
    }

    fn add_to(self, dictionary: &mut Dictionary) {
        dictionary.add(&self.to_le_bytes());
    }
}

impl Bits for i32 {
    fn place(self) -> usize {
        i64::from(self).place()
    }

    fn add_to(self, dictionary: &mut Dictionary) {
        dictionary.add(&self.to_le_bytes());
    }
}

/// The values that a column chunk has, each once, in the order of their numbers.
#[derive(Default)]
pub(super) struct Dictionary {
    count: u32,
    plain: Vec<u8>,
}

impl Dictionary {
    pub(super) fn of_texts<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut dictionary = Self::default();
        for text in texts {
            let length = u32::try_from(text.len()).expect("a name or a path");
            dictionary.plain.extend(length.to_le_bytes());
            dictionary.add(text.as_bytes());
        }
        dictionary
    }

    /// Adds a value by its bytes in Parquet's plain encoding.
    pub(super) fn add(&mut self, plain: &[u8]) {
        self.plain.extend(plain);
        self.count += 1;
    }

    /// Bits of the largest number.
    fn width(&self) -> usize {
        (u32::BITS - self.count.saturating_sub(1).leading_zeros()) as usize
    }
}

/// Writes a chunk of the next column: the values in `dictionary` with these numbers.
pub(super) fn append(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column: &ColumnDescPtr,
    levels: Levels<'_>,
    numbers: &[u16],
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
    if !numbers.is_empty() {
        encoding = Encoding::RLE_DICTIONARY;
        encodings.push(encoding);
        let width = dictionary.width();
        page.push(u8::try_from(width).expect("at most 16 bits"));
        hybrid(numbers, u64::from, width, &mut page);
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

/// Writes which rows have a value, with the length before it.
fn write_levels(levels: Levels<'_>, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend([0; 4]);
    match levels {
        Levels::None(rows) => run(rows, 0, 1, out),
        Levels::All(rows) => run(rows, 1, 1, out),
        Levels::Some(each) => hybrid(each, |level| level.cast_unsigned().into(), 1, out),
    }
    let length = u32::try_from(out.len() - from - 4).expect("less than a byte for a row");
    out[from..from + 4].copy_from_slice(&length.to_le_bytes());
}

/// Parquet's hybrid of runs and packed bits, of at most 16 bits for a value.
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
        let (packed, runs) = rest.split_at(rest.len().min(groups * GROUP));
        if groups > 0 {
            varint((groups as u64) << 1 | 1, out);
        }
        for group in packed.chunks(GROUP) {
            // Half a group has at most 64 bits.
            let half = |values: &[T]| {
                let values = values.iter().rev();
                values.fold(0, |all, value| all << width | bits(*value))
            };
            let (low, high) = group.split_at(group.len().min(GROUP / 2));
            let all = u128::from(half(low)) | u128::from(half(high)) << (width * GROUP / 2);
            out.extend_from_slice(&all.to_le_bytes()[..width]);
        }
        rest = runs;
        if let Some(value) = runs.first() {
            let count = runs.iter().take_while(|other| *other == value).count();
            run(count, bits(*value), width, out);
            rest = &runs[count..];
        }
    }
}

fn run(count: usize, value: u64, width: usize, out: &mut Vec<u8>) {
    varint((count as u64) << 1, out);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8)]);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests;

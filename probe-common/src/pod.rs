//! Plain-old-data structures shared with the kernel side: the `pod!` macro and the traits
//! [`Plain`] and [`Field`]. The kernel stores them as they are in memory, and user space reads them
//! back field by field, without `unsafe` or a cast.

/// A key or value of a map: a number, or a structure defined by `pod!`.
pub trait Plain: Field {
    /// The same bytes as an integer, or as an array of 64-bit words.
    type Raw: Copy;

    /// From the kernel's representation.
    fn from_raw(raw: &Self::Raw) -> Self;
    /// To the kernel's representation.
    fn to_raw(&self) -> Self::Raw;
}

/// A field of a structure of words: a number, an array of fields, or another structure of words.
pub trait Field: Copy {
    /// All bytes zero.
    const ZERO: Self;

    /// Reads the next field of a structure.
    fn read(from: &mut Reader<'_>) -> Self;
    /// Writes this as the next field.
    fn write(&self, to: &mut Writer<'_>);
    /// Adds every number of `other`, wrapping.
    fn add(&mut self, other: &Self);
    /// The increase of every number since `earlier`; 0 for a number that shrank.
    #[must_use]
    fn minus(&self, earlier: &Self) -> Self;
}

/// Reads the fields of a structure in their order. No field crosses the end of a word: `pod!`
/// rejects structures with padding.
pub struct Reader<'a> {
    words: &'a [u64],
    /// Byte offset of the next field.
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first field.
    #[must_use]
    pub const fn new(words: &'a [u64]) -> Self {
        Self { words, at: 0 }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let word = self.words.get(self.at / 8).copied().unwrap_or_default();
        let (word, start) = (word.to_ne_bytes(), self.at % 8);
        self.at += N;
        core::array::from_fn(|at| word.get(start + at).copied().unwrap_or_default())
    }
}

/// Writes the fields of a structure in their order, as [`Reader`] reads them.
pub struct Writer<'a> {
    words: &'a mut [u64],
    /// Byte offset of the next field.
    at: usize,
}

impl<'a> Writer<'a> {
    /// Begins at the first field.
    pub const fn new(words: &'a mut [u64]) -> Self {
        Self { words, at: 0 }
    }

    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        let start = self.at % 8;
        if let Some(word) = self.words.get_mut(self.at / 8) {
            let mut word_bytes = word.to_ne_bytes();
            for (to, byte) in word_bytes.iter_mut().skip(start).zip(bytes) {
                *to = byte;
            }
            *word = u64::from_ne_bytes(word_bytes);
        }
        self.at += N;
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            const ZERO: Self = 0;

            fn read(from: &mut Reader<'_>) -> Self {
                Self::from_ne_bytes(from.bytes())
            }

            fn write(&self, to: &mut Writer<'_>) {
                to.bytes(self.to_ne_bytes());
            }

            fn add(&mut self, other: &Self) {
                *self = self.wrapping_add(*other);
            }

            fn minus(&self, earlier: &Self) -> Self {
                self.saturating_sub(*earlier)
            }
        }

        impl Plain for $number {
            type Raw = Self;

            fn from_raw(raw: &Self) -> Self {
                *raw
            }

            fn to_raw(&self) -> Self {
                *self
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 i64);

impl<T: Field, const N: usize> Field for [T; N] {
    const ZERO: Self = [T::ZERO; N];

    fn read(from: &mut Reader<'_>) -> Self {
        core::array::from_fn(|_| T::read(from))
    }

    fn write(&self, to: &mut Writer<'_>) {
        for field in self {
            field.write(to);
        }
    }

    fn add(&mut self, other: &Self) {
        for (field, other) in self.iter_mut().zip(other) {
            field.add(other);
        }
    }

    fn minus(&self, earlier: &Self) -> Self {
        core::array::from_fn(|at| self[at].minus(&earlier[at]))
    }
}

/// Implements [`Field`] for a newtype of a number: `number!(Name)` for `struct Name(u64)`.
macro_rules! number {
    ($name:ident) => {
        impl $crate::pod::Field for $name {
            const ZERO: Self = Self(0);

            fn read(from: &mut $crate::pod::Reader<'_>) -> Self {
                Self($crate::pod::Field::read(from))
            }

            fn write(&self, to: &mut $crate::pod::Writer<'_>) {
                self.0.write(to);
            }

            fn add(&mut self, other: &Self) {
                $crate::pod::Field::add(&mut self.0, &other.0);
            }

            fn minus(&self, earlier: &Self) -> Self {
                Self($crate::pod::Field::minus(&self.0, &earlier.0))
            }
        }
    };
}
pub(crate) use number;

/// Defines a structure of whole 64-bit words, with its size, its layout and the conversions from
/// and to words.
macro_rules! pod {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        // Programs and user space are compiled for different targets: no padding, so that both see
        // one layout.
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);
        const _: () = assert!(size_of::<$name>().is_multiple_of(8));

        impl $name {
            /// Size in 64-bit words.
            pub const WORDS: usize = size_of::<Self>() / 8;

            /// All bytes zero.
            pub const ZERO: Self = Self { $($field: <$type as $crate::pod::Field>::ZERO,)* };

            /// From the words that the kernel stored.
            #[must_use]
            pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
                $crate::pod::Field::read(&mut $crate::pod::Reader::new(words))
            }

            /// The words that the kernel stores.
            #[must_use]
            pub fn to_words(self) -> [u64; Self::WORDS] {
                let mut words = [0; Self::WORDS];
                $crate::pod::Field::write(&self, &mut $crate::pod::Writer::new(&mut words));
                words
            }
        }

        impl $crate::pod::Field for $name {
            const ZERO: Self = Self::ZERO;

            fn read(from: &mut $crate::pod::Reader<'_>) -> Self {
                // In the order of declaration: struct expressions are evaluated as written.
                Self { $($field: <$type as $crate::pod::Field>::read(from),)* }
            }

            fn write(&self, to: &mut $crate::pod::Writer<'_>) {
                $($crate::pod::Field::write(&self.$field, to);)*
            }

            fn add(&mut self, other: &Self) {
                $($crate::pod::Field::add(&mut self.$field, &other.$field);)*
            }

            fn minus(&self, earlier: &Self) -> Self {
                Self { $($field: $crate::pod::Field::minus(&self.$field, &earlier.$field),)* }
            }
        }

        impl $crate::pod::Plain for $name {
            type Raw = [u64; Self::WORDS];

            fn from_raw(raw: &Self::Raw) -> Self {
                Self::from_words(raw)
            }

            fn to_raw(&self) -> Self::Raw {
                self.to_words()
            }
        }
    };
}
pub(crate) use pod;

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro defines public structures")]
mod tests {
    use super::*;

    pod! {
        /// Has every kind of field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Inner {
            pub low: u32,
            pub middle: u16,
            pub bytes: [u8; 2],
        }
    }

    pod! {
        /// Nests [`Inner`] in an array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Outer {
            pub signed: i64,
            pub pair: [Inner; 2],
            pub text: [u8; 16],
        }
    }

    const OUTER: Outer = Outer {
        signed: -2,
        pair: [
            Inner {
                low: 1,
                middle: 2,
                bytes: [3, 4],
            },
            Inner {
                low: u32::MAX,
                middle: 5,
                bytes: [6, 7],
            },
        ],
        text: *b"0123456789abcdef",
    };

    #[test]
    fn fields_keep_the_order_of_declaration() {
        assert_eq!(Outer::WORDS, 5);
        let bytes: [[u8; 8]; 5] = OUTER.to_words().map(u64::to_ne_bytes);
        assert_eq!(bytes[0], (-2_i64).to_ne_bytes());
        let [a, b, c, d] = 1_u32.to_ne_bytes();
        let [e, f] = 2_u16.to_ne_bytes();
        assert_eq!(bytes[1], [a, b, c, d, e, f, 3, 4]);
        assert_eq!((&bytes[3], &bytes[4]), (b"01234567", b"89abcdef"));
        assert_eq!(core::mem::offset_of!(Outer, pair), 8);
        assert_eq!(core::mem::offset_of!(Outer, text), 24);
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        assert_eq!(Outer::from_words(&OUTER.to_words()), OUTER);
        assert_eq!(Outer::from_words(&[0; _]), Outer::ZERO);
        assert_eq!(Outer::from_raw(&OUTER.to_raw()), OUTER);
        // A number alone is stored as it is.
        assert_eq!((u32::from_raw(&7), 7_u32.to_raw()), (7, 7));
    }

    #[test]
    fn every_number_is_added_separately() {
        let mut sum = OUTER;
        sum.add(&OUTER);
        assert_eq!(sum.signed, -4);
        assert_eq!(sum.pair[0].bytes, [6, 8]);
        // The sum wraps, and nothing is carried into the next field.
        assert_eq!((sum.pair[1].low, sum.pair[1].middle), (u32::MAX - 1, 10));
    }

    #[test]
    fn every_number_is_subtracted_separately_down_to_0() {
        let mut later = OUTER;
        (later.pair[0].low, later.pair[1].middle) = (9, 1);
        let [first, second] = later.minus(&OUTER).pair;
        assert_eq!((first.low, first.middle, first.bytes), (8, 0, [0, 0]));
        assert_eq!((second.low, second.middle), (0, 0));
    }
}

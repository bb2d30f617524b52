//! Parser of BTF files (the kernel's Documentation/bpf/btf.rst), as far as offsets and types of
//! structure members need it.

use std::fmt;

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BtfParseError {
    #[error("it is not BTF of this machine's byte order")]
    Magic,
    #[error("it ends within a type")]
    Short,
    #[error("its type {0} is of the kind {1}, which is not known")]
    Kind(u32, u32),
}

const MAGIC: u16 = 0xeb9f;
/// Bytes of the header that are read: magic, version, flags, the header's length, then offsets and
/// lengths of types and strings.
const HEADER_BYTES: usize = 24;

/// Bytes that a structure member takes in the file.
const MEMBER_BYTES: usize = 12;

/// Bytes that a type typically takes in a kernel's file, to allocate the list of types at once.
const TYPICAL_TYPE_BYTES: usize = 24;

const KIND_INT: u32 = 1;
const KIND_POINTER: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
pub(crate) const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
pub(crate) const KIND_FUNCTION: u32 = 12;
const KIND_TYPE_TAG: u32 = 18;

/// Number of kinds, void (0) included.
const KINDS: usize = 20;

/// Maximum depth of type names, qualifiers and nested structures: above any kernel's. It also ends
/// the search in files that refer to themselves.
const MAX_DEPTH: u32 = 16;

/// A type of a file.
struct Type {
    name: u32,
    info: u32,
    /// Its size in bytes, or the id of the type that it refers to.
    size: u32,
    /// Offset of the data behind these three words, in the file's type section.
    trailing_at: u32,
}

struct Member {
    name: u32,
    type_id: u32,
    /// Offset in bits.
    bits: u32,
    /// Bits of a bit field; 0 for other members.
    width: u32,
}

impl Type {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// Number of its members, parameters or values.
    fn count(&self) -> usize {
        (self.info & 0xffff) as usize
    }
}

/// The type of a member, behind typedefs and qualifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape<'a> {
    /// An integer of this size in bytes, also as the only member of a structure, as in `atomic_t`.
    Integer(u32),
    Pointer,
    /// An array of this many characters.
    Text(u32),
    /// A structure of that name.
    Structure(&'a str),
    /// A bit field of this many bits.
    BitField(u32),
    /// A type that no program reads: an array, a union, an enumeration.
    Other,
    /// An integer of any size. Only the programs expect it; no file has it.
    AnyInteger,
}

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(bytes) => write!(f, "an integer of {bytes} bytes"),
            Self::Pointer => f.write_str("a pointer"),
            Self::Text(bytes) => write!(f, "a text of {bytes} bytes"),
            Self::Structure("") => f.write_str("a structure without a name"),
            Self::Structure(name) => write!(f, "a struct {name}"),
            Self::BitField(bits) => write!(f, "a bit field of {bits} bits"),
            Self::AnyInteger => f.write_str("an integer"),
            Self::Other => f.write_str("neither integer, pointer, text nor structure"),
        }
    }
}

/// The types of a file, in the order of their ids; the first type has id 1.
pub(super) struct BtfTypes<'a> {
    types: Vec<Type>,
    /// The ids of each kind: lookups are by kind and name, in a few kinds.
    of_kind: [Vec<u32>; KINDS],
    bytes: &'a [u8],
    strings: &'a [u8],
}

/// The unread part of a file.
struct WordReader<'a>(&'a [u8]);

impl<'a> WordReader<'a> {
    fn next(&mut self) -> Result<u32, BtfParseError> {
        let (word, rest) = self.0.split_first_chunk().ok_or(BtfParseError::Short)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*word))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BtfParseError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BtfParseError::Short)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> BtfTypes<'a> {
    /// # Errors
    ///
    /// The file is truncated, of the other byte order, or has a type of an unknown kind.
    pub(super) fn parse(file: &'a [u8]) -> Result<Self, BtfParseError> {
        let header = file.get(..HEADER_BYTES).ok_or(BtfParseError::Short)?;
        if header[..2] != MAGIC.to_ne_bytes() {
            return Err(BtfParseError::Magic);
        }
        let mut words = WordReader(&header[4..]);
        let mut word = || words.next().map(|word| word as usize);
        let (end, types_at, types_len) = (word()?, word()?, word()?);
        let (strings_at, strings_len) = (word()?, word()?);
        let section = |at: usize, len: usize| {
            let from = end.checked_add(at)?;
            file.get(from..from.checked_add(len)?)
        };
        let bytes = section(types_at, types_len).ok_or(BtfParseError::Short)?;
        let strings = section(strings_at, strings_len).ok_or(BtfParseError::Short)?;
        let mut words = WordReader(bytes);
        let mut types = Vec::with_capacity(bytes.len() / TYPICAL_TYPE_BYTES);
        let mut of_kind = [const { Vec::new() }; KINDS];
        while !words.0.is_empty() {
            let (name, info, size) = (words.next()?, words.next()?, words.next()?);
            let to_u32 = |at: usize| u32::try_from(at).map_err(|_| BtfParseError::Short);
            let it = Type {
                name,
                info,
                size,
                trailing_at: to_u32(bytes.len() - words.0.len())?,
            };
            // Type 0 is void and not in the file.
            let id = to_u32(types.len() + 1)?;
            let kind = it.kind();
            words.take(trailing_len(kind, it.count()).ok_or(BtfParseError::Kind(id, kind))?)?;
            of_kind[kind as usize].push(id);
            types.push(it);
        }
        Ok(Self {
            types,
            of_kind,
            bytes,
            strings,
        })
    }

    /// Whether there is a structure of that name.
    pub(super) fn has_structure(&self, name: &str) -> bool {
        self.type_id(KIND_STRUCT, name).is_some()
    }

    /// The id of the first type of that kind and name.
    pub(super) fn type_id(&self, kind: u32, name: &str) -> Option<u32> {
        self.named(kind, name).next()
    }

    fn named<'s>(&'s self, kind: u32, name: &'s str) -> impl Iterator<Item = u32> + 's {
        let of_kind = self.of_kind[kind as usize].iter().copied();
        of_kind.filter(move |id| {
            let at = self.get(*id).map_or(0, |it| it.name as usize);
            let text = self.strings.get(at..).unwrap_or_default();
            text.get(name.len()) == Some(&0) && text.starts_with(name.as_bytes())
        })
    }

    /// Offset in bytes and type of a structure's member, also inside anonymous structures and
    /// unions.
    pub(super) fn member(&self, structure: &str, member: &str) -> Option<(u64, Shape<'a>)> {
        let field = self
            .named(KIND_STRUCT, structure)
            .find_map(|id| self.find_member(self.get(id)?, member.as_bytes(), 0))?;
        let shape = match field.width {
            0 => self.shape(field.type_id, 0),
            width => Shape::BitField(width),
        };
        Some((u64::from(field.bits) / 8, shape))
    }

    /// The bytes behind the first three words of a type.
    fn trailing(&self, it: &Type) -> &'a [u8] {
        let len = trailing_len(it.kind(), it.count()).unwrap_or(0);
        let bytes = self
            .bytes
            .get(it.trailing_at as usize..)
            .unwrap_or_default();
        bytes.get(..len).unwrap_or_default()
    }

    fn members(&self, it: &Type) -> impl Iterator<Item = Member> + use<'a> {
        // With bit fields, the upper 8 bits of a member's offset are a width.
        let shift = if it.info >> 31 == 1 { 24 } else { u32::BITS };
        let is_composite = matches!(it.kind(), KIND_STRUCT | KIND_UNION);
        let bytes = if is_composite { self.trailing(it) } else { &[] };
        bytes.chunks_exact(MEMBER_BYTES).filter_map(move |bytes| {
            let mut words = WordReader(bytes);
            let (name, type_id) = (words.next().ok()?, words.next().ok()?);
            let offset = words.next().ok()?;
            let width = offset.checked_shr(shift).unwrap_or(0);
            Some(Member {
                name,
                type_id,
                bits: offset - width.checked_shl(shift).unwrap_or(0),
                width,
            })
        })
    }

    fn find_member(&self, composite: &Type, wanted: &[u8], depth: u32) -> Option<Member> {
        self.members(composite).find_map(|member| {
            let name = self.name(member.name);
            if name == wanted {
                return Some(member);
            }
            if !name.is_empty() || depth == MAX_DEPTH {
                return None;
            }
            let inner = self.find_member(self.get(member.type_id)?, wanted, depth + 1)?;
            Some(Member {
                bits: inner.bits.checked_add(member.bits)?,
                ..inner
            })
        })
    }

    fn shape(&self, id: u32, depth: u32) -> Shape<'a> {
        let Some(it) = self.get(id).filter(|_| depth < MAX_DEPTH) else {
            return Shape::Other;
        };
        match it.kind() {
            KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                self.shape(it.size, depth + 1)
            }
            KIND_INT => Shape::Integer(it.size),
            KIND_POINTER => Shape::Pointer,
            KIND_ARRAY => {
                let mut words = WordReader(self.trailing(it));
                match (words.next(), words.next(), words.next()) {
                    (Ok(element), Ok(_), Ok(count))
                        if self.shape(element, depth + 1) == Shape::Integer(1) =>
                    {
                        Shape::Text(count)
                    }
                    _ => Shape::Other,
                }
            }
            KIND_STRUCT => {
                let mut members = self.members(it);
                if let (Some(only), None) = (members.next(), members.next())
                    && let integer @ Shape::Integer(bytes) = self.shape(only.type_id, depth + 1)
                    && (only.bits, only.width, bytes) == (0, 0, it.size)
                {
                    return integer;
                }
                Shape::Structure(str::from_utf8(self.name(it.name)).unwrap_or_default())
            }
            _ => Shape::Other,
        }
    }

    fn get(&self, id: u32) -> Option<&Type> {
        self.types.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let text = self.strings.get(at as usize..).unwrap_or_default();
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// Number of bytes behind the first three words of a type; None for an unknown kind.
fn trailing_len(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        KIND_STRUCT | KIND_UNION => MEMBER_BYTES * count,
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        // array
        3 => 12,
        // enumeration, function prototype
        6 | 13 => 8 * count,
        // section, enumeration of 64 bits
        15 | 19 => 12 * count,
        _ => return None,
    })
}

#[cfg(test)]
pub(super) mod tests;

//! A BTF file (the kernel's Documentation/bpf/btf.rst), as far as offsets of structure members need it.

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BtfError {
    #[error("it is not BTF of this machine's byte order")]
    Magic,
    #[error("it ends within a type")]
    Short,
    #[error("its type {0} is of the kind {1}, which is not known")]
    Kind(u32, u32),
}

const MAGIC: u16 = 0xeb9f;
/// Bytes of the header that are needed: magic, version, flags, its length, then where types and strings are.
const HEADER: usize = 24;

/// Bytes of a member of a structure.
const MEMBER: usize = 12;

const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;

/// A structure or union.
struct Composite<'a> {
    /// Its number among the types.
    id: u32,
    name: u32,
    union: bool,
    /// With bit fields, the upper 8 bits of an offset are a width.
    bit_fields: bool,
    members: &'a [u8],
}

struct Member {
    name: u32,
    type_id: u32,
    /// Offset in bits.
    bits: u32,
}

impl Composite<'_> {
    fn members(&self) -> impl Iterator<Item = Member> {
        let mask = if self.bit_fields { 0xff_ffff } else { u32::MAX };
        self.members.chunks_exact(MEMBER).filter_map(move |bytes| {
            let mut words = Words(bytes);
            Some(Member {
                name: words.next().ok()?,
                type_id: words.next().ok()?,
                bits: words.next().ok()? & mask,
            })
        })
    }
}

/// The structures and unions of a file, by their numbers.
pub(super) struct Types<'a> {
    composites: Vec<Composite<'a>>,
    strings: &'a [u8],
}

/// The part of a file that was not read yet.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<u32, BtfError> {
        let (word, rest) = self.0.split_first_chunk().ok_or(BtfError::Short)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*word))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BtfError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BtfError::Short)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Types<'a> {
    /// # Errors
    ///
    /// Where the file is cut off, of the other byte order, or holds what no BTF is known to hold.
    pub(super) fn parse(file: &'a [u8]) -> Result<Self, BtfError> {
        let header = file.get(..HEADER).ok_or(BtfError::Short)?;
        if header[..2] != MAGIC.to_ne_bytes() {
            return Err(BtfError::Magic);
        }
        let mut words = Words(&header[4..]);
        let mut word = || words.next().map(|word| word as usize);
        let (end, types_at, types_len) = (word()?, word()?, word()?);
        let (strings_at, strings_len) = (word()?, word()?);
        let part = |at: usize, len: usize| {
            let from = end.checked_add(at)?;
            file.get(from..from.checked_add(len)?)
        };
        let types = part(types_at, types_len).ok_or(BtfError::Short)?;
        let strings = part(strings_at, strings_len).ok_or(BtfError::Short)?;
        let mut words = Words(types);
        let mut composites = Vec::new();
        // Type 0 is void and not in the file.
        let mut id = 1;
        while !words.0.is_empty() {
            let (name, info, _size) = (words.next()?, words.next()?, words.next()?);
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let more = words.take(more(kind, count).ok_or(BtfError::Kind(id, kind))?)?;
            if matches!(kind, KIND_STRUCT | KIND_UNION) {
                composites.push(Composite {
                    id,
                    name,
                    union: kind == KIND_UNION,
                    bit_fields: info >> 31 == 1,
                    members: more,
                });
            }
            id += 1;
        }
        Ok(Self {
            composites,
            strings,
        })
    }

    /// Offset in bytes of a member of a structure, also of one inside an anonymous structure or union.
    pub(super) fn offset(&self, structure: &str, member: &str) -> Option<u64> {
        let named = |composite: &&Composite<'_>| {
            !composite.union && self.name(composite.name) == structure.as_bytes()
        };
        self.composites
            .iter()
            .filter(named)
            .find_map(|composite| self.bits(composite, member.as_bytes(), 0))
            .map(|bits| u64::from(bits) / 8)
    }

    fn bits(&self, composite: &Composite<'_>, wanted: &[u8], depth: u32) -> Option<u32> {
        /// No kernel nests deeper; a file that refers to itself ends here.
        const DEPTH: u32 = 16;
        composite.members().find_map(|member| {
            let name = self.name(member.name);
            if name == wanted {
                return Some(member.bits);
            }
            if !name.is_empty() || depth == DEPTH {
                return None;
            }
            let id = |inner: &Composite<'_>| inner.id;
            let inner = self
                .composites
                .binary_search_by_key(&member.type_id, id)
                .ok()?;
            let bits = self.bits(&self.composites[inner], wanted, depth + 1)?;
            bits.checked_add(member.bits)
        })
    }

    fn name(&self, at: u32) -> &[u8] {
        let text = self.strings.get(at as usize..).unwrap_or_default();
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// Bytes that follow the first three words of a type; None for a kind that is not known.
fn more(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        KIND_STRUCT | KIND_UNION => MEMBER * count,
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
mod tests;

//! The kernel's types (BTF) to which programs attach. They are read once, when the object is
//! loaded. Only their kinds, names and numbers are kept.

use aya::{Btf, Endianness};

use crate::sys::heap;

/// The types of the running kernel to which programs attach.
pub(super) struct AttachTypes {
    /// Kind, name and number of each type, sorted by number.
    types: Vec<(u32, String, u32)>,
    /// The types in aya's form, while it is needed.
    btf: Option<Btf>,
}

impl AttachTypes {
    pub(super) fn new(mut types: Vec<(u32, String, u32)>) -> Self {
        types.sort_by_key(|(.., number)| *number);
        Self { types, btf: None }
    }

    /// Whether the kernel has the type.
    pub(super) fn has(&self, kind: u32, name: &str) -> bool {
        let mut types = self.types.iter();
        types.any(|(type_kind, type_name, _)| *type_kind == kind && type_name == name)
    }

    /// The types for aya, which takes a type's position in a list as its number. So nameless types
    /// fill the positions in between. The kernel's whole list would take some 20 ms to read, and 10
    /// MB.
    pub(super) fn get(&mut self) -> &Btf {
        self.btf.get_or_insert_with(|| {
            let file = btf_file(&self.types);
            Btf::parse(&file, Endianness::default()).expect("it is a BTF file")
        })
    }

    /// Frees aya's form of the types until it is needed again.
    pub(super) fn release(&mut self) {
        if self.btf.take().is_some() {
            heap::trim();
        }
    }
}

/// A BTF file (the kernel's Documentation/bpf/btf.rst) with these types (kind, name, number), which
/// must be sorted by number.
fn btf_file(named_types: &[(u32, String, u32)]) -> Vec<u8> {
    const MAGIC_AND_VERSION: u32 = 0x1_eb9f;
    const HEADER: u32 = 24;
    const NAMELESS: [u32; 3] = [0, 7 << 24, 0];
    let length = |len: usize| u32::try_from(len).expect("the kernel's own file is shorter");
    let mut types: Vec<[u32; 3]> = Vec::new();
    let mut names = vec![0];
    for (kind, name, number) in named_types {
        types.resize(*number as usize - 1, NAMELESS);
        types.push([length(names.len()), kind << 24, 0]);
        names.extend(name.bytes().chain([0]));
    }
    let end = length(size_of_val(types.as_slice()));
    let header = [MAGIC_AND_VERSION, HEADER, 0, end, end, length(names.len())];
    let words = header.iter().chain(types.as_flattened());
    let mut file: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
    file.extend(names);
    file
}

#[cfg(test)]
mod tests {
    use aya_obj::btf::BtfKind;

    use super::*;
    use crate::machine::btf::{KIND_FUNCTION, KIND_TYPEDEF};

    #[test]
    fn each_type_has_its_number() {
        let mut types = AttachTypes::new(vec![
            (KIND_TYPEDEF, "b".to_owned(), 7),
            (KIND_FUNCTION, "a".to_owned(), 3),
            (KIND_TYPEDEF, "a".to_owned(), 8),
        ]);
        assert!(types.has(KIND_FUNCTION, "a") && !types.has(KIND_FUNCTION, "b"));
        let list = types.get();
        let number = |name, kind| list.id_by_type_name_kind(name, kind).ok();
        assert_eq!(number("a", BtfKind::Func), Some(3));
        assert_eq!(number("a", BtfKind::Typedef), Some(8));
        assert_eq!(number("b", BtfKind::Typedef), Some(7));
        assert_eq!(number("b", BtfKind::Func), None);
    }
}

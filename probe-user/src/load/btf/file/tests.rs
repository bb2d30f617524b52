use proptest::prelude::*;

use super::*;

/// A file of these types (words after each other) and strings.
fn file(types: &[u32], strings: &str) -> Vec<u8> {
    let length = |len: usize| u32::try_from(len).unwrap();
    let types_len = length(types.len() * 4);
    let mut file = MAGIC.to_ne_bytes().to_vec();
    file.extend([1, 0]);
    for word in [24, 0, types_len, types_len, length(strings.len())] {
        file.extend(u32::to_ne_bytes(word));
    }
    types
        .iter()
        .for_each(|word| file.extend(word.to_ne_bytes()));
    file.extend(strings.as_bytes());
    file
}

/// `struct a { int x; struct { int: 3; int y; }; union { int z; }; }` between types of other kinds.
fn sample() -> Vec<u8> {
    let (int, array, composite, union) = (1 << 24, 3 << 24, 4 << 24, 5 << 24);
    let bit_fields = 1 << 31;
    let types = [
        vec![1, int, 4, 32],                                             // 1: int
        vec![0, array, 0, 1, 1, 8],                                      // 2
        vec![0, bit_fields | composite | 2, 8, 0, 1, 3 << 24, 7, 1, 32], // 3: anonymous, y at 32
        vec![0, union | 1, 4, 9, 1, 0],                                  // 4: anonymous, z at 0
        vec![11, composite | 3, 24, 5, 1, 0, 0, 3, 64, 0, 4, 160],       // 5: a
    ];
    file(&types.concat(), "\0int\0x\0y\0z\0a\0")
}

#[test]
fn members_are_found_inside_what_has_no_name() {
    let bytes = sample();
    let types = Types::parse(&bytes).unwrap();
    assert_eq!(types.offset("a", "x"), Some(0));
    assert_eq!(types.offset("a", "y"), Some(12));
    assert_eq!(types.offset("a", "z"), Some(20));
    assert_eq!(types.offset("a", "w"), None);
    assert_eq!(types.offset("b", "x"), None);
}

#[test]
fn a_structure_inside_itself_has_no_end_but_the_search_has() {
    let composite = 4 << 24;
    let bytes = file(&[1, composite | 1, 4, 0, 1, 0], "\0a\0");
    assert_eq!(Types::parse(&bytes).unwrap().offset("a", "x"), None);
}

#[test]
fn what_is_wrong_is_said() {
    let error = |bytes: &[u8]| Types::parse(bytes).err();
    assert_eq!(error(b"BTF"), Some(BtfError::Short));
    assert_eq!(error(&[0; 24]), Some(BtfError::Magic));
    assert_eq!(
        error(&file(&[0, 20 << 24, 0], "\0")),
        Some(BtfError::Kind(1, 20))
    );
    assert_eq!(error(&file(&[0, 3 << 24, 0], "\0")), Some(BtfError::Short));
}

proptest! {
    /// Damage may make it another file, never a panic.
    #[test]
    fn damage_does_no_harm(at in 0_usize..200, byte: u8, cut in 0_usize..300) {
        let mut bytes = sample();
        let len = bytes.len();
        bytes[at % len] = byte;
        bytes.truncate(cut);
        if let Ok(types) = Types::parse(&bytes) {
            types.offset("a", "z");
        }
    }
}

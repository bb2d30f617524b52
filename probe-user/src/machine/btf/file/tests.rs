use proptest::prelude::*;

use super::*;

/// A file of these types (as consecutive words) and strings.
pub(in crate::machine::btf) fn file(types: &[u32], strings: &str) -> Vec<u8> {
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
fn members_inside_anonymous_types_are_found() {
    let bytes = sample();
    let types = BtfTypes::parse(&bytes).unwrap();
    let offset = |structure, member| types.member(structure, member).map(|(offset, _)| offset);
    assert_eq!(offset("a", "x"), Some(0));
    assert_eq!(offset("a", "y"), Some(12));
    assert_eq!(offset("a", "z"), Some(20));
    assert_eq!(offset("a", "w"), None);
    assert_eq!(offset("b", "x"), None);
}

#[test]
fn the_search_ends_in_a_structure_inside_itself() {
    let composite = 4 << 24;
    let bytes = file(&[1, composite | 1, 4, 0, 1, 0], "\0a\0");
    assert_eq!(BtfTypes::parse(&bytes).unwrap().member("a", "x"), None);
    // The type of x is a typedef that refers to itself.
    let bytes = file(
        &[1, composite | 1, 4, 3, 2, 0, 5, 8 << 24, 2],
        "\0a\0x\0t\0",
    );
    let types = BtfTypes::parse(&bytes).unwrap();
    assert_eq!(types.member("a", "x"), Some((0, Shape::Other)));
}

/// Every kind of member, behind typedef, volatile and const.
#[test]
fn the_type_of_a_member_is_known_behind_typedefs_and_qualifiers() {
    let kind = |kind: u32| kind << 24;
    let bit_fields = 1 << 31;
    let member = |name, id, offset| vec![name, id, offset];
    let types = [
        vec![0, kind(1), 8, 64],                     // 1: an integer of 8 bytes
        vec![0, kind(8), 1],                         // 2: typedef of 1
        vec![0, kind(9), 2],                         // 3: volatile 2
        vec![0, kind(10), 3],                        // 4: const 3
        vec![0, kind(2), 1],                         // 5: pointer to 1
        vec![0, kind(1), 1, 8],                      // 6: a character
        vec![0, kind(3), 0, 6, 1, 16],               // 7: 16 of them
        vec![0, kind(3), 0, 1, 1, 16],               // 8: 16 integers
        vec![0, kind(4) | 1, 8, 1, 1, 0],            // 9: an integer in a structure
        vec![3, kind(4) | 2, 16, 1, 5, 0, 1, 5, 64], // 10: struct l of two pointers
        vec![0, kind(6), 4],                         // 11: enumeration
        [
            vec![5, bit_fields | kind(4) | 7, 64],
            member(7, 4, 0),
            member(9, 5, 64),
            member(11, 7, 128),
            member(13, 9, 256),
            member(15, 10, 320),
            member(17, 1, 3 << 24 | 448),
            member(19, 8, 512),
        ]
        .concat(), // 12: struct s
    ];
    let bytes = file(&types.concat(), "\0n\0l\0s\0a\0b\0c\0d\0e\0f\0g\0");
    let types = BtfTypes::parse(&bytes).unwrap();
    let expected = [
        ("a", 0, Shape::Integer(8), "an integer of 8 bytes"),
        ("b", 8, Shape::Pointer, "a pointer"),
        ("c", 16, Shape::Text(16), "a text of 16 bytes"),
        ("d", 32, Shape::Integer(8), "an integer of 8 bytes"),
        ("e", 40, Shape::Structure("l"), "a struct l"),
        ("f", 56, Shape::BitField(3), "a bit field of 3 bits"),
        (
            "g",
            64,
            Shape::Other,
            "neither integer, pointer, text nor structure",
        ),
    ];
    for (name, offset, shape, text) in expected {
        assert_eq!(types.member("s", name), Some((offset, shape)), "{name}");
        assert_eq!(shape.to_string(), text);
    }
}

#[test]
fn errors_are_reported() {
    let error = |bytes: &[u8]| BtfTypes::parse(bytes).err();
    assert_eq!(error(b"BTF"), Some(BtfParseError::Short));
    assert_eq!(error(&[0; 24]), Some(BtfParseError::Magic));
    assert_eq!(
        error(&file(&[0, 20 << 24, 0], "\0")),
        Some(BtfParseError::Kind(1, 20))
    );
    assert_eq!(
        error(&file(&[0, 3 << 24, 0], "\0")),
        Some(BtfParseError::Short)
    );
}

proptest! {
    /// Damage may change the result, but never panics.
    #[test]
    fn damaged_files_do_not_panic(at in 0_usize..200, byte: u8, cut in 0_usize..300) {
        let mut bytes = sample();
        let len = bytes.len();
        bytes[at % len] = byte;
        bytes.truncate(cut);
        if let Ok(types) = BtfTypes::parse(&bytes) {
            types.member("a", "z");
        }
    }
}

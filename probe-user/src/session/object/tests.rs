//! Compares the names and types in this module with the compiled object.

use std::collections::{BTreeMap, BTreeSet};

use aya_obj::{Map, Object as Compiled};
use probe_common::SLOTS;

use super::{
    DESCRIPTORS, OBJECT, globals,
    maps::{CounterMaps, Maps, PROGRAM_MAPS},
    offsets, programs,
};

fn compiled() -> Compiled {
    Compiled::parse(OBJECT).unwrap()
}

/// The maps of the object, without those that the compiler creates for constants.
fn maps(compiled: &Compiled) -> BTreeMap<&str, &Map> {
    let maps = compiled.maps.iter();
    maps.map(|(name, map)| (name.as_str(), map))
        .filter(|(name, _)| !name.starts_with('.'))
        .collect()
}

#[test]
fn every_map_of_the_object_is_named_in_user_space() {
    let compiled = compiled();
    let found: BTreeSet<String> = maps(&compiled).into_keys().map(str::to_owned).collect();
    let named: Vec<String> = Maps::ALL
        .iter()
        .map(|(name, _)| *name)
        .chain(PROGRAM_MAPS)
        .map(str::to_owned)
        .chain((0..SLOTS).map(CounterMaps::name))
        .collect();
    assert_eq!(found, named.iter().cloned().collect());
    assert_eq!(found.len(), named.len(), "one is named twice");
}

#[test]
fn the_constant_number_of_descriptors_is_that_of_the_object() {
    let compiled = compiled();
    let program_descriptors = 2 * compiled.programs.len();
    assert_eq!(DESCRIPTORS, compiled.maps.len() + program_descriptors + 1);
}

#[test]
fn every_map_has_the_sizes_of_its_types() {
    let compiled = compiled();
    let maps = maps(&compiled);
    for (name, sizes) in Maps::ALL {
        let map = maps[name];
        let found = [map.key_size(), map.value_size()].map(|bytes| bytes as usize);
        assert_eq!(found, *sizes, "{name}");
    }
}

#[test]
fn every_program_of_the_object_is_named_in_user_space() {
    let compiled = compiled();
    let found: BTreeSet<&str> = compiled.programs.keys().map(String::as_str).collect();
    assert_eq!(found, programs::ALL.iter().copied().collect());
    assert_eq!(found.len(), programs::ALL.len(), "one is named twice");
}

/// A global that is not set would be zero: the offset of another member.
#[test]
fn every_global_of_the_object_is_named_in_user_space() {
    let settings = globals::ALL.iter().copied();
    let offsets = offsets::names().map(|name| (name, size_of::<u64>()));
    let named: Vec<(&str, usize)> = settings.chain(offsets).collect();
    let found: BTreeSet<(&str, usize)> = frozen_globals(OBJECT).collect();
    assert_eq!(found, named.iter().copied().collect());
    assert_eq!(found.len(), named.len(), "one is named twice");
}

/// Name and size of every public symbol in the section `.rodata`. aya reads them too, but does not
/// expose them.
fn frozen_globals(elf: &[u8]) -> impl Iterator<Item = (&str, usize)> {
    let number = |at: usize, bytes: usize| {
        let bytes = elf[at..at + bytes].iter().rev();
        bytes.fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let text = |at: usize| {
        let end = elf[at..].iter().position(|byte| *byte == 0).unwrap();
        str::from_utf8(&elf[at..at + end]).unwrap()
    };
    // Elf64_Ehdr: e_shoff, e_shnum, e_shstrndx. Elf64_Shdr: sh_name, sh_offset, sh_size, sh_link.
    let sections = number(40, 8);
    let header = move |section: usize| sections + 64 * section;
    let offset = move |section: usize| number(header(section) + 24, 8);
    let names = offset(number(62, 2));
    let section_named = |name: &str| {
        (0..number(60, 2))
            .find(|section| text(names + number(header(*section), 4)) == name)
            .unwrap()
    };
    let (frozen, symbols) = (section_named(".rodata"), section_named(".symtab"));
    let strings = offset(number(header(symbols) + 40, 4));
    let (first, bytes) = (offset(symbols), number(header(symbols) + 32, 8));
    // Elf64_Sym: st_name, st_info (1 << 4 | 1: a public object), st_shndx, st_size.
    (first..first + bytes)
        .step_by(24)
        .filter(move |at| elf[at + 4] == 1 << 4 | 1 && number(at + 6, 2) == frozen)
        .map(move |at| (text(strings + number(at, 4)), number(at + 16, 8)))
}

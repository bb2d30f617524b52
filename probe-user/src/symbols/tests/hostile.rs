//! Reads invalid programs: that neither hangs nor ends this process, and takes bounded memory.

use std::{
    fs::{self, File},
    os::unix::{fs::FileExt as _, fs::symlink},
    path::Path,
};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, mknodat};

use super::target::compile;
use crate::symbols::{
    elf::{Elf, ElfSource},
    functions::Functions,
    jit::JitMap,
    module::Module,
    opened,
};

#[test]
fn only_regular_files_below_the_root_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(directory.path().join("secret"), "of the host").unwrap();
    fs::write(root.join("etc/plain"), "of the container").unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, 0o666.into(), 0).unwrap();
    symlink("/etc/plain", root.join("absolute")).unwrap();
    symlink("../../secret", root.join("secret")).unwrap();
    symlink("/proc/self/exe", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let open = |path: &str| opened::below(&root, path.as_bytes());
    for allowed in ["/etc/plain", "/absolute", "/../../etc/plain"] {
        assert!(open(allowed).is_some(), "{allowed}");
    }
    for refused in [
        "/fifo", "/secret", "/magic", "/loop", "/etc", "/none", "/a\0b", "",
    ] {
        assert!(open(refused).is_none(), "{refused:?}");
    }
    assert!(opened::regular_file(Path::new("/dev/zero")).is_none());
    assert!(opened::regular_file(&root.join("fifo")).is_none());
}

/// Reads all of a file that is read to name its addresses.
fn read(source: ElfSource) -> Option<()> {
    let elf = Elf::read(source)?;
    let functions = [SHT_SYMTAB, SHT_DYNSYM].map(|kind| Functions::read(&elf, kind));
    for functions in functions.iter().flatten() {
        for address in [0, 0x1000, 0x40_1000, u64::MAX] {
            let _ = functions.name(&elf, address);
        }
    }
    let mut module = Module::new(elf);
    for offset in [0, 0x1000, 0x1100, u64::MAX] {
        let _ = module.name(offset, |_| None);
    }
    Some(())
}

#[test]
fn a_sparse_file_with_huge_sections_takes_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "huge", &[]);
    let bytes = fs::read(&program).unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .open(&program)
        .unwrap();
    // A sparse file of 4 TiB with sections of 2 TiB.
    file.set_len(4 << 40).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let headers = word(0x28);
    for section in 1..u64::from(u16::from_ne_bytes([bytes[0x3c], bytes[0x3d]])) {
        file.write_all_at(&(1_u64 << 41).to_ne_bytes(), headers + section * 64 + 32)
            .unwrap();
    }
    // If more than the limits were read, the test would be killed. Zeros are no functions.
    let elf = Elf::read(ElfSource::File(file.try_clone().unwrap())).unwrap();
    assert!(elf.sections.iter().any(|section| section.size == 1 << 41));
    read(ElfSource::File(file)).unwrap();
}

/// The program has as many sections as the limit of the section table allows; all of them are code.
#[test]
fn memory_for_sections_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "sections", &[]);
    let mut bytes = fs::read(&program).unwrap();
    let at = u64::try_from(bytes.len()).unwrap();
    const SECTIONS: u64 = 131_072;
    // Sets `e_shoff`, and `e_shnum` to 0, which means that the first section has the number.
    bytes[0x28..0x30].copy_from_slice(&at.to_ne_bytes());
    bytes[0x3c..0x3e].fill(0);
    for section in 0..SECTIONS {
        let mut header = [0; 64];
        // `SHT_PROGBITS`, `SHF_EXECINSTR`
        header[4] = 1;
        header[8] = 4;
        if section == 0 {
            header[32..40].copy_from_slice(&SECTIONS.to_ne_bytes());
        }
        bytes.extend_from_slice(&header);
    }
    fs::write(&program, bytes).unwrap();
    let elf = Elf::read(ElfSource::File(File::open(&program).unwrap())).unwrap();
    assert!(!elf.sections.is_empty());
    assert!(elf.memory() < 200_000, "{}", elf.memory());
    // The memory of these sections is counted.
    let module = Module::new(elf);
    assert!(module.memory() > 50_000, "{}", module.memory());
}

#[test]
fn a_jit_map_is_bounded_and_its_last_line_for_an_address_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf-1.map");
    let lines = "1000 100 first\nnonsense\n1080 10 within\nffffffffffffffff 10 wraps\n\
                 0x2000 10 prefixed name\n3000 0 empty\n1000 20 over\n";
    fs::write(&path, lines).unwrap();
    let file = || File::options().read(true).write(true).open(&path).unwrap();
    let mut map = JitMap::default();
    map.read(file(), &mut u64::MAX.clone());
    for (address, name) in [
        (0x1010, Some("over")),
        (0x1020, None),
        (0x1088, Some("within")),
        (0x2008, Some("prefixed name")),
        (0x3000, None),
        (u64::MAX, None),
    ] {
        assert_eq!(map.name(address), name, "{address:x}");
    }
    // A line of 10 GiB.
    file().set_len(10 << 30).unwrap();
    map.read(file(), &mut u64::MAX.clone());
    assert_eq!(map.name(0x1088), Some("within"));
}

#[test]
fn only_appended_lines_of_a_jit_map_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf-1.map");
    let read = |map: &mut JitMap, budget: u64| {
        let mut remaining = budget;
        map.read(File::open(&path).unwrap(), &mut remaining);
        budget - remaining
    };
    let mut map = JitMap::default();
    fs::write(&path, "1000 10 first\n2000 10 sec").unwrap();
    assert_eq!(read(&mut map, 100), 14);
    // The last line was incomplete before.
    fs::write(&path, "1000 10 first\n2000 10 second\n3000 10 third\n").unwrap();
    assert_eq!(read(&mut map, 16), 15);
    let named = |map: &JitMap, address| map.name(address).map(str::to_owned);
    assert_eq!(named(&map, 0x2000).as_deref(), Some("second"));
    assert_eq!(named(&map, 0x3000), None);
    // The first read gets the line that exceeded the budget, the second read nothing.
    assert_eq!([read(&mut map, 100), read(&mut map, 100)], [14, 0]);
    assert_eq!(named(&map, 0x3000).as_deref(), Some("third"));
    // Another file replaces the map file.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "1000 10 other\n").unwrap();
    assert_eq!(read(&mut map, 100), 14);
    assert_eq!(named(&map, 0x1000).as_deref(), Some("other"));
    assert_eq!(named(&map, 0x2000), None);
}

#[test]
fn a_jit_map_takes_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf-1.map");
    let lines: String = (0..1_200_000_u64)
        .map(|at| format!("{:x} 1 f\n", 2 * at))
        .collect();
    fs::write(&path, lines).unwrap();
    let mut map = JitMap::default();
    map.read(File::open(&path).unwrap(), &mut u64::MAX.clone());
    assert!(map.memory() <= (64 << 20) + 128, "{}", map.memory());
    assert!(map.dropped > 0 && map.name(0).is_some());
}

#[test]
fn a_damaged_program_is_read_without_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = fs::read(compile(directory.path(), "damaged", &["-Wl,--build-id"])).unwrap();
    let section_headers =
        usize::try_from(u64::from_ne_bytes(bytes[0x28..0x30].try_into().unwrap())).unwrap();
    let positions = prop_oneof![0..1024_usize, section_headers..bytes.len(), 0..bytes.len()];
    let changes = prop::collection::vec((positions, any::<u8>()), 1..8);
    proptest!(|(changes in changes, end in prop::option::of(0..bytes.len()))| {
        let mut bytes = bytes.clone();
        for (position, byte) in changes {
            bytes[position] = byte;
        }
        bytes.truncate(end.unwrap_or(usize::MAX));
        let _ = read(ElfSource::Memory(bytes));
    });
    read(ElfSource::Memory(bytes)).unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        magic in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if magic && bytes.len() > 16 {
            bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        }
        let _ = read(ElfSource::Memory(bytes));
    }
}

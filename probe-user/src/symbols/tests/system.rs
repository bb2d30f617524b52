//! Names functions of the kernel and of the vDSO.

use std::{collections::HashSet, fs};

use test_support::Tree;

use super::target::{is_root, symbols};
use crate::{
    machine::Roots,
    symbols::{AddressOwner, Symbols, maps},
};

#[test]
fn functions_of_the_running_kernel_have_names() {
    let mut symbols = symbols();
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
    let line = kallsyms
        .lines()
        .find(|line| line.ends_with(" T schedule"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    if address == 0 {
        assert!(symbols.kernel_hidden().is_some());
        assert!(!is_root());
        return;
    }
    let place = symbols.name(AddressOwner::Kernel, address + 4, None);
    assert_eq!(place.function.as_deref(), Some("schedule"));
    assert_eq!(&*place.module, "[kernel.kallsyms]");
    assert!(place.offset < 1 << 30, "{place:?}");
    assert_eq!(symbols.kernel_hidden(), None);
}

#[test]
fn modules_and_bpf_programs_loaded_later_have_names() {
    let tree = Tree::new();
    let kernel = "ffff800000000000 T _text\nffff800000000100 T __pte\nffff800000000100 T pte\n\
                  ffff800000000200 D some_data\n";
    tree.write("proc/kallsyms", kernel);
    let mut symbols = Symbols::new(&Roots::below(tree.path()));
    let name = |symbols: &mut Symbols, address| {
        let place = symbols.name(AddressOwner::Kernel, address, None);
        (
            place.function.map(|name| name.to_string()),
            place.module.to_string(),
            place.offset,
        )
    };
    let expected = |function: Option<&str>, module: &str, offset| {
        (function.map(str::to_owned), module.to_owned(), offset)
    };
    let core = "[kernel.kallsyms]";
    assert_eq!(
        name(&mut symbols, 0xffff_8000_0000_0110),
        expected(Some("pte"), core, 0x110)
    );
    assert_eq!(
        name(&mut symbols, 0xffff_8000_0000_0210),
        expected(None, core, 0x210)
    );
    let bpf = 0xffff_9000_0000_0010;
    assert_eq!(name(&mut symbols, bpf).0, None);
    let later = "ffff900000000000 t bpf_prog_12ab_count\t[bpf]\n\
                 ffff900000001000 t nft_do\t[nf_tables]\n";
    tree.write("proc/kallsyms", [kernel, later].concat());
    // The next round reads kallsyms again.
    symbols.end_round(0);
    assert_eq!(
        name(&mut symbols, bpf),
        expected(Some("bpf_prog_12ab_count"), "[bpf]", bpf)
    );
    let module = 0xffff_9000_0000_1010;
    assert_eq!(
        name(&mut symbols, module),
        expected(Some("nft_do"), "[nf_tables]", module)
    );
    // This address is far after the last symbol.
    assert_eq!(name(&mut symbols, 0xffff_9100_0000_0000).0, None);
}

#[test]
fn a_module_that_is_loaded_in_place_of_another_has_its_own_names() {
    let tree = Tree::new();
    let kernel = "ffff800000000000 T _text\nffff800000000100 T pte\n";
    let load = |name: &str| {
        tree.write("proc/modules", format!("{name} 16384 0 - Live 0x0\n"));
        let symbols = format!("{kernel}ffff900000000000 t {name}_do\t[{name}]\n");
        tree.write("proc/kallsyms", symbols);
    };
    load("first");
    let mut symbols = Symbols::new(&Roots::below(tree.path()));
    let name = |symbols: &mut Symbols| {
        let place = symbols.name(AddressOwner::Kernel, 0xffff_9000_0000_0010, None);
        place.function.map(|name| name.to_string())
    };
    assert_eq!(name(&mut symbols).as_deref(), Some("first_do"));
    load("second");
    symbols.end_round(0);
    assert_eq!(name(&mut symbols).as_deref(), Some("second_do"));
}

#[test]
fn hidden_kernel_addresses_have_a_reason_with_advice() {
    let tree = Tree::new();
    tree.write(
        "proc/kallsyms",
        "0000000000000000 T _text\n0000000000000000 T schedule\n",
    );
    tree.write("proc/sys/kernel/kptr_restrict", "2\n");
    let mut symbols = Symbols::new(&Roots::below(tree.path()));
    let place = symbols.name(AddressOwner::Kernel, 0xffff_8000_0000_0110, None);
    assert_eq!(
        (place.function, place.offset),
        (None, 0xffff_8000_0000_0110)
    );
    let why = "functions of the kernel have no names: the kernel hides its addresses \
               (kernel.kptr_restrict is 2): set it to 1 and run pmuscope as root or with CAP_SYSLOG";
    assert_eq!(symbols.kernel_hidden(), Some(why));
    // kallsyms is not read again, since it would still hide the addresses.
    tree.write("proc/kallsyms", "ffff800000000100 T schedule\n");
    symbols.end_round(0);
    let place = symbols.name(AddressOwner::Kernel, 0xffff_8000_0000_0110, None);
    assert_eq!(place.function, None);
}

#[test]
fn functions_of_the_vdso_have_names() {
    let roots = Roots::default();
    let pid = std::process::id();
    let mut lines = maps::lines(&roots.proc, pid).into_iter();
    let Some(vdso) = lines.find(|line| line.name == b"[vdso]") else {
        println!("skipped: this kernel gives processes no vDSO");
        return;
    };
    let mut symbols = symbols();
    let addresses = (vdso.mapping.start..vdso.mapping.end).step_by(16);
    let names: HashSet<String> = addresses
        .filter_map(|address| {
            let place = symbols.name(AddressOwner::Process(pid), address, None);
            assert_eq!(&*place.module, "[vdso]");
            place.function.map(|name| name.to_string())
        })
        .collect();
    let is_clock = |name: &String| name.ends_with("clock_gettime");
    assert!(names.iter().any(is_clock), "{names:?}");
}

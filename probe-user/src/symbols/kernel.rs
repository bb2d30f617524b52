//! Functions of the kernel, its modules and its BPF programs, from `/proc/kallsyms`.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    sync::Arc,
};

use super::notes;
use crate::machine::Roots;

/// Maximum number of bytes read of kallsyms: ten times the size for a large kernel.
const MAX_KALLSYMS_BYTES: u64 = 256 << 20;

/// perf's name of the kernel itself.
pub(super) const KERNEL: &str = "[kernel.kallsyms]";

#[derive(Debug)]
struct Symbol {
    start: u64,
    name: Box<str>,
    /// Index into `modules`; 0 is the kernel.
    module: u32,
    /// Whether it is a function. Data symbols are kept because they end the function before them.
    is_function: bool,
}

/// The kernel's symbols at the time of reading.
#[derive(Debug)]
pub(super) struct KernelSymbols {
    symbols: Vec<Symbol>,
    modules: Vec<Arc<str>>,
    pub(super) build_id: Option<Arc<[u8]>>,
    /// Address at which the kernel starts in memory, which changes with each boot.
    text_start: Option<u64>,
    /// Why there are no names; None if there are names.
    pub(super) hidden: Option<String>,
}

/// A location in the kernel.
pub(super) struct KernelLocation<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) module: Arc<str>,
    /// Offset from the start of the kernel. None in modules, since their start is unknown.
    pub(super) offset: Option<u64>,
}

impl KernelSymbols {
    pub(super) fn read(roots: &Roots) -> Self {
        let mut kernel = Self {
            symbols: Vec::new(),
            modules: vec![KERNEL.into()],
            build_id: notes::of_kernel(&roots.sys).map(Into::into),
            text_start: None,
            hidden: None,
        };
        match File::open(roots.proc.join("kallsyms")) {
            Ok(file) => {
                let lines = BufReader::new(file.take(MAX_KALLSYMS_BYTES)).split(b'\n');
                for line in lines.map_while(Result::ok) {
                    kernel.add(&line);
                }
                if kernel.symbols.iter().all(|symbol| symbol.start == 0) {
                    kernel.symbols.clear();
                    kernel.hidden = Some(why_hidden(&roots.proc));
                }
            }
            Err(error) => {
                let why = format!(
                    "functions of the kernel have no names: {}/kallsyms cannot be read ({error}); \
                     the kernel needs CONFIG_KALLSYMS",
                    roots.proc.display()
                );
                kernel.hidden = Some(why);
            }
        }
        kernel.symbols.sort_by_key(|symbol| symbol.start);
        let begin = kernel
            .symbols
            .iter()
            .find(|symbol| &*symbol.name == "_text");
        kernel.text_start = begin.map(|symbol| symbol.start);
        kernel
    }

    /// Adds a line: address, type, name, and a module in brackets.
    fn add(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace();
        let start = u64::from_str_radix(fields.next()?, 16).ok()?;
        let kind = fields.next()?;
        let name = fields.next()?;
        let module = match fields.next() {
            None => 0,
            Some(module) => {
                let last = self.modules.len() - 1;
                // The symbols of one module are consecutive.
                if &*self.modules[last] == module {
                    last
                } else {
                    self.modules.push(module.into());
                    last + 1
                }
            }
        };
        self.symbols.push(Symbol {
            start,
            name: name.into(),
            module: u32::try_from(module).ok()?,
            is_function: matches!(kind, "t" | "T" | "w" | "W"),
        });
        Some(())
    }

    /// The location of an address; None below the first symbol, or without symbols.
    pub(super) fn at(&self, address: u64) -> Option<KernelLocation<'_>> {
        let end = self
            .symbols
            .partition_point(|symbol| symbol.start <= address);
        let last = self.symbols[..end].last()?;
        let next = self.symbols.get(end);
        // The size of a module's last symbol is unknown, since the next symbol belongs to another
        // module.
        let is_too_far =
            next.is_none_or(|next| next.module != last.module) && address - last.start > 1 << 16;
        let at_start = self.symbols[..end]
            .iter()
            .rev()
            .take_while(|symbol| symbol.start == last.start);
        let functions = at_start.filter(|symbol| symbol.is_function && !is_too_far);
        let underscores = |name: &str| name.bytes().take_while(|byte| *byte == b'_').count();
        let best = functions.max_by_key(|symbol| {
            (
                std::cmp::Reverse(underscores(&symbol.name)),
                symbol.name.len(),
            )
        });
        let module = Arc::clone(&self.modules[usize::try_from(last.module).ok()?]);
        Some(KernelLocation {
            name: best.map(|symbol| &*symbol.name),
            module,
            offset: self
                .text_start
                .filter(|_| last.module == 0)
                .and_then(|start| address.checked_sub(start)),
        })
    }
}

/// Why all addresses of kallsyms are zero (`kallsyms_show_value` of `kernel/ksyms_common.c`).
fn why_hidden(proc: &Path) -> String {
    let text = std::fs::read_to_string(proc.join("sys/kernel/kptr_restrict"));
    let restrict = text.as_deref().map_or("unknown", str::trim);
    let advice = match restrict {
        "0" | "1" => "run pmuscope as root or with CAP_SYSLOG".to_owned(),
        _ => "set it to 1 and run pmuscope as root or with CAP_SYSLOG".to_owned(),
    };
    format!(
        "functions of the kernel have no names: the kernel hides its addresses \
         (kernel.kptr_restrict is {restrict}): {advice}"
    )
}

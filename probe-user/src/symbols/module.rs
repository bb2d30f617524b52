//! An ELF file with the names of its functions, from its own symbol tables or a separate debug
//! file.

use std::{cell::OnceCell, collections::HashMap, sync::Arc};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};

use super::{demangle::demangled, elf::Elf, functions::Functions};

/// Maximum number of cached names of one file.
const MAX_NAMES: usize = 16_384;

/// Bytes of the reference counts of a shared name.
const ARC_BYTES: usize = 16;

/// A table of functions, with its file.
#[derive(Debug)]
struct FunctionTable {
    functions: Functions,
    /// The file that has the names; None for the module's own file.
    elf: Option<Elf>,
}

#[derive(Debug)]
pub(super) struct Module {
    pub(super) elf: Elf,
    pub(super) build_id: Option<Arc<[u8]>>,
    /// Tables of functions, in the order in which they are searched.
    tables: OnceCell<Vec<FunctionTable>>,
    /// Cached names, by virtual address; None for addresses without a name.
    names: HashMap<u64, Option<Arc<str>>>,
    /// Memory of the cached names in bytes.
    name_bytes: usize,
}

impl Module {
    pub(super) fn new(elf: Elf) -> Self {
        Self {
            build_id: elf.build_id.as_deref().map(Into::into),
            elf,
            tables: OnceCell::new(),
            names: HashMap::new(),
            name_bytes: 0,
        }
    }

    /// The name of the function at an offset in the file. `debug` finds the separate debug file.
    pub(super) fn name(
        &mut self,
        offset: u64,
        debug: impl FnOnce(&Elf) -> Option<Elf>,
    ) -> Option<Arc<str>> {
        let address = self.elf.address(offset)?;
        if let Some(known) = self.names.get(&address) {
            return known.clone();
        }
        let elf = &self.elf;
        let tables = self.tables.get_or_init(|| tables(elf, debug));
        let mut names = tables.iter().filter_map(|table| {
            let elf = table.elf.as_ref().unwrap_or(elf);
            table.functions.name(elf, address)
        });
        let name: Option<Arc<str>> = names.next().map(|name| demangled(&name).into());
        if self.names.len() == MAX_NAMES {
            self.names.clear();
            self.name_bytes = 0;
        }
        self.name_bytes += name.as_ref().map_or(0, |name| name.len() + ARC_BYTES);
        self.names.insert(address, name.clone());
        name
    }

    /// Memory in bytes: headers, tables and names.
    pub(super) fn memory(&self) -> usize {
        let tables = self.tables.get().into_iter().flatten();
        let debug = |table: &FunctionTable| table.elf.as_ref().map_or(0, Elf::memory);
        let tables = tables.map(|table| table.functions.memory() + debug(table));
        let entry = size_of::<(u64, Option<Arc<str>>)>();
        self.elf.memory() + tables.sum::<usize>() + self.names.capacity() * entry + self.name_bytes
    }
}

/// The tables of functions to search: the full symbol table of the file or of its debug file, else
/// the exported symbols.
fn tables(elf: &Elf, debug: impl FnOnce(&Elf) -> Option<Elf>) -> Vec<FunctionTable> {
    let own = |kind| {
        Some(FunctionTable {
            functions: Functions::read(elf, kind)?,
            elf: None,
        })
    };
    let mut tables = Vec::new();
    if let Some(full) = own(SHT_SYMTAB) {
        tables.push(full);
    } else if let Some(debug) = debug(elf) {
        let functions = Functions::read(&debug, SHT_SYMTAB);
        tables.extend(functions.map(|functions| FunctionTable {
            functions,
            elf: Some(debug),
        }));
    }
    if tables.is_empty() {
        tables.extend(own(SHT_DYNSYM));
    }
    tables
}

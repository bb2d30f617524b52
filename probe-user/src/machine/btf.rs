//! Reads BTF of the running kernel: offsets of the fields that the programs read, and ids of the
//! types that they attach to.

mod file;

use std::{
    fs,
    path::{Path, PathBuf},
};

use self::file::BtfTypes;
pub(crate) use self::file::{KIND_FUNCTION, KIND_TYPEDEF, Shape};

/// The BTF file below sysfs.
pub(super) const VMLINUX: &str = "kernel/btf/vmlinux";

/// Why the kernel's types could not be read, or do not match the programs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The kernel does not describe its types.
    #[error(
        "cannot read the kernel's BTF at {path}: {reason}; pmuscope needs a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y (every current distribution's is)"
    )]
    Unreadable {
        /// The BTF file.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// Maps of this kernel allocate memory in a way that is unsafe in the scheduler.
    #[error(
        "this kernel has no struct bpf_mem_alloc (read in {path}): pmuscope's maps would allocate \
         memory under the scheduler's lock, which can deadlock it; boot Linux 6.1 or newer, or a \
         kernel with a backport, such as RHEL 9's"
    )]
    MapAllocator {
        /// The BTF file.
        path: PathBuf,
    },
    /// The kernel lacks a field that the programs need.
    #[error(
        "the kernel's BTF at {path} has no {structure}.{member}: this kernel is newer or older \
         than pmuscope knows; please report it with the output of `uname -r`"
    )]
    Field {
        /// The BTF file.
        path: PathBuf,
        /// The structure.
        structure: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// A field has another type than the programs expect.
    #[error(
        "the kernel's BTF at {path} has {structure}.{member} as {found}, and the programs read \
         {expected} there: this kernel is newer or older than pmuscope knows; please report it \
         with the output of `uname -r`"
    )]
    FieldType {
        /// The BTF file.
        path: PathBuf,
        /// The structure.
        structure: &'static str,
        /// Its member.
        member: &'static str,
        /// Its type in this kernel.
        found: String,
        /// The type that the programs expect.
        expected: String,
    },
}

/// Offset that tells the programs that a field is missing.
pub(crate) const NO_FIELD: u64 = u64::MAX;

/// A member of a structure that the programs read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// The programs' global variable that holds the offset.
    pub(crate) global: &'static str,
    structure: &'static str,
    member: &'static str,
    /// The type that the programs expect.
    shape: Shape<'static>,
}

/// Makes a [`Field`].
pub(crate) const fn field(
    global: &'static str,
    structure: &'static str,
    member: &'static str,
    shape: Shape<'static>,
) -> Field {
    Field {
        global,
        structure,
        member,
        shape,
    }
}

/// The kernel's allocator of hash maps without preallocation, since Linux 6.1. Maps of older
/// kernels call kmalloc, which in a program at `sched_switch` can wake kswapd while the run-queue
/// lock is held: a deadlock. Distributions backport the allocator (RHEL 9's 5.14), so the type
/// decides and not the version.
const MAP_ALLOCATOR: &str = "bpf_mem_alloc";

/// Facts read from the kernel's BTF.
#[derive(Debug, Default)]
pub(crate) struct KernelTypes {
    /// Name and value of each field's global; [`NO_FIELD`] for an optional field that the kernel
    /// lacks.
    pub(crate) offsets: Vec<(&'static str, u64)>,
    /// Kind, name and id of each requested type that exists.
    pub(crate) numbers: Vec<(u32, String, u32)>,
}

/// Reads the offsets of these fields and the ids of these types.
///
/// # Errors
///
/// The file cannot be read, lacks a field of `needed`, or is of a kernel below the minimum (Linux
/// 6.1).
pub(crate) fn read(
    vmlinux: &Path,
    needed: &[Field],
    optional: &[Field],
    named: impl Iterator<Item = (u32, String)>,
) -> Result<KernelTypes, BtfError> {
    let error = |reason: String| BtfError::Unreadable {
        path: vmlinux.to_path_buf(),
        reason,
    };
    let bytes = fs::read(vmlinux).map_err(|read| error(read.to_string()))?;
    let types = BtfTypes::parse(&bytes).map_err(|parse| error(parse.to_string()))?;
    if !types.has_structure(MAP_ALLOCATOR) {
        return Err(BtfError::MapAllocator {
            path: vmlinux.to_path_buf(),
        });
    }
    let offset = |it: &Field| -> Result<Option<u64>, BtfError> {
        match types.member(it.structure, it.member) {
            None => Ok(None),
            Some((offset, shape)) if shape == it.shape => Ok(Some(offset)),
            Some((offset, Shape::Integer(_))) if it.shape == Shape::AnyInteger => Ok(Some(offset)),
            Some((_, shape)) => Err(BtfError::FieldType {
                path: vmlinux.to_path_buf(),
                structure: it.structure,
                member: it.member,
                found: shape.to_string(),
                expected: it.shape.to_string(),
            }),
        }
    };
    let required = |it: &Field| {
        let missing = || BtfError::Field {
            path: vmlinux.to_path_buf(),
            structure: it.structure,
            member: it.member,
        };
        Ok((it.global, offset(it)?.ok_or_else(missing)?))
    };
    let mut offsets: Vec<_> = needed
        .iter()
        .map(required)
        .collect::<Result<_, BtfError>>()?;
    for field in optional {
        offsets.push((field.global, offset(field)?.unwrap_or(NO_FIELD)));
    }
    let numbers = named.filter_map(|(kind, name)| {
        let number = types.type_id(kind, &name)?;
        Some((kind, name, number))
    });
    Ok(KernelTypes {
        offsets,
        numbers: numbers.collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::iter::empty;

    use super::{
        file::Shape::{Integer, Pointer},
        *,
    };

    const FIELDS: [Field; 2] = [
        field("TASK_PID", "task_struct", "pid", Integer(4)),
        field("TASK_CGROUPS", "task_struct", "cgroups", Pointer),
    ];

    /// A kernel without the allocator of the maps.
    #[test]
    fn a_kernel_whose_maps_allocate_in_the_scheduler_is_refused() {
        let file = file::tests::file(&[1, 4 << 24, 0], "\0task_struct\0");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmlinux");
        fs::write(&path, file).unwrap();
        let error = read(&path, &FIELDS, &[], empty()).unwrap_err().to_string();
        assert_eq!(
            error.replace(path.to_str().unwrap(), "PATH"),
            "this kernel has no struct bpf_mem_alloc (read in PATH): pmuscope's maps would \
             allocate memory under the scheduler's lock, which can deadlock it; boot Linux 6.1 or \
             newer, or a kernel with a backport, such as RHEL 9's"
        );
    }

    /// First `task_struct.pid` has another size; then its size is right and `task_struct.cgroups`
    /// is missing.
    #[test]
    fn a_field_that_is_missing_or_of_another_size_is_refused() {
        let refused = |size: u32| {
            let (int, composite) = (1 << 24, 4 << 24);
            let types = [
                vec![0, int, size, 8 * size],
                vec![1, composite | 1, size, 13, 1, 0],
                vec![17, composite, 0],
            ];
            let names = "\0task_struct\0pid\0bpf_mem_alloc\0";
            let file = file::tests::file(&types.concat(), names);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("vmlinux");
            fs::write(&path, file).unwrap();
            let error = read(&path, &FIELDS, &[], empty()).unwrap_err().to_string();
            error.replace(path.to_str().unwrap(), "PATH")
        };
        assert_eq!(
            refused(8),
            "the kernel's BTF at PATH has task_struct.pid as an integer of 8 bytes, and the \
             programs read an integer of 4 bytes there: this kernel is newer or older than \
             pmuscope knows; please report it with the output of `uname -r`"
        );
        let missing = refused(4);
        assert!(
            missing.starts_with("the kernel's BTF at PATH has no task_struct.cgroups"),
            "{missing}"
        );
    }

    #[test]
    fn missing_btf_is_reported() {
        let error = read(Path::new("/nonexistent"), &[], &[], empty())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot read the kernel's BTF at /nonexistent"),
            "{error}"
        );
    }
}

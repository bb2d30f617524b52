//! The kernel's types (BTF), by which programs find what they attach to. Parsed they take 9 MB or
//! more, and a session that runs hardly ever loads another program: they are read when one is, and
//! forgotten afterwards.

use std::path::PathBuf;

use aya::Btf;

use crate::{
    machine::btf::BtfError,
    session::{SessionError, error::chain},
    sys::heap,
};

/// The types of the running kernel.
pub(super) struct Types {
    path: PathBuf,
    read: Option<Btf>,
}

impl Types {
    /// Those at this path, for messages: the kernel has one place for them.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read: None }
    }

    /// Reads them where they are not there.
    pub(super) fn get(&mut self) -> Result<&Btf, SessionError> {
        if self.read.is_none() {
            let read = Btf::from_sys_fs().map_err(|error| BtfError::Unreadable {
                path: self.path.clone(),
                reason: chain(&error),
            })?;
            self.read = Some(read);
        }
        Ok(self.read.as_ref().expect("they were read"))
    }

    /// Gives their memory back until they are needed again.
    pub(super) fn forget(&mut self) {
        if self.read.take().is_some() {
            heap::give_back();
        }
    }
}

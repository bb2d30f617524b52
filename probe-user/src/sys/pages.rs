//! Anonymous memory, in huge pages where the kernel has them.

use std::{ffi::c_void, fs, io, ptr::NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::roots::Roots;

/// Size of a huge page on x86-64, and on arm64 with pages of 4 KiB. [`Pages`] is aligned to it.
pub(crate) const HUGE: usize = 2 << 20;

/// Zeroed anonymous memory. The kernel allocates each page at its first write, near the CPU that
/// writes.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    /// Start and size of the whole mapping, which includes bytes before `start`.
    mapped: (NonNull<c_void>, usize),
}

// SAFETY: the memory belongs to this value alone, whichever thread has it.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `size` bytes, and requests huge pages; a kernel without them gives small pages.
    pub(crate) fn new(size: usize) -> io::Result<Self> {
        let all = size.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                all,
                read_write,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let mapped = NonNull::new(mapped).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory was mapped above, and the advice does not change its content.
        let _advised = unsafe { madvise(mapped.as_ptr(), all, Advice::LinuxHugepage) };
        let skip = mapped.cast::<u8>().as_ptr().align_offset(HUGE);
        // SAFETY: `skip` is less than HUGE, and HUGE bytes more than `size` were mapped.
        let start = unsafe { mapped.cast::<u8>().add(skip) };
        Ok(Self {
            start,
            mapped: (mapped, all),
        })
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Number of bytes in huge pages, and number of all resident bytes. Reads the whole file
    /// `/proc/self/smaps`; None if it does not have them.
    pub(crate) fn huge(&self) -> Option<(u64, u64)> {
        let smaps = fs::read_to_string(Roots::default().proc.join("self/smaps")).ok()?;
        huge_at(&smaps, self.start.as_ptr() as u64)
    }
}

/// [`Pages::huge`] for the mapping that contains `address`.
fn huge_at(smaps: &str, address: u64) -> Option<(u64, u64)> {
    let range = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(hex(start)?..hex(end)?)
    };
    let mut lines = smaps
        .lines()
        .skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
    lines.next()?;
    let fields: Vec<&str> = lines.take_while(|line| range(line).is_none()).collect();
    let bytes = |name: &str| {
        let mut values = fields.iter().filter_map(|line| line.strip_prefix(name));
        let value = values.next()?.trim().strip_suffix(" kB")?;
        Some(value.trim().parse::<u64>().ok()? * 1024)
    };
    Some((bytes("AnonHugePages:")?, bytes("Rss:")?))
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (start, size) = self.mapped;
        // SAFETY: `new` mapped this, and no reference to it is left.
        let _unmapped = unsafe { munmap(start.as_ptr(), size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_its_huge_pages_are_reported() {
        let pages = Pages::new(4096).unwrap();
        assert_eq!(pages.start() as usize % HUGE, 0);
        // SAFETY: inside the mapping.
        unsafe { pages.start().write(1) };
        let (huge, all) = pages.huge().unwrap();
        assert!(huge <= all && all > 0, "{huge} of {all}");
    }

    #[test]
    fn the_mapping_of_the_address_is_read() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\nAnonHugePages: 0 kB\n\
                     20000000-20400000 rw-p 00000000 00:00 0\nRss: 4096 kB\n\
                     AnonHugePages:      2048 kB\n\
                     30000000-30400000 rw-p 00000000 00:00 0\nRss: 8 kB\n";
        assert_eq!(huge_at(smaps, 0x2020_0000), Some((2 << 20, 4 << 20)));
        assert_eq!(huge_at(smaps, 0x3000_0000), None);
        assert_eq!(huge_at(smaps, 0x5000_0000), None);
    }
}

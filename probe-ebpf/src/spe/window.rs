//! The 64 bytes that the decoder reads, with accesses that the verifier admits.

use core::arch::asm;

use probe_common::spe::Bytes;

/// A copy of two consecutive cells of the buffer, in a map value. The last word stays zero: the
/// decoder may read up to seven bytes past the window.
pub(super) type Cells = [u64; 17];

/// Read access to 64 bytes that start in the first of the [`Cells`].
pub(super) struct Window {
    first: *const u8,
    /// Zero; the verifier does not know its value.
    zero: u32,
}

impl Window {
    /// The window that starts at `position` of the buffer, a byte of the first cell.
    ///
    /// # Safety
    ///
    /// `cells` stays in a map value as long as the window exists.
    #[inline(always)]
    pub(super) unsafe fn new(cells: *const Cells, position: u64) -> Self {
        let cells = cells.cast::<u8>();
        // SAFETY: the last byte of the cells.
        let zero = u32::from(unsafe { cells.add(135).read_volatile() });
        let first: *const u8;
        // SAFETY: a byte of the first cell.
        unsafe {
            asm!(
                "{position} &= 63",
                "{position} += {cells}",
                position = inout(reg) position => first,
                cells = in(reg) cells,
            );
        }
        Self { first, zero }
    }
}

/// The mask is in the same asm block as the load: LLVM would drop a separate mask that it can prove
/// superfluous, and the verifier, which cannot prove that, would refuse the load.
impl Bytes for Window {
    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        let value: u64;
        // SAFETY: reads byte 0 to 63 of the window.
        unsafe {
            asm!(
                "{at} &= 63",
                "{at} += {base}",
                "{value} = *(u8 *)({at} + 0)",
                at = inout(reg) u64::from(at) => _,
                base = in(reg) self.first,
                value = out(reg) value,
            );
        }
        value as u8
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        let value: u64;
        // SAFETY: reads eight bytes from a byte between 0 and 63 of the window: the cells have 136.
        unsafe {
            asm!(
                "{at} &= 63",
                "{at} += {base}",
                "{value} = *(u64 *)({at} + 0)",
                at = inout(reg) u64::from(at) => _,
                base = in(reg) self.first,
                value = out(reg) value,
            );
        }
        value
    }

    #[inline(always)]
    fn opaque(&self, at: u32) -> u32 {
        at ^ self.zero
    }
}

//! The 64 bytes that the decoder looks at, as the verifier admits them.

use core::arch::asm;

use probe_common::spe::Bytes;

/// A copy of one cell of the buffer, in a map value. The last word stays zero: the decoder may read
/// up to seven bytes past the cell.
pub(super) type Cell = [u64; 9];

/// Read access to a [`Cell`].
pub(super) struct Window {
    cell: *const u8,
    /// Zero, which the verifier cannot know.
    zero: u32,
}

impl Window {
    /// # Safety
    ///
    /// `cell` is in a map value, for as long as this lives.
    #[inline(always)]
    pub(super) unsafe fn new(cell: *const Cell) -> Self {
        let cell = cell.cast::<u8>();
        // SAFETY: the last byte of the cell.
        let zero = u32::from(unsafe { cell.add(71).read_volatile() });
        Self { cell, zero }
    }
}

/// The mask stands in the same block as the load: LLVM drops one that it can prove superfluous, and
/// the verifier, which cannot prove it, then refuses the load.
impl Bytes for Window {
    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        let value: u64;
        // SAFETY: reads byte 0 to 63 of the cell.
        unsafe {
            asm!(
                "{at} &= 63",
                "{at} += {base}",
                "{value} = *(u8 *)({at} + 0)",
                at = inout(reg) u64::from(at) => _,
                base = in(reg) self.cell,
                value = out(reg) value,
            );
        }
        value as u8
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        let value: u64;
        // SAFETY: reads eight bytes from byte 0 to 63 of the cell on, which has 72.
        unsafe {
            asm!(
                "{at} &= 63",
                "{at} += {base}",
                "{value} = *(u64 *)({at} + 0)",
                at = inout(reg) u64::from(at) => _,
                base = in(reg) self.cell,
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

//! Bounds for texts that others chose.

/// The longest name in bytes: that of a pod has at most 253.
pub(super) const NAME: usize = 256;

/// The longest image or label in bytes.
pub(super) const TEXT: usize = 1024;

/// Cuts a text to at most this many bytes, with a mark, and counts it.
pub(super) fn clip(mut text: String, most: usize, cut: &mut u64) -> String {
    const MARK: &str = "…";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most - MARK.len()));
        text.push_str(MARK);
        *cut += 1;
    }
    // A runtime's buffer may be larger than its text.
    text.shrink_to_fit();
    text
}

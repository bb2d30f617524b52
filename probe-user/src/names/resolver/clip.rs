//! Length limits of untrusted texts.

/// Maximum length of a name in bytes: a pod's name has at most 253.
pub(super) const NAME: usize = 256;

/// Maximum length of an image or label in bytes.
pub(super) const TEXT: usize = 1024;

/// Truncates a text to at most `most` bytes, with an ellipsis, and counts it in `cut`.
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

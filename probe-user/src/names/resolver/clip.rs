//! Length limits of untrusted texts.

/// Maximum length of a name in bytes: Kubernetes allows 253 in a pod's name.
pub(super) const NAME: usize = 256;

/// Maximum length of an image or label in bytes.
pub(super) const TEXT: usize = 1024;

/// Truncates a text that is longer than `max` bytes, marks that with an ellipsis, and counts it in
/// `cut`.
pub(super) fn clip(mut text: String, max: usize, cut: &mut u64) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
        *cut += 1;
    }
    // The buffer of a decoded text may be larger than the text.
    text.shrink_to_fit();
    text
}

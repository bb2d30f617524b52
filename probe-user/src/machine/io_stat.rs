//! `io.stat` of a cgroup (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").

/// The numbers in lines such as `259:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`: device
/// (`major:minor`), name and value. An unused device has its number only, or no line.
pub(crate) fn numbers(text: &str) -> impl Iterator<Item = (&str, &str, u64)> {
    text.lines().flat_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let device = fields.next().unwrap_or_default();
        fields.filter_map(move |field| {
            let (name, value) = field.split_once('=')?;
            Some((device, name, value.parse().ok()?))
        })
    })
}

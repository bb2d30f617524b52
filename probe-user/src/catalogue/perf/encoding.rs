//! Events of the JSON files as perf's `-e` strings.

use super::directory::Entry;

/// Keys of the JSON files, each with its term in the PMU's `format/`
/// (tools/perf/pmu-events/jevents.py).
const TERMS: [(&str, &str); 13] = [
    ("AnyThread", "any"),
    ("PortMask", "ch_mask"),
    ("CounterMask", "cmask"),
    ("EdgeDetect", "edge"),
    ("FCMask", "fc_mask"),
    ("Invert", "inv"),
    ("NodeType", "type"),
    ("RdWrMask", "rdwrmask"),
    ("EnAllCores", "enallcores"),
    ("EnAllSlices", "enallslices"),
    ("SliceId", "sliceid"),
    ("ThreadMask", "threadmask"),
    ("UMask", "umask"),
];

/// Numbers of model-specific registers, each with the term that writes it.
const REGISTERS: [(u64, &str); 4] = [
    (0x1a6, "offcore_rsp"),
    (0x1a7, "offcore_rsp"),
    (0x3f6, "ldlat"),
    (0x3f7, "frontend"),
];

/// The key of the core PMU.
pub(super) const CORE: &str = "core";

/// An event of a file.
#[derive(Clone, Debug)]
pub(super) struct JsonEvent {
    /// As in the file.
    pub(super) name: String,
    /// The key of its PMU.
    pub(super) pmu: String,
    /// Terms with their values, `event` first.
    pub(super) terms: Vec<(String, u64)>,
    /// The counters that can count it; empty: any.
    pub(super) counters: Vec<u8>,
    /// Whether it has a fixed counter.
    pub(super) fixed: bool,
    /// Its description.
    pub(super) text: Option<String>,
}

/// The string with this key in an entry; `None` if there is none, or if it is empty or `null`.
pub(super) fn text<'a>(entry: &'a Entry, key: &str) -> Option<&'a str> {
    let text = entry.get(key)?.as_str()?.trim();
    (!text.is_empty() && !text.eq_ignore_ascii_case("null")).then_some(text)
}

/// The number of a text, decimal or hexadecimal; the first one of a list with commas.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.split(',').next()?.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl JsonEvent {
    /// The event of an entry; `None` if it has no name or no code.
    pub(super) fn from_entry(entry: &Entry) -> Option<Self> {
        let name = text(entry, "EventName")?.to_owned();
        let value = |key: &str| text(entry, key).and_then(number);
        let mut code = value("EventCode").unwrap_or_default();
        code |= value("ExtSel").unwrap_or_default() << 8;
        // The pseudo-codes of fixed counters are not accepted by the kernel.
        match name.to_ascii_lowercase().as_str() {
            "inst_retired.any" => code = 0xc0,
            "cpu_clk_unhalted.thread" | "cpu_clk_unhalted.core" => code = 0x3c,
            _ => {}
        }
        let mut terms = vec![("event".to_owned(), code)];
        for (key, term) in TERMS {
            let mut number = value(key).unwrap_or_default();
            if key == "UMask" {
                number |= value("UMaskExt").unwrap_or_default() << 8;
                let is_replaced = matches!(code, 0xc0 | 0x3c) && value("EventCode") == Some(0);
                number = if is_replaced { 0 } else { number };
            }
            if number != 0 {
                terms.push((term.to_owned(), number));
            }
        }
        let register = value("MSRIndex").filter(|register| *register != 0);
        let register = REGISTERS.iter().find(|(known, _)| Some(*known) == register);
        if let (Some((_, term)), Some(number)) = (register, value("MSRValue")) {
            terms.push(((*term).to_owned(), number));
        }
        let counter = text(entry, "Counter").unwrap_or_default();
        let counters = counter.split(',').map(|it| it.trim().parse());
        Some(Self {
            pmu: text(entry, "Unit").map_or_else(|| CORE.to_owned(), key),
            terms,
            counters: counters.collect::<Result<_, _>>().unwrap_or_default(),
            fixed: counter.starts_with("Fixed"),
            text: text(entry, "BriefDescription")
                .or_else(|| text(entry, "PublicDescription"))
                .map(str::to_owned),
            name,
        })
    }
}

/// The terms in perf's syntax.
pub(super) fn terms_text(terms: &[(String, u64)]) -> String {
    let terms: Vec<String> = terms
        .iter()
        .map(|(term, value)| format!("{term}={value:#x}"))
        .collect();
    terms.join(",")
}

/// The key of the PMU that the files call `unit`.
pub(super) fn key(unit: &str) -> String {
    match unit {
        "cpu_core" | "core" => CORE.to_owned(),
        unit => {
            let allowed = |c: char| match c.is_ascii_alphanumeric() {
                true => c.to_ascii_lowercase(),
                false => '_',
            };
            unit.chars().map(allowed).collect()
        }
    }
}

/// The pattern of the names in sysfs of the PMU with this key.
pub(super) fn pattern(key: &str) -> String {
    match key {
        CORE => "{core}".to_owned(),
        "l3pmc" => "amd_l3".to_owned(),
        "dfpmc" => "amd_df".to_owned(),
        "umcpmc" => "amd_umc_{unit}".to_owned(),
        "cbo" => "uncore_cbox_{unit}".to_owned(),
        "qpi_ll" => "uncore_qpi_{unit}".to_owned(),
        "upi_ll" => "uncore_upi_{unit}".to_owned(),
        "sbo" => "uncore_sbox_{unit}".to_owned(),
        "pcu" | "ubox" => format!("uncore_{key}"),
        key => format!("uncore_{key}_{{unit}}"),
    }
}

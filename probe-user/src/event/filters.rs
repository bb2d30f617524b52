//! Filters of uncore PMUs whose values are not numbers, or that exclude each other.
//!
//! According to the Tegra410 document, a PCIe root complex has one filter by device address
//! (`src_bdf`) for all its counters, which excludes the filter by root port. PCIE-TGT compares
//! addresses by base and mask.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Counter, error::EventError};
use crate::machine::{
    self, Bdf, FieldFormat, Pmu, Pmus,
    config_space::RootPort,
    terms::{self, Term},
};

/// Number of address filters of a PCIE-TGT PMU (`nvidia_cspmu.c`).
const ADDRESS_FILTERS: usize = 8;

/// Terms of filters, each with the term that enables the filter.
const ENABLED_BY: [(&str, &str); 3] = [
    ("src_bdf", "src_bdf_en"),
    ("dst_addr_base", "dst_addr_en"),
    ("dst_addr_mask", "dst_addr_en"),
];

/// Replaces readable terms by the PMU's own: `src_bdf=27:01.1` by its number and `src_bdf_en`,
/// `dst_addr=BASE-END` by base, mask and `dst_addr_en`.
pub(super) fn expand<'t>(
    pmu: &Pmu,
    terms: &'t [Term],
    pmus: &Pmus,
) -> Result<Cow<'t, [Term]>, EventError> {
    let expanded = expand_terms(pmu, terms, pmus)?;
    check_enabled(pmu, &expanded)?;
    Ok(expanded)
}

/// Rejects a filter that is not enabled, with which everything would be counted.
fn check_enabled(pmu: &Pmu, terms: &[Term]) -> Result<(), EventError> {
    let is_enabled = |enable: &str| {
        let mut terms = terms.iter().filter(|term| term.name == enable);
        terms.any(|term| {
            term.value
                .as_deref()
                .is_none_or(|text| terms::number(text) != Some(0))
        })
    };
    for term in terms {
        let enable = ENABLED_BY.iter().find(|(filter, _)| *filter == term.name);
        if let Some((_, enable)) = enable
            && pmu.formats.contains_key(*enable)
            && !is_enabled(enable)
        {
            return Err(EventError::Filter {
                pmu: pmu.name.clone(),
                term: term.name.clone(),
                value: term.value.clone().unwrap_or_default(),
                why: format!("it does nothing unless it is turned on; add {enable}=1"),
            });
        }
    }
    Ok(())
}

/// Checks that the PMU of a root complex counts the function at an address with a domain.
fn check_domain(pmu: &Pmu, address: Bdf, pmus: &Pmus) -> Result<(), String> {
    let named_complex = || {
        let (_, complex) = pmu.name.rsplit_once("_rc_")?;
        let node = machine::named_node(&pmu.name)?;
        Some((pmus.socket_named(node), complex.parse::<u32>().ok()?))
    };
    let Some(named_complex) = named_complex() else {
        return Ok(());
    };
    match pmus.root_port_of(address) {
        Ok(None) => Ok(()),
        Ok(Some(RootPort {
            socket,
            root_complex,
            ..
        })) => {
            let is_named = (u32::from(socket), u32::from(root_complex)) == named_complex;
            is_named.then_some(()).ok_or_else(|| {
                format!(
                    "{address} is behind root complex {root_complex} of socket {socket}; name the \
                     PMU of that one"
                )
            })
        }
        Err(machine::config_space::ConfigSpaceError::NoRight) => {
            tracing::warn!(
                "whether {} counts {address} is not known: the register that tells needs \
                 CAP_SYS_ADMIN",
                pmu.name
            );
            Ok(())
        }
        Err(error) => Err(format!("of {address}: {error}")),
    }
}

fn expand_terms<'t>(
    pmu: &Pmu,
    terms: &'t [Term],
    pmus: &Pmus,
) -> Result<Cow<'t, [Term]>, EventError> {
    let has_format = |name: &str| pmu.formats.contains_key(name);
    let needs_expansion = |term: &&Term| {
        let value = term.value.as_deref();
        let is_address = |text: &str| terms::number(text).is_none();
        match term.name.as_str() {
            "src_bdf" => has_format("src_bdf") && value.is_some_and(is_address),
            "dst_addr" => !has_format("dst_addr") && has_format("dst_addr_base"),
            _ => false,
        }
    };
    if !terms.iter().any(|term| needs_expansion(&term)) {
        return Ok(Cow::Borrowed(terms));
    }
    let is_given = |name: &str| terms.iter().any(|term| term.name == name);
    let mut expanded = Vec::new();
    for term in terms {
        if !needs_expansion(&term) {
            expanded.push(term.clone());
            continue;
        }
        let text = term.value.as_deref().unwrap_or_default();
        let filter_error = |why: String| EventError::Filter {
            pmu: pmu.name.clone(),
            term: term.name.clone(),
            value: text.to_owned(),
            why,
        };
        let mut push_term = |name: &str, value: u64| {
            expanded.push(Term {
                name: name.to_owned(),
                value: Some(format!("{value:#x}")),
            });
        };
        if term.name == "src_bdf" {
            let address: Bdf = text
                .parse()
                .map_err(|error| filter_error(format!("{error}")))?;
            if text.matches(':').count() > 1 {
                check_domain(pmu, address, pmus).map_err(filter_error)?;
            }
            push_term("src_bdf", address.requester().into());
            if !is_given("src_bdf_en") {
                push_term("src_bdf_en", 1);
            }
        } else {
            let (base, mask) = base_and_mask(text).map_err(filter_error)?;
            push_term("dst_addr_base", base);
            push_term("dst_addr_mask", mask);
            if !is_given("dst_addr_en") {
                push_term("dst_addr_en", 1);
            }
        }
    }
    Ok(Cow::Owned(expanded))
}

/// Base and mask of `BASE-END`, both ends included. The mask has all bits above the range, so that
/// no other address matches: the document's example, 0xFFF00, also matches addresses 1 MiB apart.
fn base_and_mask(text: &str) -> Result<(u64, u64), String> {
    let ends = text
        .split_once('-')
        .and_then(|(base, end)| Some((terms::number(base)?, terms::number(end)?)));
    let Some((base, end)) = ends else {
        return Err("give the first and the last address, such as 0x10000-0x100ff".to_owned());
    };
    let Some(length) = end.checked_sub(base) else {
        return Err("the range runs backwards".to_owned());
    };
    // `length` must have all ones below the first bit in which base and end differ.
    if !length.wrapping_add(1).is_power_of_two() && length != u64::MAX || base & length != 0 {
        let free_bits = u64::MAX
            .checked_shr((base ^ end).leading_zeros())
            .unwrap_or(0);
        return Err(format!(
            "the hardware compares by a mask, so a range must be a power of two long and begin at \
             a multiple of its length; {:#x}-{:#x} is the smallest that holds this one",
            base & !free_bits,
            end | free_bits
        ));
    }
    Ok((base, !length))
}

/// Rejects filters that the hardware cannot apply at the same time, among all counters of a run.
/// Each counter comes with its name for messages.
///
/// # Errors
/// The first conflict: within an event, between two events, or too many address ranges.
pub(crate) fn check<'a>(
    counters: impl IntoIterator<Item = (&'a str, &'a Counter)>,
    pmus: &Pmus,
) -> Result<(), EventError> {
    let mut by_pmu: BTreeMap<&str, Vec<(&str, &Counter)>> = BTreeMap::new();
    for (name, counter) in counters {
        if let Some(pmu) = &counter.pmu {
            by_pmu.entry(pmu).or_default().push((name, counter));
        }
    }
    for (name, events) in by_pmu {
        let Some(Ok(pmu)) = pmus.get(name) else {
            continue;
        };
        if let Some(filters) = SourceFilters::for_pmu(pmu) {
            check_sources(pmu, &filters, &events)?;
        }
        check_ranges(pmu, &events)?;
    }
    Ok(())
}

/// The formats of a root complex's source filters.
struct SourceFilters {
    ports: FieldFormat,
    bdf: FieldFormat,
    enable: FieldFormat,
}

impl SourceFilters {
    fn for_pmu(pmu: &Pmu) -> Option<Self> {
        let field = |name: &str| pmu.formats.get(name).copied();
        Some(Self {
            ports: field("src_rp_mask")?,
            bdf: field("src_bdf")?,
            enable: field("src_bdf_en")?,
        })
    }
}

fn check_sources(
    pmu: &Pmu,
    filters: &SourceFilters,
    events: &[(&str, &Counter)],
) -> Result<(), EventError> {
    let value = |field: FieldFormat, counter: &Counter| field.gather(counter.word(field.word()));
    let is_by_address = |counter: &Counter| value(filters.enable, counter) == 1;
    let mut first: Option<(&str, u64)> = None;
    for (event, counter) in events {
        if !is_by_address(counter) {
            continue;
        }
        if value(filters.ports, counter) != 0 {
            return Err(EventError::TwoSources {
                event: (*event).to_owned(),
            });
        }
        let bdf = value(filters.bdf, counter);
        match first {
            Some((other, other_bdf)) if other_bdf != bdf => {
                return Err(EventError::TwoAddresses {
                    pmu: pmu.name.clone(),
                    first: other.to_owned(),
                    second: (*event).to_owned(),
                });
            }
            _ => first = Some((event, bdf)),
        }
    }
    let Some((narrow, _)) = first else {
        return Ok(());
    };
    // The cycle counter has no source filter.
    let cycles = pmu.events.get("cycles").and_then(|event| {
        let (_, value) = event.terms.iter().find(|(term, _)| term == "event")?;
        pmu.formats.get("event")?.scatter(*value)
    });
    let event_mask = pmu.formats.get("event").map_or(0, |event| event.mask());
    let wide = events.iter().find(|(_, counter)| {
        !is_by_address(counter) && Some(counter.config & event_mask) != cycles
    });
    match wide {
        Some((wide, _)) => Err(EventError::AddressForAll {
            pmu: pmu.name.clone(),
            narrow: narrow.to_owned(),
            wide: (*wide).to_owned(),
        }),
        None => Ok(()),
    }
}

fn check_ranges(pmu: &Pmu, events: &[(&str, &Counter)]) -> Result<(), EventError> {
    let field = |name: &str| pmu.formats.get(name).copied();
    let (Some(base), Some(mask), Some(enable)) = (
        field("dst_addr_base"),
        field("dst_addr_mask"),
        field("dst_addr_en"),
    ) else {
        return Ok(());
    };
    let value = |field: FieldFormat, counter: &Counter| field.gather(counter.word(field.word()));
    let mut ranges: Vec<(u64, u64)> = events
        .iter()
        .filter(|(_, counter)| value(enable, counter) == 1)
        .map(|(_, counter)| (value(base, counter), value(mask, counter)))
        .collect();
    ranges.sort_unstable();
    ranges.dedup();
    if ranges.len() > ADDRESS_FILTERS {
        return Err(EventError::TooManyRanges {
            pmu: pmu.name.clone(),
            ranges: ranges.len(),
            most: ADDRESS_FILTERS,
        });
    }
    Ok(())
}

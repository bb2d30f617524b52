//! Names fitted to a width: wider names lose the hashes of pods, then directories or their middle.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::super::table::{MeasuredText, last_parts, width};
use crate::names::PodName;

/// The names in at most `max_width` columns. Wider names lose directories or their middle;
/// different names stay different.
pub(crate) fn fitted(names: &[&str], max_width: usize) -> Vec<String> {
    let (fit, wide): (BTreeSet<&str>, BTreeSet<&str>) = names
        .iter()
        .copied()
        .partition(|name| width(name) <= max_width);
    let mut taken: HashSet<String> = fit.iter().map(|name| (*name).to_owned()).collect();
    let mut workloads: HashMap<String, usize> = HashMap::new();
    for workload in wide
        .iter()
        .filter_map(|name| with_pod(name, |pod| pod.workload.to_owned()))
    {
        *workloads.entry(workload).or_default() += 1;
    }
    let (mut short, mut next) = (BTreeMap::new(), HashMap::new());
    for name in wide {
        let without_hash = with_pod(name, |pod| format!("{}-{}", pod.workload, pod.suffix));
        let workload = with_pod(name, |pod| pod.workload.to_owned());
        let workload = workload.filter(|it| workloads.get(it) == Some(&1));
        let pods: Vec<String> = without_hash.into_iter().chain(workload).collect();
        let shortened = pods.last().map_or(name, String::as_str);
        let measured = MeasuredText::new(shortened, max_width);
        let middle = max_width / 2;
        let cuts = [middle, 0, max_width]
            .into_iter()
            .chain(1..max_width)
            .map(|beginning| measured.cut(max_width, beginning));
        let whole = pods.iter().filter(|pod| width(pod) <= max_width).cloned();
        let mut choices = whole.chain(last_parts(shortened, max_width)).chain(cuts);
        let unused = choices
            .find(|choice| !taken.contains(choice))
            .unwrap_or_else(|| numbered(&measured, max_width, &taken, &mut next));
        taken.insert(unused.clone());
        short.insert(name, unused);
    }
    let fitted_name = |name: &&str| {
        short
            .get(name)
            .map_or_else(|| (*name).to_owned(), Clone::clone)
    };
    names.iter().map(fitted_name).collect()
}

/// A name of a container or pod with another text in place of the pod's name; None if it names no
/// pod of a workload.
fn with_pod(name: &str, text: impl Fn(PodName<'_>) -> String) -> Option<String> {
    if name.starts_with('/') {
        return None;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let (at, pod) = (0..)
        .zip(&parts)
        .find_map(|(at, part)| Some((at, PodName::parse(part)?)))?;
    let text = text(pod);
    let mut parts = parts;
    parts[at] = &text;
    Some(parts.join("/"))
}

/// The start of a name with a number, for names that differ only in the part that is cut out.
/// `next` has the next number for each start, so that the search does not begin at 2 for each of
/// thousands of such names.
fn numbered(
    name: &MeasuredText<'_>,
    max_width: usize,
    taken: &HashSet<String>,
    next: &mut HashMap<String, usize>,
) -> String {
    let (mut digits, mut first, mut end) = (1, 2, 10);
    loop {
        let rest = max_width.saturating_sub(1 + digits);
        let beginning = name.cut(rest, rest);
        let number = next.entry(beginning.clone()).or_insert(first);
        while *number < end {
            let choice = format!("{beginning}~{number}");
            *number += 1;
            if !taken.contains(&choice) {
                return choice;
            }
        }
        (digits, first, end) = (digits + 1, end, end * 10);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wide_names_stay_different() {
        let names = [
            "/system.slice/containerd.service",
            "/user.slice/containerd.service",
            "/init.scope",
            "/a/b/c/d/e/f/g/h",
        ];
        assert_eq!(
            fitted(&names, 20),
            [
                "…/containerd.service",
                "/user.slic…d.service",
                "/init.scope",
                "/a/b/c/d/e/f/g/h"
            ]
        );
        assert_eq!(fitted(&["12345678", "1234x678"], 5), ["12…78", "…x678"]);
        let inner = ["12345678", "123x5678", "12x45678"];
        assert_eq!(fitted(&inner, 3), ["1…8", "…78", "12…"]);
    }

    #[test]
    fn pods_lose_their_hashes_before_their_names() {
        let names = [
            "checkout-7d4b9c6f5-x2k4q/istio-proxy",
            "checkout-7d4b9c6f5-x2k4q/api",
            "payment-58c9f7d6b4-9zv7h/istio-proxy",
            "payment-58c9f7d6b4-bb2cd/istio-proxy",
        ];
        assert_eq!(
            fitted(&names, 30),
            [
                "checkout-x2k4q/istio-proxy",
                "checkout-7d4b9c6f5-x2k4q/api",
                "payment-9zv7h/istio-proxy",
                "payment-bb2cd/istio-proxy"
            ]
        );
        assert_eq!(
            fitted(&names[..2], 24),
            ["checkout/istio-proxy", "checkout-x2k4q/api"]
        );
        let pods = ["node-exporter-9zv7h", "node-exporter-bb2cd"];
        assert_eq!(
            fitted(&pods, 18),
            ["node-expo…er-9zv7h", "node-expo…er-bb2cd"]
        );
    }

    #[test]
    fn names_that_differ_only_in_the_cut_part_are_numbered() {
        // Only the middles of the names differ.
        let names = |count: usize| -> Vec<String> {
            let middles =
                (0..count).map(|at| format!("{}{at:05}{}", "a".repeat(20), "z".repeat(20)));
            middles.collect()
        };
        let owned = names(1_200);
        let names: Vec<&str> = owned.iter().map(String::as_str).collect();
        let short = fitted(&names, 12);
        let numbered: Vec<&String> = short.iter().filter(|name| name.contains('~')).collect();
        assert_eq!(numbered[0], "aaaaaaaaa…~2");
        assert_eq!(numbered[7..9], ["aaaaaaaaa…~9", "aaaaaaaa…~10"]);
        let last = numbered.len() + 1;
        assert_eq!(*numbered[numbered.len() - 1], format!("aaaaaa…~{last}"));
        assert_eq!(short.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    proptest! {
        #[test]
        fn fitted_names_stay_unique(
            names in prop::collection::btree_set("[ab/容]{0,12}", 0..40),
            max_width in 8_usize..14,
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let short = fitted(&names, max_width);
            let different: BTreeSet<&String> = short.iter().collect();
            prop_assert_eq!(different.len(), names.len());
            prop_assert!(short.iter().all(|name| width(name) <= max_width), "{short:?}");
        }
    }
}

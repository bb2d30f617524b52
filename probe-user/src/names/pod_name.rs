//! The parts of a Kubernetes pod's name.

/// The name of a pod with a random suffix, such as `web-7d4b9c6f5-x2k4q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodName<'a> {
    /// The name of its workload, such as a `Deployment` or a `Job`: `web`.
    pub(crate) workload: &'a str,
    /// The last part, by which pods of a workload differ: `x2k4q`.
    pub(crate) suffix: &'a str,
}

/// Characters of the random parts of pod names (`k8s.io/apimachinery/pkg/util/rand`).
const RANDOM_CHARS: &str = "bcdfghjklmnpqrstvwxz2456789";

impl<'a> PodName<'a> {
    /// The parts of a pod's name; None if it has no random suffix, as in a `StatefulSet`.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let is_random = |part: &str| part.chars().all(|char| RANDOM_CHARS.contains(char));
        let (rest, suffix) = name.rsplit_once('-')?;
        if suffix.len() != 5 || !is_random(suffix) {
            return None;
        }
        let workload = match rest.rsplit_once('-') {
            Some((workload, hash)) if (8..=10).contains(&hash.len()) && is_random(hash) => workload,
            _ => rest,
        };
        Some(Self { workload, suffix })
    }
}

/// Whether a row's `name` or its path NAMESPACE/POD/CONTAINER contains `wanted`, ignoring case.
/// `name` may be an id. The path is also tried without the pod's hash, and without hash and suffix.
pub(crate) fn name_matches(
    wanted: &str,
    name: &str,
    [namespace, pod, container]: [Option<&str>; 3],
) -> bool {
    let wanted = wanted.to_lowercase();
    let contains = |text: &str| text.to_lowercase().contains(&wanted);
    let path = |pod: Option<&str>| {
        let parts = [namespace, pod, container];
        let known: Vec<&str> = parts.into_iter().flatten().collect();
        known.join("/")
    };
    let pod_name = pod.and_then(PodName::parse);
    let without_hash = pod_name.map(|pod| format!("{}-{}", pod.workload, pod.suffix));
    contains(name)
        || contains(&path(pod))
        || without_hash.is_some_and(|pod| contains(&path(Some(&pod))))
        || pod_name.is_some_and(|pod| contains(&path(Some(pod.workload))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_matches() {
        let names = [Some("shop"), Some("web-7d4b9c6f5-x2k4q"), Some("api")];
        let is_match = |wanted: &str| name_matches(wanted, "0123456789abcdef", names);
        let shown = [
            "web-x2k4q/api",
            "web/api",
            "shop/web-7d4b9c6f5-x2k4q/api",
            "API",
            "0123456",
        ];
        assert!(shown.into_iter().all(is_match));
        assert!(!is_match("proxy"));
        assert!(!name_matches("/", "system", [None; 3]));
    }

    #[test]
    fn a_pod_name_is_split_into_workload_and_suffix() {
        let cases = [
            ("web-7d4b9c6f5-x2k4q", Some(("web", "x2k4q"))),
            ("node-agent-x2k4q", Some(("node-agent", "x2k4q"))),
            ("redis-cache", None),
            ("db-0", None),
            ("web", None),
        ];
        for (name, parts) in cases {
            let parsed = PodName::parse(name).map(|it| (it.workload, it.suffix));
            assert_eq!(parsed, parts, "{name}");
        }
    }
}

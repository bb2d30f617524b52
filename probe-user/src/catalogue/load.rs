//! Loads files into the catalogue, and checks them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Catalogue, check,
    chip::Platform,
    error::{CatalogueError, MetricProblem, Problem},
    file, files,
    model::{Family, Metric, PmuSpec},
    platform::Arch,
    refer::{Expanded, References},
    template::{self, Pattern},
};
use crate::{
    event::Nearest,
    formula::{Formula, Implicit},
};

const DOCUMENTS: &str = include_str!("../../catalogue/documents.toml");

pub(super) fn builtin() -> Result<Catalogue, CatalogueError> {
    let documents: BTreeMap<String, file::Document> =
        toml::from_str(DOCUMENTS).map_err(|error| CatalogueError {
            file: "documents.toml".into(),
            line: None,
            problem: error.into(),
        })?;
    let titles = documents.into_iter();
    let mut catalogue = Catalogue {
        families: Vec::new(),
        metrics: Vec::new(),
        documents: titles
            .map(|(key, document)| (key, document.title))
            .collect(),
        refused: Vec::new(),
    };
    for (name, text) in files::families()? {
        merge(&mut catalogue, name, text)?;
    }
    Ok(catalogue)
}

/// Adds a user's file. It has a family but no platforms and drivers: those are compiled in.
pub(super) fn merge_user_file(
    catalogue: &mut Catalogue,
    file: &str,
    text: &str,
) -> Result<(), CatalogueError> {
    let parsed: Result<file::File, _> = toml::from_str(text);
    if parsed.is_ok_and(|parsed| parsed.platform.is_some() || parsed.driver.is_some()) {
        return Err(CatalogueError {
            file: file.into(),
            line: Problem::Platform.line(text),
            problem: Problem::Platform,
        });
    }
    merge(catalogue, file, text)
}

fn merge(catalogue: &mut Catalogue, file: &str, text: &str) -> Result<(), CatalogueError> {
    let load_and_check = || {
        let file: file::File = toml::from_str(text)?;
        let (family, metrics) = load(catalogue, file, fail_on_problem)?;
        // Recordings do not get these checks: an earlier version without them may have written one.
        family.pmus.iter().try_for_each(|pmu| check::events(pmu))?;
        metrics.iter().try_for_each(check::clocks)?;
        Ok((family, metrics))
    };
    let (family, metrics) = load_and_check().map_err(|problem: Problem| CatalogueError {
        file: file.into(),
        line: problem.line(text),
        problem,
    })?;
    catalogue.families.push(family);
    catalogue.metrics.extend(metrics);
    Ok(())
}

/// The `refuse` of callers of [`load`] for which the first problem is an error.
pub(super) fn fail_on_problem(
    name: String,
    _: String,
    _: String,
    problem: MetricProblem,
) -> Result<(), Problem> {
    Err(Problem::Metric { name, problem })
}

/// Loads a file. `refuse` gets the name, title, group and problem of each invalid metric.
pub(super) fn load(
    catalogue: &Catalogue,
    file: file::File,
    mut refuse: impl FnMut(String, String, String, MetricProblem) -> Result<(), Problem>,
) -> Result<(Arc<Family>, Vec<Metric>), Problem> {
    let file::File {
        name,
        title,
        platforms,
        arch,
        midr,
        fallback,
        document,
        pmu,
        notes,
        metric,
        ..
    } = file;
    let platforms = platforms.unwrap_or_else(|| platforms_of_arch(arch));
    if catalogue.families.iter().any(|family| family.name == name) {
        return Err(Problem::FamilyTwice(name));
    }
    for (is_empty, what) in [
        (platforms.is_empty(), "platform"),
        (pmu.is_empty(), "PMU"),
        (metric.is_empty(), "metric"),
    ] {
        if is_empty {
            return Err(Problem::Nothing(what));
        }
    }
    let pmus = pmu
        .into_iter()
        .map(|(key, pmu)| load_pmu(key, pmu))
        .collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<&String> = pmus.iter().flat_map(|pmu| pmu.events.keys()).collect();
    names.sort_unstable();
    if let Some(equal) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Problem::EventTwice(equal[0].clone()));
    }
    let family = Arc::new(Family {
        name,
        title,
        platforms,
        midr,
        fallback,
        pmus,
    });
    let formulas: Vec<(String, String)> = metric
        .iter()
        .map(|raw| (raw.name.clone(), raw.formula.clone()))
        .collect();
    let own = formulas
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let references = References::new(catalogue, &family, own);
    let mut metrics: Vec<Metric> = Vec::with_capacity(metric.len());
    for raw in metric {
        let (name, title, group) = (raw.name.clone(), raw.title.clone(), raw.group.clone());
        let loaded = load_metric(
            raw,
            &references,
            &family,
            &document,
            &notes,
            &catalogue.documents,
        )
        .and_then(|metric| {
            let loaded_before = catalogue.metrics.iter().chain(&metrics);
            check_unique(&metric, loaded_before).map(|()| metric)
        });
        match loaded {
            Ok(metric) => metrics.push(metric),
            Err(problem) => refuse(name, title, group, problem)?,
        }
    }
    Ok((family, metrics))
}

/// The platforms of `arch` and those that state no architecture; all platforms if `arch` is `None`.
fn platforms_of_arch(arch: Option<Arch>) -> Vec<Platform> {
    let all = Platform::all().iter().copied();
    let applies = |platform: &Platform| {
        let platform_arch = platform.spec().arch;
        arch.is_none() || platform_arch.is_none() || platform_arch == arch
    };
    all.filter(applies).collect()
}

fn load_pmu(key: String, pmu: file::FilePmu) -> Result<Arc<PmuSpec>, Problem> {
    let file::FilePmu {
        pattern,
        product,
        per,
        mismatch,
        counters,
        slots,
        defaults,
        devices,
        events,
    } = pmu;
    let pattern = Pattern::parse(&pattern).map_err(|why| Problem::Pattern {
        pmu: key.clone(),
        pattern,
        why,
    })?;
    for (name, event) in &events {
        // The formula language decides what a valid name is.
        let is_valid =
            Formula::parse(name).is_ok_and(|formula| formula.events() == [name.as_str()]);
        if !is_valid {
            return Err(Problem::EventName(name.clone()));
        }
        if let Some(placeholder) = template::unknown_placeholder(&event.perf, &defaults) {
            return Err(Problem::Placeholder {
                event: name.clone(),
                pmu: key,
                placeholder,
            });
        }
    }
    Ok(Arc::new(PmuSpec {
        key,
        pattern,
        product,
        per,
        mismatch,
        counters,
        slots,
        defaults,
        devices,
        events,
    }))
}

fn load_metric(
    raw: file::FileMetric,
    references: &References<'_>,
    family: &Arc<Family>,
    document: &str,
    notes: &BTreeMap<String, String>,
    documents: &BTreeMap<String, String>,
) -> Result<Metric, MetricProblem> {
    let is_snake_case = |name: &String| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    if !std::iter::once(&raw.name)
        .chain(&raw.aliases)
        .all(is_snake_case)
    {
        return Err(MetricProblem::Name);
    }
    let note = |key: &String| {
        let text = notes.get(key).cloned();
        text.ok_or_else(|| MetricProblem::Note(key.clone()))
    };
    if let Some(chip) = raw
        .not_on
        .keys()
        .find(|chip| !family.platforms.contains(&chip.platform()))
    {
        return Err(MetricProblem::Chip(*chip));
    }
    if let Some(bound) = raw.bound
        && bound.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater)
    {
        return Err(MetricProblem::Bound(bound));
    }
    let Expanded { formula, pmus } = references.expand(&raw.name, &raw.formula)?;
    let threshold = raw.threshold.as_deref().map(Formula::parse).transpose()?;
    let document = raw.document.as_deref().unwrap_or(document);
    let pmu = pmu_of(&formula, family, &pmus)?;
    let share_events = [&raw.from_sockets, &raw.from_each_socket, &raw.other_memory];
    for event in share_events.into_iter().flatten().chain(&raw.io) {
        let known = family.pmus.iter().flat_map(|pmu| pmu.events.keys());
        if !known.clone().any(|known| known == event) {
            return Err(MetricProblem::Event {
                event: event.clone(),
                near: Nearest::to(event, known),
            });
        }
    }
    if raw.from_sockets.is_some() && pmu.mismatch.is_none() {
        return Err(MetricProblem::Mismatch(pmu.key.clone()));
    }
    let io = raw.io.into_iter().filter_map(|event| {
        let mut pmus = family.pmus.iter();
        let pmu = pmus.find(|pmu| pmu.events.contains_key(&event))?;
        Some((Arc::clone(pmu), event))
    });
    let metric = Metric {
        pmu,
        name: raw.name,
        aliases: raw.aliases,
        title: raw.title,
        unit: raw.unit,
        kind: raw.kind,
        group: raw.group,
        also_in: raw.also_in,
        formula,
        document: documents
            .get(document)
            .map_or(document, String::as_str)
            .to_owned(),
        section: raw.section,
        apportion: raw.apportion,
        from_sockets: raw.from_sockets,
        from_each_socket: raw.from_each_socket,
        other_memory: raw.other_memory,
        not_shared_on: raw.not_shared_on,
        io: io.collect(),
        bound: raw.bound,
        threshold,
        requires: raw.requires,
        notes: raw.notes.iter().map(note).collect::<Result<_, _>>()?,
        not_on: raw
            .not_on
            .iter()
            .map(|(chip, key)| Ok((*chip, note(key)?)))
            .collect::<Result<_, MetricProblem>>()?,
        family: Arc::clone(family),
    };
    check::bandwidth(&metric)?;
    Ok(metric)
}

/// The one PMU of all events of the formula. It is in the family or, if the formula names metrics
/// of other families, in `referenced`.
fn pmu_of(
    formula: &Formula,
    family: &Family,
    referenced: &[Arc<PmuSpec>],
) -> Result<Arc<PmuSpec>, MetricProblem> {
    let mut common: Option<&Arc<PmuSpec>> = None;
    for event in formula.events() {
        let mut pmus = family.pmus.iter().chain(referenced);
        let Some(pmu) = pmus.find(|pmu| pmu.events.contains_key(event)) else {
            let known = family.pmus.iter().flat_map(|pmu| pmu.events.keys());
            let implicits = Implicit::ALL.map(|implicit| implicit.name().to_owned());
            return Err(MetricProblem::Event {
                event: event.clone(),
                near: Nearest::to(event, known.cloned().chain(implicits)),
            });
        };
        match common {
            Some(first) if !Arc::ptr_eq(first, pmu) => {
                return Err(MetricProblem::TwoPmus(first.key.clone(), pmu.key.clone()));
            }
            Some(_) | None => common = Some(pmu),
        }
    }
    match (common, &family.pmus[..]) {
        (Some(pmu), _) | (None, [pmu]) => Ok(Arc::clone(pmu)),
        (None, _) => Err(MetricProblem::NoPmu),
    }
}

/// Checks that the metric's names are unique on each platform. A metric of a fallback family may
/// share its name with one of another family, which hides it.
fn check_unique<'a>(
    metric: &Metric,
    mut loaded_before: impl Iterator<Item = &'a Metric>,
) -> Result<(), MetricProblem> {
    let taken = loaded_before.find_map(|other| {
        if other.family.fallback != metric.family.fallback {
            return None;
        }
        let platform = metric
            .family
            .platforms
            .iter()
            .copied()
            .find(|platform| other.family.platforms.contains(platform))?;
        let mut names = std::iter::once(&metric.name).chain(&metric.aliases);
        let name = names.find(|name| other.answers_to(name))?;
        Some(MetricProblem::Taken {
            name: name.clone(),
            family: other.family.name.clone(),
            platform,
        })
    });
    match taken {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

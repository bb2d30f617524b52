//! Counts of markers and their losses.

/// Counts of markers and their losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MarkerCounts {
    /// Markers, forks and exits that did not fit the ring.
    pub lost: u64,
    /// Programs and libraries that already ran when they were first observed.
    pub late_programs: u64,
    /// Programs and libraries that ran but could not be opened to look for markers.
    pub unopened_programs: u64,
    /// Programs and libraries with more symbols or functions than are inspected.
    pub too_large_programs: u64,
    /// Calls of `tag_addr`.
    pub tags: u64,
    /// Calls of `start`.
    pub starts: u64,
    /// Calls of `stop`.
    pub stops: u64,
    /// Calls of `stop` without an open phase.
    pub unbalanced_stops: u64,
    /// Names that could not be read from the process's memory.
    pub unreadable_names: u64,
    /// Names that were truncated.
    pub cut_names: u64,
    /// Tags beyond the limit of their process or of all processes.
    pub dropped_tags: u64,
    /// Phases beyond the limit of all processes: their samples count for the enclosing phase.
    pub dropped_phases: u64,
    /// Mappings beyond the limit of their process: samples in them have no kind of memory.
    pub dropped_mappings: u64,
    /// Tags and phases that apply to their samples but are not listed.
    pub unlisted: u64,
}

impl MarkerCounts {
    /// Every count with its name, in a fixed order.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 14] {
        [
            ("tag_calls", self.tags),
            ("start_calls", self.starts),
            ("stop_calls", self.stops),
            ("lost_markers", self.lost),
            ("unbalanced_stops", self.unbalanced_stops),
            ("unreadable_marker_names", self.unreadable_names),
            ("cut_marker_names", self.cut_names),
            ("dropped_tags", self.dropped_tags),
            ("dropped_phases", self.dropped_phases),
            ("dropped_mappings", self.dropped_mappings),
            ("unlisted_tags_and_phases", self.unlisted),
            ("late_programs", self.late_programs),
            ("unopened_programs", self.unopened_programs),
            ("too_large_programs", self.too_large_programs),
        ]
    }

    /// Counts of losses with their names for users.
    pub(in super::super) const fn losses(&self) -> [(&'static str, u64); 11] {
        [
            ("lost markers", self.lost),
            ("stops without a start", self.unbalanced_stops),
            (
                "names of markers that could not be read",
                self.unreadable_names,
            ),
            ("names of markers that were cut", self.cut_names),
            ("tags that were not taken", self.dropped_tags),
            ("phases that were not taken", self.dropped_phases),
            ("mappings that were dropped", self.dropped_mappings),
            ("tags and phases that are not listed", self.unlisted),
            (
                "programs whose first markers were not seen",
                self.late_programs,
            ),
            (
                "programs that could not be looked at for markers",
                self.unopened_programs,
            ),
            (
                "programs that were too large to look for markers",
                self.too_large_programs,
            ),
        ]
    }
}

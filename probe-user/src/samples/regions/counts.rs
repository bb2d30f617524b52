//! Counts of markers and their losses.

use super::super::losses::counters;

counters! {
    /// Counts of markers and their losses.
    #[non_exhaustive]
    pub struct MarkerCounts {
        /// Calls of `tag_addr`.
        pub tags: u64 = "tag_calls";
        /// Calls of `start`.
        pub starts: u64 = "start_calls";
        /// Calls of `stop`.
        pub stops: u64 = "stop_calls";
        /// Markers, forks, execs and exits that did not fit the ring.
        pub lost: u64 = "lost_markers" loss "lost markers";
        /// Calls of `stop` without an open phase.
        pub unbalanced_stops: u64 = "unbalanced_stops" loss "stops without a start";
        /// Names that could not be read from the process's memory.
        pub unreadable_names: u64 = "unreadable_marker_names"
            loss "names of markers that could not be read";
        /// Names that were truncated.
        pub cut_names: u64 = "cut_marker_names" loss "names of markers that were cut";
        /// Tags beyond the limit of their process or of all processes.
        pub dropped_tags: u64 = "dropped_tags" loss "tags that were not taken";
        /// Phases beyond the limit of all processes: their samples count for the enclosing phase.
        pub dropped_phases: u64 = "dropped_phases" loss "phases that were not taken";
        /// Mappings beyond the limit of their process: samples in them have no kind of memory.
        pub dropped_mappings: u64 = "dropped_mappings" loss "mappings that were dropped";
        /// Tags and phases that apply to their samples but are not listed.
        pub unlisted: u64 = "unlisted_tags_and_phases" loss "tags and phases that are not listed";
        /// Programs and libraries that already ran when they were first observed.
        pub late_programs: u64 = "late_programs" loss "programs whose first markers were not seen";
        /// Programs and libraries that ran but could not be opened to look for markers.
        pub unopened_programs: u64 = "unopened_programs"
            loss "programs that could not be looked at for markers";
        /// Programs and libraries with more symbols or functions than are inspected.
        pub too_large_programs: u64 = "too_large_programs"
            loss "programs that were too large to look for markers";
    }
}

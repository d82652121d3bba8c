//! What a cursor skips: subjects its reader did not ask for, records from before its start.

use dunlin_frame::Frame;

/// Says of a subject's tail whether the reader wants its records.
pub struct Filter(pub Box<dyn Fn(&str) -> bool + Send + Sync>);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filter")
    }
}

/// What a cursor skips.
#[derive(Debug, Default)]
pub(super) struct Select {
    pub(super) filter: Option<Filter>,
    pub(super) appended_from_ns: u64,
}

impl Select {
    pub(super) fn wants(&self, frame: &Frame<'_>) -> bool {
        frame.append_time_ns() >= self.appended_from_ns
            && self.filter.as_ref().is_none_or(|filter| (filter.0)(frame.subject_tail()))
    }
}

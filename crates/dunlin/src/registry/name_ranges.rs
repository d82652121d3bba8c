//! Ranges of topic names. A list of topics looks only at names in certain ranges. A name in these ranges begins with
//! the literal part of the requested pattern (before the first wildcard). It also begins with a prefix of names that
//! the user may see.
//!
//! The cost of a list thus does not depend on the number of other users' topics. This holds for topics that own only
//! the subject equal to their name, and nearly all topics are of this kind. All other topics are in a separate table,
//! in which a list looks at every topic that matches the pattern.

use std::ops::Bound;

use dunlin_topic::Pattern;

/// Ranges of topic names, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameRanges(Vec<NameRange>);

/// A range of names, from `from` up to but not including `to`. If `to` is `None`, the range has no end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NameRange {
    from: String,
    to: Option<String>,
}

impl NameRanges {
    pub(crate) fn all() -> NameRanges {
        NameRanges(vec![NameRange { from: String::new(), to: None }])
    }

    /// Ranges that contain all names which at least one of the patterns can match.
    pub(crate) fn of<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> NameRanges {
        let mut all: Vec<NameRange> = patterns.into_iter().map(NameRange::of).collect();
        all.sort();
        // Any two ranges are disjoint, or one contains the other. Drop the contained range. In the sorted list, it
        // comes after the larger range, unless both begin at the same name.
        all.dedup_by(|later, earlier| match earlier.from == later.from {
            true => {
                if later.ends_after(earlier) {
                    earlier.to.clone_from(&later.to);
                }
                true
            }
            false => earlier.to.as_ref().is_none_or(|to| later.from < *to),
        });
        NameRanges(all)
    }

    /// Returns the ranges of names that are both in these ranges and in `other`.
    pub(crate) fn and(&self, other: &NameRanges) -> NameRanges {
        let both = self.0.iter().flat_map(|a| other.0.iter().filter_map(|b| a.and(b)));
        let mut both: Vec<NameRange> = both.collect();
        both.sort();
        NameRanges(both)
    }

    /// The parts of these ranges that come after the name `after`.
    pub(super) fn ranges<'a>(
        &'a self,
        after: &'a str,
    ) -> impl Iterator<Item = (Bound<&'a str>, Bound<&'a str>)> {
        self.0.iter().filter_map(move |NameRange { from, to }| {
            if to.as_ref().is_some_and(|to| to.as_str() <= after) {
                return None;
            }
            let from =
                if after < from.as_str() { Bound::Included(from.as_str()) } else { Bound::Excluded(after) };
            Some((from, to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to.as_str()))))
        })
    }
}

impl NameRange {
    fn of(pattern: &Pattern) -> NameRange {
        let text = pattern.as_str();
        match text.find(['*', '>']).map(|at| &text[..at]) {
            // A name contains no control character, so this range contains only the name `text`.
            None => NameRange { from: text.to_owned(), to: Some(format!("{text}\0")) },
            Some(literal) => match literal.strip_suffix('.') {
                // End the range at `/`, which follows the dot in ASCII.
                Some(tokens) => NameRange { from: literal.to_owned(), to: Some(format!("{tokens}/")) },
                None => NameRange { from: String::new(), to: None },
            },
        }
    }

    fn ends_after(&self, other: &NameRange) -> bool {
        match (&self.to, &other.to) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(to), Some(other)) => to > other,
        }
    }

    fn and(&self, other: &NameRange) -> Option<NameRange> {
        let from = self.from.clone().max(other.from.clone());
        let to = if self.ends_after(other) { other.to.clone() } else { self.to.clone() };
        to.as_ref().is_none_or(|to| from < *to).then_some(NameRange { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patterns: &str) -> NameRanges {
        let patterns: Vec<_> =
            patterns.split_whitespace().map(|text| Pattern::parse(text).unwrap()).collect();
        NameRanges::of(&patterns)
    }

    /// From a fixed set of names, returns those that a list of topics with these ranges looks at, separated by spaces.
    /// The list begins after the name `after`.
    fn visited(name_ranges: &NameRanges, after: &str) -> String {
        let names: std::collections::BTreeSet<&str> =
            ["a", "a-b", "a.b", "a.b.c", "a.c", "ab", "b.a", "b.b"].into();
        let found = name_ranges.ranges(after).flat_map(|range| names.range::<str, _>(range));
        found.copied().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn listing_of_topics_visits_only_names_that_may_match() {
        for (patterns, names) in [
            (">", "a a-b a.b a.b.c a.c ab b.a b.b"),
            ("*.b", "a a-b a.b a.b.c a.c ab b.a b.b"),
            ("a.>", "a.b a.b.c a.c"),
            ("a", "a"),
            ("a.b.* b.a a.b", "a.b a.b.c b.a"),
            ("a.> a.b.> b.>", "a.b a.b.c a.c b.a b.b"),
            ("b.a > a.b", "a a-b a.b a.b.c a.c ab b.a b.b"),
            ("", ""),
        ] {
            assert_eq!(visited(&of(patterns), ""), names, "{patterns}");
        }
        assert_eq!(visited(&NameRanges::all(), "a.c"), "ab b.a b.b");
        assert_eq!(visited(&of("a.> b.b"), "a.b"), "a.b.c a.c b.b");
        assert_eq!(visited(&of("a.> b.b"), "b.b"), "");
    }

    #[test]
    fn intersection_of_two_pattern_lists_visits_only_common_names() {
        for (one, other, names) in
            [(">", "a.>", "a.b a.b.c a.c"), ("a.b.> b.>", "a.> b.b", "a.b.c b.b"), ("a.>", "b.>", "")]
        {
            assert_eq!(visited(&of(one).and(&of(other)), ""), names, "{one} and {other}");
            assert_eq!(visited(&of(other).and(&of(one)), ""), names, "{other} and {one}");
        }
    }
}

//! Which names a list of topics has to look at: those that begin as a pattern does, and as what the user may see does.
//!
//! A list costs what it shows, however many topics others have, because names of others are not visited at all. That holds for
//! topics that own just their name, as nearly all do; the others are kept apart, and all of them within the asked pattern are visited.

use std::ops::Bound;

use dunlin_topic::Pattern;

/// Parts of the order of all names, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretches(Vec<Stretch>);

/// The names from one to before another, or to the last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    from: String,
    to: Option<String>,
}

impl Stretches {
    /// All names.
    pub(crate) fn all() -> Stretches {
        Stretches(vec![Stretch { from: String::new(), to: None }])
    }

    /// Those that one of the patterns may match.
    pub(crate) fn of<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Stretches {
        let mut all: Vec<Stretch> = patterns.into_iter().map(Stretch::of).collect();
        all.sort();
        // Two stretches are apart, or one lies within the other: then the wider one begins first, or as the other does.
        all.dedup_by(|later, earlier| match earlier.from == later.from {
            true => {
                if later.ends_after(earlier) {
                    earlier.to.clone_from(&later.to);
                }
                true
            }
            false => earlier.to.as_ref().is_none_or(|to| later.from < *to),
        });
        Stretches(all)
    }

    /// Those that both have.
    pub(crate) fn and(&self, other: &Stretches) -> Stretches {
        let both = self.0.iter().flat_map(|a| other.0.iter().filter_map(|b| a.and(b)));
        let mut both: Vec<Stretch> = both.collect();
        both.sort();
        Stretches(both)
    }

    /// What to visit of them behind the name `after`.
    pub(super) fn ranges<'a>(
        &'a self,
        after: &'a str,
    ) -> impl Iterator<Item = (Bound<&'a str>, Bound<&'a str>)> {
        self.0.iter().filter_map(move |Stretch { from, to }| {
            if to.as_ref().is_some_and(|to| to.as_str() <= after) {
                return None;
            }
            let from =
                if after < from.as_str() { Bound::Included(from.as_str()) } else { Bound::Excluded(after) };
            Some((from, to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to.as_str()))))
        })
    }
}

impl Stretch {
    fn of(pattern: &Pattern) -> Stretch {
        let text = pattern.as_str();
        match text.find(['*', '>']).map(|at| &text[..at]) {
            // No name has a control character: this is the one name.
            None => Stretch { from: text.to_owned(), to: Some(format!("{text}\0")) },
            Some(literal) => match literal.strip_suffix('.') {
                // What follows the dot in the order of characters ends it.
                Some(tokens) => Stretch { from: literal.to_owned(), to: Some(format!("{tokens}/")) },
                None => Stretch { from: String::new(), to: None },
            },
        }
    }

    fn ends_after(&self, other: &Stretch) -> bool {
        match (&self.to, &other.to) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(to), Some(other)) => to > other,
        }
    }

    fn and(&self, other: &Stretch) -> Option<Stretch> {
        let from = self.from.clone().max(other.from.clone());
        let to = if self.ends_after(other) { other.to.clone() } else { self.to.clone() };
        to.as_ref().is_none_or(|to| from < *to).then_some(Stretch { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patterns: &str) -> Stretches {
        let patterns: Vec<_> =
            patterns.split_whitespace().map(|text| Pattern::parse(text).unwrap()).collect();
        Stretches::of(&patterns)
    }

    /// The names that are visited, of some.
    fn visited(stretches: &Stretches, after: &str) -> String {
        let names: std::collections::BTreeSet<&str> =
            ["a", "a-b", "a.b", "a.b.c", "a.c", "ab", "b.a", "b.b"].into();
        let found = stretches.ranges(after).flat_map(|range| names.range::<str, _>(range));
        found.copied().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn list_visits_only_names_that_may_match() {
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
        assert_eq!(visited(&Stretches::all(), "a.c"), "ab b.a b.b");
        assert_eq!(visited(&of("a.> b.b"), "a.b"), "a.b.c a.c b.b");
        assert_eq!(visited(&of("a.> b.b"), "b.b"), "");
    }

    #[test]
    fn common_names_of_two_lists_of_patterns_are_visited() {
        for (one, other, names) in
            [(">", "a.>", "a.b a.b.c a.c"), ("a.b.> b.>", "a.> b.b", "a.b.c b.b"), ("a.>", "b.>", "")]
        {
            assert_eq!(visited(&of(one).and(&of(other)), ""), names, "{one} and {other}");
            assert_eq!(visited(&of(other).and(&of(one)), ""), names, "{other} and {one}");
        }
    }
}

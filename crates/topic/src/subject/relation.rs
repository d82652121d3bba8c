//! Tells whether two patterns overlap, and whether one pattern covers another.
//!
//! Comparing the patterns token by token gives exact results. The number of possible tokens is infinite, so no finite
//! set of literal tokens matches the same as a `*`.

use super::pattern::{Pattern, is_wildcard, matches_tokens};

/// Which of a topic's records a subscription's pattern selects: none, all, or the records of some subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The pattern selects no record of the topic.
    Nothing,
    /// The pattern selects all records of the topic, so that no filter is needed.
    Everything,
    /// The pattern selects the records whose subject tails match this tail pattern.
    Tails(TailPattern),
}

/// A pattern for the part of a subject that follows the literal prefix of its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailPattern(Box<str>);

impl TailPattern {
    /// Converts the tail pattern to a [`Pattern`]; `None` if this is not possible.
    pub(crate) fn to_pattern(&self) -> Option<Pattern> {
        Pattern::parse(&self.0).ok()
    }

    /// Whether the tail pattern matches this subject tail.
    #[inline]
    pub fn matches(&self, tail: &str) -> bool {
        matches_tokens(&self.0, tail)
    }
}

impl Pattern {
    /// Whether at least one subject matches both patterns.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        let (mut mine, mut theirs) = (self.tokens(), other.tokens());
        loop {
            match (mine.next(), theirs.next()) {
                (None, None) => return true,
                (None, Some(_)) | (Some(_), None) => return false,
                (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
                (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
                _ => return false,
            }
        }
    }

    /// Whether this pattern matches every subject that `other` matches.
    pub fn covers(&self, other: &Pattern) -> bool {
        let (mut mine, mut theirs) = (self.tokens(), other.tokens());
        loop {
            match (mine.next(), theirs.next()) {
                (None, None) | (Some(">"), Some(_)) => return true,
                (None, Some(_)) | (Some(_), None) | (Some(_), Some(">")) => return false,
                (Some(a), Some(b)) if a == "*" || a == b => {}
                _ => return false,
            }
        }
    }

    /// Which records a subscription to this pattern selects from a topic that owns the subjects of the pattern `topic`.
    pub fn select(&self, topic: &Pattern) -> Selection {
        if !self.overlaps(topic) {
            Selection::Nothing
        } else if self.covers(topic) {
            Selection::Everything
        } else {
            Selection::Tails(TailPattern(self.after_prefix_of(topic).into()))
        }
    }

    /// The rest of this pattern after the literal prefix of the topic's pattern. The rest is not empty if the two
    /// patterns overlap and this pattern does not cover the topic's pattern.
    fn after_prefix_of(&self, topic: &Pattern) -> &str {
        let literal_tokens = topic.tokens().take_while(|token| !is_wildcard(token)).count();
        self.tokens().take(literal_tokens).fold(self.as_str(), |rest, token| {
            let rest = &rest[token.len()..];
            rest.strip_prefix('.').unwrap_or(rest)
        })
    }
}

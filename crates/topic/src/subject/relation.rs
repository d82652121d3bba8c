//! How two patterns stand to each other.
//!
//! Tokens are compared one by one. That is exact, because there are endlessly many tokens: a `*`
//! always stands for one more than any set of literals does.

use super::pattern::{Pattern, is_wildcard, matches_tokens};

/// Which records of a topic a subscription's pattern selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// None, whatever is published to the topic.
    Nothing,
    /// All: there is nothing to filter.
    Everything,
    /// Those whose subject's tail this matches.
    Tails(TailPattern),
}

/// A pattern without the literal prefix of the topic it is applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailPattern(Box<str>);

impl TailPattern {
    /// The same as a pattern of tails.
    pub(crate) fn to_pattern(&self) -> Option<Pattern> {
        Pattern::parse(&self.0).ok()
    }

    /// Whether a record with this tail is selected.
    #[inline]
    pub fn matches(&self, tail: &str) -> bool {
        matches_tokens(&self.0, tail)
    }
}

impl Pattern {
    /// Whether there is a subject that both match.
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

    /// Whether it matches every subject that `other` matches.
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

    /// What a subscription to this pattern selects of a topic that owns the pattern `topic`.
    pub fn select(&self, topic: &Pattern) -> Selection {
        if !self.overlaps(topic) {
            Selection::Nothing
        } else if self.covers(topic) {
            Selection::Everything
        } else {
            Selection::Tails(TailPattern(self.after_prefix_of(topic).into()))
        }
    }

    /// What is left of it when the tokens of the topic's literal prefix have been matched. There is something
    /// left where the patterns overlap and this one does not cover the topic's.
    fn after_prefix_of(&self, topic: &Pattern) -> &str {
        let literal_tokens = topic.tokens().take_while(|token| !is_wildcard(token)).count();
        self.tokens().take(literal_tokens).fold(self.as_str(), |rest, token| {
            let rest = &rest[token.len()..];
            rest.strip_prefix('.').unwrap_or(rest)
        })
    }
}

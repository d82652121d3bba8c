//! Patterns and the subjects that they match.

use super::{Subject, SubjectError, check_tokens, is_blank, is_forbidden, literal_prefix};

/// A pattern that matches subjects. A subject is a pattern that matches itself only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    text: Box<str>,
    /// The length of [`literal_prefix`](Pattern::literal_prefix), bytes.
    literal_bytes: u8,
}

impl Pattern {
    /// Validates a pattern. Accepts invisible characters that release 0.1.0 allowed, so that the pattern can match old
    /// topics: see [`Pattern::check_new`].
    pub fn parse(text: &str) -> Result<Pattern, SubjectError> {
        check_tokens(text, is_wildcard_at, is_forbidden)?;
        // The length is at most SUBJECT_BYTES_MAX, which fits into a byte.
        Ok(Pattern { text: text.into(), literal_bytes: literal_prefix(text).len() as u8 })
    }

    /// Refuses invisible characters that only patterns of existing topics may have.
    pub fn check_new(&self) -> Result<(), SubjectError> {
        check_tokens(&self.text, is_wildcard_at, |c| is_forbidden(c) || is_blank(c))
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern has no wildcard.
    pub fn is_literal(&self) -> bool {
        usize::from(self.literal_bytes) == self.text.len()
    }

    /// Whether the pattern matches system subjects (`$…`) only. (`*` and `>` match system subjects too.)
    pub fn is_system(&self) -> bool {
        super::is_system(&self.text)
    }

    /// The literal tokens at the start, with their last dot; the whole text if there is no wildcard.
    pub fn literal_prefix(&self) -> &str {
        &self.text[..usize::from(self.literal_bytes)]
    }

    /// The rest of a subject that this pattern matches, after [`literal_prefix`](Pattern::literal_prefix); `None` if
    /// the pattern does not match.
    pub fn tail_of<'a>(&self, subject: Subject<'a>) -> Option<&'a str> {
        self.matches(subject).then(|| &subject.as_str()[usize::from(self.literal_bytes)..])
    }

    /// Whether the pattern matches the subject.
    pub fn matches(&self, subject: Subject<'_>) -> bool {
        let subject = subject.as_str();
        if self.is_literal() {
            return *self.text == *subject;
        }
        subject.strip_prefix(self.literal_prefix()).is_some_and(|rest| matches_tokens(self.wild_part(), rest))
    }

    /// Like [`matches`](Pattern::matches), but for a subject in two parts: the literal prefix of its topic, and
    /// the tail in its record.
    pub fn matches_parts(&self, prefix: &str, tail: &str) -> bool {
        if self.is_literal() {
            return self.text.len() == prefix.len() + tail.len()
                && self.text.starts_with(prefix)
                && self.text.ends_with(tail);
        }
        let mut tokens = tokens(prefix.strip_suffix('.').unwrap_or(prefix)).chain(tokens(tail));
        matches_rest(self.tokens(), &mut tokens)
    }

    pub(crate) fn tokens(&self) -> std::str::Split<'_, char> {
        self.text.split('.')
    }

    /// The part from the first wildcard on.
    fn wild_part(&self) -> &str {
        &self.text[usize::from(self.literal_bytes)..]
    }
}

fn is_wildcard_at(token: &str, is_last: bool) -> bool {
    token == "*" || (token == ">" && is_last)
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Pattern {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Pattern, SubjectError> {
        Pattern::parse(text)
    }
}

impl From<Subject<'_>> for Pattern {
    fn from(subject: Subject<'_>) -> Pattern {
        let text = subject.as_str();
        Pattern { text: text.into(), literal_bytes: text.len() as u8 }
    }
}

pub(super) fn is_wildcard(token: &str) -> bool {
    token == "*" || token == ">"
}

/// Whether the tokens of `pattern` match the tokens of `subject`. `subject` may be empty.
pub(super) fn matches_tokens(pattern: &str, subject: &str) -> bool {
    matches_rest(pattern.split('.'), &mut tokens(subject))
}

/// The tokens of a text. (`split` alone gives one empty token for an empty text.)
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split('.').filter(|token| !token.is_empty())
}

#[inline]
fn matches_rest<'a, 'b>(
    pattern: impl Iterator<Item = &'a str>,
    subject: &mut impl Iterator<Item = &'b str>,
) -> bool {
    for wanted in pattern {
        match (wanted, subject.next()) {
            (_, None) => return false,
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

//! Patterns, and which subjects they match.

use super::{Subject, SubjectError, check_tokens, is_blank, is_forbidden, literal_prefix};

/// A pattern that matches subjects. A pattern without a wildcard matches only the subject with the same text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    text: Box<str>,
    /// The length of [`literal_prefix`](Pattern::literal_prefix) in bytes.
    literal_bytes: u8,
}

impl Pattern {
    /// Validates a pattern. Invisible characters that release 0.1.0 allowed are accepted, so that the pattern can match
    /// topics of that release. [`Pattern::check_new`] refuses them.
    pub fn parse(text: &str) -> Result<Pattern, SubjectError> {
        check_tokens(text, is_wildcard_at, is_forbidden)?;
        // The length of a pattern is at most SUBJECT_BYTES_MAX and therefore fits into a byte.
        Ok(Pattern { text: text.into(), literal_bytes: literal_prefix(text).len() as u8 })
    }

    /// Refuses a pattern with invisible characters. Only patterns of existing topics may have them.
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

    /// Whether the pattern matches only subjects that are reserved for the system. (`*` and `>` match such subjects,
    /// but also others.)
    pub fn is_system(&self) -> bool {
        super::is_system(&self.text)
    }

    /// The literal tokens at the start of the pattern, including the dot after them; the whole text if there is no
    /// wildcard.
    pub fn literal_prefix(&self) -> &str {
        &self.text[..usize::from(self.literal_bytes)]
    }

    /// If this pattern matches the subject, the rest of the subject after [`literal_prefix`](Pattern::literal_prefix);
    /// otherwise `None`.
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

    /// Like [`matches`](Pattern::matches), but for a subject in two parts: `prefix` is the literal prefix of its topic,
    /// and `tail` is the rest.
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

    /// The part of the pattern from the first wildcard on.
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

/// Whether the tokens of `pattern` match the tokens of `subject`, which may be empty.
pub(super) fn matches_tokens(pattern: &str, subject: &str) -> bool {
    matches_rest(pattern.split('.'), &mut tokens(subject))
}

/// The tokens of a text; none if the text is empty, for which `split` alone would give one empty token.
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

//! Names and patterns of subjects.
//!
//! A subject is one or more tokens with dots between them: `orders.eu.created`. In a pattern a token
//! may be `*`, which stands for exactly one token, and the last may be `>`, which stands for one or
//! more. A first token that begins with `$` is the system's ([`Subject::is_system`]); that only the
//! system uses it is for the node to see to.
//!
//! Invariant: nothing here allocates but the making of a [`Pattern`] and of errors.
//!
//! Limit: [`SUBJECT_BYTES_MAX`], so at most 128 tokens.

mod pattern;
mod relation;

pub use pattern::Pattern;
pub use relation::{Selection, TailPattern};

/// Why text is no subject or pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// No text at all.
    #[error("a subject cannot be empty")]
    Empty,
    /// Two dots with nothing between them, or a dot at an end.
    #[error("subject {0:?} has an empty token")]
    EmptyToken(String),
    /// White space, a control character, one that is not seen, or a wildcard where none may stand.
    #[error("subject {subject:?} has the character {character:?}, which may not stand there")]
    Character {
        /// The subject.
        subject: String,
        /// The character.
        character: char,
    },
    /// Longer than [`SUBJECT_BYTES_MAX`].
    #[error("subject of {bytes} bytes is over the limit of {SUBJECT_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// The longest subject or pattern, bytes.
pub const SUBJECT_BYTES_MAX: usize = 255;

/// A name that records are published to, known to keep the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject<'a>(&'a str);

impl<'a> Subject<'a> {
    /// Checks the rules. A subject's tail keeps them too, so this also checks tails.
    pub fn parse(text: &'a str) -> Result<Subject<'a>, SubjectError> {
        check_tokens(text, |_, _| false)?;
        Ok(Subject(text))
    }

    /// Its text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Whether it is in the system's part of the names, `$…`; [`SERVICES`] is everybody's.
    pub fn is_system(&self) -> bool {
        is_system(self.0)
    }
}

impl std::fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The first token of the subjects by which NATS services are found and asked how they are.
pub const SERVICES: &str = "$SRV";

/// Whether the subject or pattern is in the system's part of the names.
pub(crate) fn is_system(text: &str) -> bool {
    text.starts_with('$') && text.split('.').next() != Some(SERVICES)
}

/// The literal tokens at the start of a sound pattern, with their last dot; all of it where there is no
/// wildcard.
pub(crate) fn literal_prefix(pattern: &str) -> &str {
    pattern.find(['*', '>']).map_or(pattern, |at| &pattern[..at])
}

/// Checks length, tokens and characters; `wildcard` says which tokens may be one, given the token and
/// whether it is the last.
#[inline]
fn check_tokens(text: &str, wildcard: impl Fn(&str, bool) -> bool) -> Result<(), SubjectError> {
    if text.is_empty() {
        return Err(SubjectError::Empty);
    }
    if text.len() > SUBJECT_BYTES_MAX {
        return Err(SubjectError::TooLong { bytes: text.len() });
    }
    if is_plain(text) { Ok(()) } else { check_each(text, wildcard) }
}

/// Whether it is sound at a glance: visible ASCII, no wildcard, no empty token. Nearly all subjects are, and a
/// publisher's first look-up should not cost more than finding the topic.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    // Without a branch in between, so that many bytes are looked at in one step.
    let wrong = |byte: u8| byte.wrapping_sub(b'!') > b'~' - b'!' || byte == b'*' || byte == b'>';
    let characters = bytes.iter().fold(false, |bad, &byte| bad | wrong(byte));
    let dots = bytes.iter().zip(&bytes[1..]).fold(false, |bad, (&a, &b)| bad | ((a == b'.') & (b == b'.')));
    !(characters | dots | text.starts_with('.') | text.ends_with('.'))
}

fn check_each(text: &str, wildcard: impl Fn(&str, bool) -> bool) -> Result<(), SubjectError> {
    let mut tokens = text.split('.').peekable();
    while let Some(token) = tokens.next() {
        if token.is_empty() {
            return Err(SubjectError::EmptyToken(text.to_owned()));
        }
        if let Some(character) = token.chars().find(|&c| forbidden(c))
            && !wildcard(token, tokens.peek().is_none())
        {
            return Err(SubjectError::Character { subject: text.to_owned(), character });
        }
    }
    Ok(())
}

fn forbidden(c: char) -> bool {
    matches!(c, '*' | '>') || c.is_whitespace() || c.is_control() || is_unseen(c)
}

/// Whether it changes what others look like, or is nothing to look at: two names that are not the same would read the same
/// (Unicode Technical Report 36, section 2.10). The joiners U+200C and U+200D spell words and may stand.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests;

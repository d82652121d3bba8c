//! Subjects and patterns.
//!
//! A subject consists of tokens separated by dots: `orders.eu.created`. In a pattern, the token `*` matches exactly one
//! token, and a final `>` matches one or more tokens. Subjects whose first token begins with `$` are reserved for the
//! system ([`Subject::is_system`]); the node enforces this, not this module.
//!
//! Invariant: memory is allocated only to create a [`Pattern`] or an error.
//!
//! Limit: [`SUBJECT_BYTES_MAX`], which allows at most 128 tokens.

mod pattern;
mod relation;

pub use pattern::Pattern;
pub use relation::{Selection, TailPattern};

/// The reason why a text is not a valid subject or pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// The text is empty.
    #[error("a subject cannot be empty")]
    Empty,
    /// The text has an empty token, because it begins or ends with a dot or has two dots in a row.
    #[error("subject {0:?} has an empty token")]
    EmptyToken(String),
    /// The text has a character that is not allowed: white space, a control character, an invisible character, or a
    /// wildcard that is not a token by itself.
    #[error("subject {subject:?} has the character {character:?} where it is not allowed")]
    Character {
        /// The refused text.
        subject: String,
        /// The character that is not allowed.
        character: char,
    },
    /// The text is longer than [`SUBJECT_BYTES_MAX`].
    #[error("subject of {bytes} bytes exceeds the limit of {SUBJECT_BYTES_MAX} bytes")]
    TooLong {
        /// Length of the text, bytes.
        bytes: usize,
    },
}

/// Maximum length of a subject or pattern, bytes.
pub const SUBJECT_BYTES_MAX: usize = 255;

/// A validated subject, to which a record can be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject<'a>(&'a str);

impl<'a> Subject<'a> {
    /// Validates a subject. Subject tails (the parts after a topic's literal prefix) follow the same rules and can be
    /// validated, too.
    pub fn parse(text: &'a str) -> Result<Subject<'a>, SubjectError> {
        check_tokens(text, |_, _| false, |c| is_forbidden(c) || is_blank(c))?;
        Ok(Subject(text))
    }

    /// Validates the name of an existing topic. The name may have invisible characters that release 0.1.0 still
    /// allowed.
    pub fn parse_existing(text: &'a str) -> Result<Subject<'a>, SubjectError> {
        check_tokens(text, |_, _| false, is_forbidden)?;
        Ok(Subject(text))
    }

    /// The subject's text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Whether the subject is reserved for the system, because its first token begins with `$`. Subjects with the first
    /// token [`SERVICES`] are an exception.
    pub fn is_system(&self) -> bool {
        is_system(self.0)
    }
}

impl std::fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The first token of the subjects with which NATS services are discovered and monitored.
pub const SERVICES: &str = "$SRV";

/// Whether the subject or pattern is reserved for the system.
pub(crate) fn is_system(text: &str) -> bool {
    text.starts_with('$') && text.split('.').next() != Some(SERVICES)
}

/// The literal tokens at the start of a valid pattern, including the dot after them; the whole pattern if it has no
/// wildcard.
pub(crate) fn literal_prefix(pattern: &str) -> &str {
    pattern.find(['*', '>']).map_or(pattern, |at| &pattern[..at])
}

/// Validates the length, the tokens and the characters of a text. `wildcard` decides whether a token is an allowed
/// wildcard; its arguments are the token, and whether it is the last one. `is_refused` decides which characters are not
/// allowed in the other tokens.
#[inline]
fn check_tokens(
    text: &str,
    wildcard: impl Fn(&str, bool) -> bool,
    is_refused: impl Fn(char) -> bool,
) -> Result<(), SubjectError> {
    if text.is_empty() {
        return Err(SubjectError::Empty);
    }
    if text.len() > SUBJECT_BYTES_MAX {
        return Err(SubjectError::TooLong { bytes: text.len() });
    }
    if is_plain(text) { Ok(()) } else { check_each(text, wildcard, is_refused) }
}

/// Whether the text consists of visible ASCII characters, without wildcards and empty tokens. Nearly all subjects pass
/// this fast check, so that a publisher's first lookup is cheap.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    // The test of a byte has no branches, so that the compiler can vectorize it.
    let is_special = |byte: u8| byte.wrapping_sub(b'!') > b'~' - b'!' || byte == b'*' || byte == b'>';
    let characters = bytes.iter().fold(false, |bad, &byte| bad | is_special(byte));
    let dots = bytes.iter().zip(&bytes[1..]).fold(false, |bad, (&a, &b)| bad | ((a == b'.') & (b == b'.')));
    !(characters | dots | text.starts_with('.') | text.ends_with('.'))
}

fn check_each(
    text: &str,
    wildcard: impl Fn(&str, bool) -> bool,
    is_refused: impl Fn(char) -> bool,
) -> Result<(), SubjectError> {
    let mut tokens = text.split('.').peekable();
    while let Some(token) = tokens.next() {
        if token.is_empty() {
            return Err(SubjectError::EmptyToken(text.to_owned()));
        }
        if let Some(character) = token.chars().find(|&c| is_refused(c))
            && !wildcard(token, tokens.peek().is_none())
        {
            return Err(SubjectError::Character { subject: text.to_owned(), character });
        }
    }
    Ok(())
}

fn is_forbidden(c: char) -> bool {
    matches!(c, '*' | '>') || c.is_whitespace() || c.is_control() || is_invisible(c)
}

/// Whether a text for people must escape the character. This applies to control characters, separators of lines, and
/// characters that are invisible or change how other characters look.
pub fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_invisible(c)
}

/// Whether the character is invisible or changes how other characters look. With such characters, different names could
/// look the same (Unicode Technical Report 36, section 2.10). The joiners U+200C and U+200D are allowed, because words
/// need them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether the character is invisible but was allowed by release 0.1.0. Such characters are blank symbols, fillers,
/// variation selectors, and all others with the Unicode property `Default_Ignorable_Code_Point` that `is_invisible`
/// leaves out.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{13441}' | '\u{13442}'
        | '\u{16fe4}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0080}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests;

//! Names and patterns of subjects.

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
    /// White space, a control character, or a wildcard where none may stand.
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

/// The literal tokens at the start of a pattern, with their last dot; all of it where there is no
/// wildcard.
pub fn literal_prefix(pattern: &str) -> &str {
    match pattern.find(['*', '>']) {
        Some(at) => &pattern[..at],
        None => pattern,
    }
}

//! Splits a line of the NATS protocol into words. Blanks separate the words.

use super::{NatsDecoderLimits, Violation};

/// Maximum number of words after the name of the operation.
const WORDS_MAX: usize = 4;

/// The words of one line of the NATS protocol, without the name of the operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    words: [&'a [u8]; WORDS_MAX],
    count: usize,
    /// Offset of the first byte after the line's end.
    pub(super) end: usize,
}

impl<'a> Line<'a> {
    /// Reads the words of a line from `from` up to the end of the line; `None` if the end of the line has not arrived
    /// yet.
    #[inline]
    pub(super) fn read(
        bytes: &'a [u8],
        from: usize,
        limits: &NatsDecoderLimits,
    ) -> Result<Option<Line<'a>>, Violation> {
        let mut line = Line { words: [&[]; WORDS_MAX], count: 0, end: 0 };
        let mut word_from = from;
        let mut at = from;
        while let Some(&byte) = bytes.get(at) {
            // Most bytes belong to words, so this case is checked first.
            if byte > b' ' {
                at += 1;
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => line.add(&bytes[word_from..at])?,
                _ => return Err(Violation::Arguments),
            }
            at += 1;
            word_from = at;
            if byte == b'\n' {
                if at > limits.line_bytes_max {
                    return Err(Violation::LineTooLong);
                }
                line.end = at;
                return Ok(Some(line));
            }
        }
        if bytes.len() > limits.line_bytes_max { Err(Violation::LineTooLong) } else { Ok(None) }
    }

    #[inline]
    fn add(&mut self, word: &'a [u8]) -> Result<(), Violation> {
        if !word.is_empty() {
            *self.words.get_mut(self.count).ok_or(Violation::Arguments)? = word;
            self.count += 1;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn words(&self) -> &[&'a [u8]] {
        &self.words[..self.count]
    }
}

/// Parses a decimal number of at most nine digits.
#[inline]
pub(super) fn number(digits: &[u8]) -> Result<usize, Violation> {
    if digits.is_empty() || digits.len() > 9 {
        return Err(Violation::Arguments);
    }
    digits.iter().try_fold(0, |number, &digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + usize::from(digit - b'0')),
        _ => Err(Violation::Arguments),
    })
}

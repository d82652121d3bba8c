//! Divides a file into lines. The file arrives in pieces of any size.

use super::defect::DefectKind;

/// Maximum length of a line in bytes. The longest lines in Betfair's stream, which describe a whole market, have a few
/// hundred kilobytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A function that receives each line: its number, from 1, and either its bytes without the line end, or the reason why
/// the line was skipped.
type OnLine<'a> = dyn FnMut(u64, Result<&[u8], DefectKind>) + 'a;

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not arrived yet.
    partial: Vec<u8>,
    /// Whether bytes are skipped until the end of a line that is too long.
    skipping: bool,
    count: u64,
}

impl Lines {
    /// Number of complete lines so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn push(&mut self, mut bytes: &[u8], on_line: &mut OnLine<'_>) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let line = &bytes[..end];
            if self.partial.is_empty() && !self.skipping && line.len() <= LINE_BYTES_MAX {
                self.count += 1;
                on_line(self.count, Ok(without_carriage_return(line)));
            } else {
                self.extend(line);
                self.end(on_line);
            }
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// Ends the file. If the last line has no line end, passes this line to `on_line`.
    pub(super) fn end(&mut self, on_line: &mut OnLine<'_>) {
        if self.partial.is_empty() && !self.skipping {
            return;
        }
        self.count += 1;
        match std::mem::take(&mut self.skipping) {
            true => on_line(self.count, Err(DefectKind::TooLong)),
            false => on_line(self.count, Ok(without_carriage_return(&self.partial))),
        }
        self.partial.clear();
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            self.skipping = true;
            self.partial = Vec::new();
        }
        if !self.skipping {
            self.partial.extend_from_slice(bytes);
        }
    }
}

fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<(u64, Option<String>)> {
        let (mut lines, mut collected) = (Lines::default(), Vec::new());
        let mut collect = |number, line: Result<&[u8], DefectKind>| {
            collected.push((number, line.ok().map(|line| String::from_utf8_lossy(line).into_owned())));
        };
        for piece in pieces {
            lines.push(piece, &mut collect);
        }
        lines.end(&mut collect);
        collected
    }

    #[test]
    fn file_that_arrives_in_two_chunks_yields_the_same_lines() {
        let text = b"one\r\n\ntwo\nhalf";
        let whole = lines(&[text]);
        let texts: Vec<_> = whole.iter().map(|(_, line)| line.as_deref().unwrap()).collect();
        assert_eq!(texts, ["one", "", "two", "half"]);
        for cut in 0..text.len() {
            assert_eq!(lines(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn overlong_line_is_skipped_and_the_next_is_read() {
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        let ended = [&long[..], b"\nnext\n"].concat();
        let wanted = [(1, None), (2, Some("next".to_owned()))];
        assert_eq!(lines(&[&ended]), wanted);
        assert_eq!(lines(&[&long[..9], &ended[9..]]), wanted);
        assert_eq!(lines(&[&long]), [(1, None)]);
    }
}

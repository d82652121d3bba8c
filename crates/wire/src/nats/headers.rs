//! Reads and writes the block of headers before a payload:
//!
//! ```text
//! NATS/1.0[ status][ description]\r\n
//! Name: value\r\n
//! …
//! \r\n
//! ```

use super::Violation;

/// Maximum number of headers in one message.
pub const HEADERS_MAX: usize = 1_024;

/// The name under which the text after `NATS/1.0` appears among the headers. No client can send a header with this
/// name.
pub const STATUS_HEADER: &str = ":status";

const FIRST_LINE: &[u8] = b"NATS/1.0";

/// The headers of a NATS message, in the form in which the client sent them.
#[derive(Debug, Clone, Copy)]
pub struct HeaderBlock<'a> {
    status: &'a [u8],
    lines: &'a [u8],
}

impl<'a> HeaderBlock<'a> {
    /// Checks the first line and the end of a block of headers. The headers themselves are checked by
    /// [`HeaderBlock::iter`].
    pub fn parse(block: &'a [u8]) -> Result<HeaderBlock<'a>, Violation> {
        let rest = block.strip_prefix(FIRST_LINE).ok_or(Violation::Arguments)?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Violation::Arguments)?;
        let (status, lines) = (&rest[..end], &rest[end + 2..]);
        // Some clients end a block without headers with one line end instead of two.
        let lines =
            if lines.is_empty() { lines } else { lines.strip_suffix(b"\r\n").ok_or(Violation::Arguments)? };
        Ok(HeaderBlock { status: status.trim_ascii(), lines })
    }

    /// The names and values of the headers, in order. If the first line has a status, it comes first, under the name
    /// [`STATUS_HEADER`].
    pub fn iter(&self) -> impl Iterator<Item = Result<(&'a str, &'a [u8]), Violation>> + use<'a> {
        let status = (!self.status.is_empty()).then_some(Ok((STATUS_HEADER, self.status)));
        let mut lines = self.lines;
        let headers = std::iter::from_fn(move || {
            if lines.is_empty() {
                return None;
            }
            let end = lines.iter().position(|&byte| byte == b'\n').map_or(lines.len(), |at| at + 1);
            let (line, rest) = lines.split_at(end);
            lines = rest;
            Some(header(line))
        });
        status.into_iter().chain(headers)
    }
}

fn header(line: &[u8]) -> Result<(&str, &[u8]), Violation> {
    let line = line.strip_suffix(b"\r\n").ok_or(Violation::Arguments)?;
    let colon = line.iter().position(|&byte| byte == b':').ok_or(Violation::Arguments)?;
    let name = std::str::from_utf8(&line[..colon]).map_err(|_| Violation::Arguments)?;
    if name.is_empty() {
        return Err(Violation::Arguments);
    }
    Ok((name, line[colon + 1..].trim_ascii()))
}

/// Appends a block of headers with this status. The caller must append the empty line at its end.
pub fn header_lines<'h>(
    out: &mut Vec<u8>,
    status: &[u8],
    headers: impl Iterator<Item = (&'h str, &'h [u8])>,
) {
    out.extend_from_slice(FIRST_LINE);
    if !status.is_empty() {
        out.push(b' ');
        put_value(out, status);
    }
    out.extend_from_slice(b"\r\n");
    headers.for_each(|(name, value)| put_header(out, name, value));
}

/// Appends one header. Leaves out a header whose name is empty, or contains a colon, a blank or a control character;
/// other protocols allow such names. Line ends in the value are replaced by blanks.
pub fn put_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    if name.is_empty() || name.bytes().any(|byte| byte <= b' ' || byte == b':' || byte == 0x7f) {
        return;
    }
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    put_value(out, value);
    out.extend_from_slice(b"\r\n");
}

fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(value);
    out[start..].iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: &str) -> Result<Vec<(String, String)>, Violation> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        HeaderBlock::parse(block.as_bytes())?
            .iter()
            .map(|header| header.map(|(name, value)| (name.to_owned(), text(value))))
            .collect()
    }

    #[test]
    fn nats_header_names_values_and_status_are_read_in_order() {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(read("NATS/1.0\r\n\r\n").unwrap(), []);
        assert_eq!(read("NATS/1.0\r\n").unwrap(), []);
        assert_eq!(
            read("NATS/1.0\r\nA: 1\r\nb:two words \r\nA:\r\n\r\n").unwrap(),
            pairs(&[("A", "1"), ("b", "two words"), ("A", "")])
        );
        assert_eq!(read("NATS/1.0 503 Nobody\r\n\r\n").unwrap(), pairs(&[(STATUS_HEADER, "503 Nobody")]));
    }

    #[test]
    fn malformed_header_block_is_refused() {
        for block in [
            "",
            "HTTP/1.1\r\n\r\n",
            "NATS/1.0",
            "NATS/1.0\r\nA: 1\r\n",
            "NATS/1.0\r\nA\r\n\r\n",
            "NATS/1.0\r\n: 1\r\n\r\n",
        ] {
            assert!(read(block).is_err(), "{block:?}");
        }
    }

    #[test]
    fn line_breaks_in_a_record_add_no_nats_header() {
        let mut block = Vec::new();
        let headers: [(&str, &[u8]); 4] =
            [("a", b"1\r\nInjected: x"), ("b:c", b"2"), ("d\r\ne", b"3"), ("", b"4")];
        header_lines(&mut block, b"200 fine\r\nX: y", headers.into_iter());
        block.extend_from_slice(b"\r\n");
        assert_eq!(block, b"NATS/1.0 200 fine  X: y\r\na: 1  Injected: x\r\n\r\n");
    }
}

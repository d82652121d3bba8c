//! Writes the operations of a NATS server.

/// The reply to an operation that succeeded. Only clients that have set `verbose` receive it.
pub const OK: &[u8] = b"+OK\r\n";
/// The operation with which the node checks that the client is still there.
pub const PING: &[u8] = b"PING\r\n";
/// The reply to a client's PING.
pub const PONG: &[u8] = b"PONG\r\n";

/// Appends an error with this text.
pub fn put_error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"-ERR '");
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    // Replaces control characters by blanks, because the error must be a single line.
    out[start..].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
    out.extend_from_slice(b"'\r\n");
}

/// The content of the first line of a message to a NATS client: subject, subscription and reply subject.
#[derive(Debug, Clone, Copy)]
pub struct NatsMessageHead<'a> {
    /// The record's subject, as two pieces that are written one after the other.
    pub subject: [&'a str; 2],
    /// The name that the client has given to the subscription.
    pub sid: &'a [u8],
    /// The subject for replies to this message.
    pub reply: Option<&'a str>,
}

impl NatsMessageHead<'_> {
    /// Appends the first line of a message that has no headers and a payload of `payload_bytes` bytes.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>, payload_bytes: usize) {
        out.extend_from_slice(b"MSG ");
        self.put_arguments(out);
        put_decimal(out, payload_bytes as u64);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the first line of a message that has headers. `header_bytes` is the size of its block of headers.
    pub fn encode_with_headers(&self, out: &mut Vec<u8>, header_bytes: usize, payload_bytes: usize) {
        out.extend_from_slice(b"HMSG ");
        self.put_arguments(out);
        put_decimal(out, header_bytes as u64);
        out.push(b' ');
        put_decimal(out, (header_bytes + payload_bytes) as u64);
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn put_arguments(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.subject[0].as_bytes());
        out.extend_from_slice(self.subject[1].as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.sid);
        out.push(b' ');
        // Omits a reply subject with blanks or control characters, which would make the line invalid.
        if let Some(reply) = self.reply.filter(|reply| reply.bytes().all(|b| b > b' ' && b != 0x7f)) {
            out.extend_from_slice(reply.as_bytes());
            out.push(b' ');
        }
    }
}

/// Appends a number in decimal digits.
#[inline]
pub fn put_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn message_control_lines_have_the_nats_format() {
        let mut message = NatsMessageHead { subject: ["a.", "b"], sid: b"7", reply: None };
        assert_eq!(encoded(|out| message.encode(out, 10)), "MSG a.b 7 10\r\n");
        message.reply = Some("r");
        assert_eq!(encoded(|out| message.encode_with_headers(out, 16, 0)), "HMSG a.b 7 r 16 16\r\n");
    }

    #[test]
    fn reply_subject_with_blank_or_control_character_is_omitted() {
        for reply in ["r 0\r\n\r\nMSG admin.cmd 2 4\r\nevil\r\nMSG a 1 z", "a b", "a\tb", "a\n", "a\u{7f}"] {
            let message = NatsMessageHead { subject: ["a.", "b"], sid: b"7", reply: Some(reply) };
            assert_eq!(encoded(|out| message.encode(out, 10)), "MSG a.b 7 10\r\n");
        }
    }

    #[test]
    fn nats_error_is_one_line_even_with_quoted_line_breaks() {
        assert_eq!(encoded(|out| put_error(out, "no\r\nMSG a 1 0")), "-ERR 'no  MSG a 1 0'\r\n");
    }

    #[test]
    fn decimal_numbers_are_written_as_by_the_standard_library() {
        for number in [0, 9, 10, 65_536, u64::MAX] {
            assert_eq!(encoded(|out| put_decimal(out, number)), number.to_string());
        }
    }
}

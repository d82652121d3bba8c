//! Reads the operations of a NATS client.

use super::encode::put_decimal;
use super::line::{Line, number};
use super::{NatsDecoderLimits, Violation};
use crate::DecodeOutcome;

/// An operation of a NATS client. Its subjects are not validated yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatsOperation<'a> {
    /// Operation `CONNECT`, with the client's options as JSON.
    Connect(&'a [u8]),
    /// Operation `PUB` or `HPUB`: publishes a record.
    Publish(PublishOperation<'a>),
    /// Operation `SUB`: subscribes to a subject.
    Subscribe {
        /// The subject or pattern to which the client subscribes.
        subject: &'a [u8],
        /// The name of the queue group that the subscription joins.
        queue: Option<&'a [u8]>,
        /// The name that the client gives to the new subscription.
        sid: &'a [u8],
    },
    /// Operation `UNSUB`: ends a subscription.
    Unsubscribe {
        /// The name that the client has given to the subscription.
        sid: &'a [u8],
        /// Number of messages after which the subscription ends. Messages that the subscription has already received
        /// count too. `None` ends the subscription immediately.
        max: Option<u64>,
    },
    /// Operation `PING`, to which the node must reply with `PONG`.
    Ping,
    /// Operation `PONG`, the reply to `PING`.
    Pong,
}

/// The content of the NATS operation `PUB` or `HPUB`: a record to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishOperation<'a> {
    /// The record's subject.
    pub subject: &'a [u8],
    /// The subject for replies to this record.
    pub reply: Option<&'a [u8]>,
    /// The block of headers, from its first line to the empty line at its end; empty for `PUB`.
    pub headers: &'a [u8],
    /// The record's payload.
    pub payload: &'a [u8],
}

impl PublishOperation<'_> {
    /// Appends the operation to `out` in the form in which a client sends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.headers.is_empty() { &b"PUB "[..] } else { b"HPUB " });
        out.extend_from_slice(self.subject);
        out.push(b' ');
        if let Some(reply) = self.reply {
            out.extend_from_slice(reply);
            out.push(b' ');
        }
        if !self.headers.is_empty() {
            put_decimal(out, self.headers.len() as u64);
            out.push(b' ');
        }
        put_decimal(out, (self.headers.len() + self.payload.len()) as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.headers);
        out.extend_from_slice(self.payload);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads the first operation in `bytes`. Returns the operation and its length, or how many bytes are needed.
#[inline]
pub fn next<'a>(
    bytes: &'a [u8],
    limits: &NatsDecoderLimits,
) -> Result<DecodeOutcome<NatsOperation<'a>>, Violation> {
    if let [b'P', b'U', b'B', b' ', ..] = bytes {
        return publish(bytes, 4, limits);
    }
    if let [b'H', b'P', b'U', b'B', b' ', ..] = bytes {
        return publish_with_headers(bytes, 5, limits);
    }
    next_any_case(bytes, limits)
}

#[inline]
fn publish<'a>(
    bytes: &'a [u8],
    from: usize,
    limits: &NatsDecoderLimits,
) -> Result<DecodeOutcome<NatsOperation<'a>>, Violation> {
    let Some(line) = Line::read(bytes, from, limits)? else { return Ok(need_more(bytes)) };
    let (subject, reply, size) = match *line.words() {
        [subject, size] => (subject, None, size),
        [subject, reply, size] => (subject, Some(reply), size),
        _ => return Err(Violation::Arguments),
    };
    let size = number(size)?;
    with_payload(bytes, line.end, size, limits, |payload| PublishOperation {
        subject,
        reply,
        headers: &[],
        payload,
    })
}

fn publish_with_headers<'a>(
    bytes: &'a [u8],
    from: usize,
    limits: &NatsDecoderLimits,
) -> Result<DecodeOutcome<NatsOperation<'a>>, Violation> {
    let Some(line) = Line::read(bytes, from, limits)? else { return Ok(need_more(bytes)) };
    let (subject, reply, headers, all) = match *line.words() {
        [subject, headers, all] => (subject, None, headers, all),
        [subject, reply, headers, all] => (subject, Some(reply), headers, all),
        _ => return Err(Violation::Arguments),
    };
    let (header_bytes, all) = (number(headers)?, number(all)?);
    if header_bytes > all {
        return Err(Violation::Arguments);
    }
    with_payload(bytes, line.end, all, limits, |both| {
        let (headers, payload) = both.split_at(header_bytes);
        PublishOperation { subject, reply, headers, payload }
    })
}

#[inline]
fn with_payload<'a>(
    bytes: &'a [u8],
    at: usize,
    size: usize,
    limits: &NatsDecoderLimits,
    published: impl FnOnce(&'a [u8]) -> PublishOperation<'a>,
) -> Result<DecodeOutcome<NatsOperation<'a>>, Violation> {
    if size > limits.payload_bytes_max {
        return Err(Violation::PayloadTooLarge);
    }
    let end = at + size + 2;
    let Some(both) = bytes.get(at..end) else { return Ok(DecodeOutcome::Need(end)) };
    match both.split_at(size) {
        (payload, b"\r\n") => Ok(DecodeOutcome::Message(NatsOperation::Publish(published(payload)), end)),
        _ => Err(Violation::Operation),
    }
}

/// Like [`next`], but allows any mix of upper and lower case in the name of the operation.
fn next_any_case<'a>(
    bytes: &'a [u8],
    limits: &NatsDecoderLimits,
) -> Result<DecodeOutcome<NatsOperation<'a>>, Violation> {
    let verb_end =
        bytes.iter().take(VERB_BYTES_MAX + 1).position(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    let Some(verb_end) = verb_end else {
        let begins = VERBS
            .iter()
            .any(|verb| verb.len() >= bytes.len() && verb[..bytes.len()].eq_ignore_ascii_case(bytes));
        return if begins { Ok(need_more(bytes)) } else { Err(Violation::Operation) };
    };
    let verb = &bytes[..verb_end];
    let is = |name: &[u8]| verb.eq_ignore_ascii_case(name);
    if is(b"PUB") {
        return publish(bytes, verb_end, limits);
    }
    if is(b"HPUB") {
        return publish_with_headers(bytes, verb_end, limits);
    }
    if is(b"CONNECT") {
        return connect(bytes, verb_end, limits);
    }
    if !VERBS.iter().any(|name| is(name)) {
        return Err(Violation::Operation);
    }
    let Some(line) = Line::read(bytes, verb_end, limits)? else { return Ok(need_more(bytes)) };
    let operation = match *line.words() {
        _ if is(b"PING") => NatsOperation::Ping,
        _ if is(b"PONG") => NatsOperation::Pong,
        [subject, sid] if is(b"SUB") => NatsOperation::Subscribe { subject, queue: None, sid },
        [subject, queue, sid] if is(b"SUB") => NatsOperation::Subscribe { subject, queue: Some(queue), sid },
        [sid] if is(b"UNSUB") => NatsOperation::Unsubscribe { sid, max: None },
        [sid, max] if is(b"UNSUB") => {
            // In nats-server, a maximum of 0 means that there is none.
            let max = Some(number(max)? as u64).filter(|max| *max > 0);
            NatsOperation::Unsubscribe { sid, max }
        }
        _ => return Err(Violation::Arguments),
    };
    Ok(DecodeOutcome::Message(operation, line.end))
}

const VERBS: [&[u8]; 7] = [b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT"];
const VERB_BYTES_MAX: usize = 7;

fn connect<'a>(
    bytes: &'a [u8],
    from: usize,
    limits: &NatsDecoderLimits,
) -> Result<DecodeOutcome<NatsOperation<'a>>, Violation> {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) if end >= limits.line_bytes_max => Err(Violation::LineTooLong),
        Some(end) => {
            Ok(DecodeOutcome::Message(NatsOperation::Connect(bytes[from..end].trim_ascii()), end + 1))
        }
        None if bytes.len() > limits.line_bytes_max => Err(Violation::LineTooLong),
        None => Ok(need_more(bytes)),
    }
}

fn need_more<T>(bytes: &[u8]) -> DecodeOutcome<T> {
    DecodeOutcome::Need(bytes.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: NatsDecoderLimits = NatsDecoderLimits { line_bytes_max: 64, payload_bytes_max: 16 };

    fn decode_one(text: &str) -> NatsOperation<'_> {
        match next(text.as_bytes(), &LIMITS) {
            Ok(DecodeOutcome::Message(operation, taken)) if taken == text.len() => operation,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn published<'a>(
        subject: &'a str,
        reply: Option<&'a str>,
        headers: &'a str,
        payload: &'a str,
    ) -> NatsOperation<'a> {
        let (subject, reply) = (subject.as_bytes(), reply.map(str::as_bytes));
        NatsOperation::Publish(PublishOperation {
            subject,
            reply,
            headers: headers.as_bytes(),
            payload: payload.as_bytes(),
        })
    }

    #[test]
    fn nats_verbs_are_read_in_any_case_and_with_any_blanks() {
        assert_eq!(decode_one("PUB a.b 5\r\nhello\r\n"), published("a.b", None, "", "hello"));
        assert_eq!(decode_one("pub\ta.b  r.1 0\r\n\r\n"), published("a.b", Some("r.1"), "", ""));
        assert_eq!(decode_one("HPUB a 4 6\r\nheadhi\r\n"), published("a", None, "head", "hi"));
        assert_eq!(decode_one("hpub a r 4 4\r\nhead\r\n"), published("a", Some("r"), "head", ""));
        let sub =
            |queue: Option<&'static [u8]>| NatsOperation::Subscribe { subject: b"a.>", queue, sid: b"9" };
        assert_eq!(decode_one("SUB a.> 9\r\n"), sub(None));
        assert_eq!(decode_one("Sub a.>  q 9 \n"), sub(Some(b"q")));
        assert_eq!(decode_one("UNSUB 9\r\n"), NatsOperation::Unsubscribe { sid: b"9", max: None });
        assert_eq!(decode_one("UNSUB 9 5\r\n"), NatsOperation::Unsubscribe { sid: b"9", max: Some(5) });
        assert_eq!(decode_one("UNSUB 9 0\r\n"), NatsOperation::Unsubscribe { sid: b"9", max: None });
        assert_eq!(
            (decode_one("PING\r\n"), decode_one("pong\n")),
            (NatsOperation::Ping, NatsOperation::Pong)
        );
        assert_eq!(decode_one("CONNECT  {\"a\": 1}\r\n"), NatsOperation::Connect(b"{\"a\": 1}"));
    }

    #[test]
    fn nats_publish_operations_are_read_back_as_written() {
        for text in [
            "PUB a.b 5\r\nhello\r\n",
            "PUB a r.1 0\r\n\r\n",
            "HPUB a 4 6\r\nheadhi\r\n",
            "HPUB a r 4 4\r\nhead\r\n",
        ] {
            let NatsOperation::Publish(published) = decode_one(text) else { panic!("{text:?}") };
            let mut encoded = Vec::new();
            published.encode(&mut encoded);
            assert_eq!(String::from_utf8(encoded).unwrap(), text);
        }
    }

    #[test]
    fn parser_asks_for_the_rest_of_a_truncated_operation() {
        for text in [
            "PUB a.b r 5\r\nhello\r\n",
            "HPUB a 4 6\r\nheadhi\r\n",
            "SUB a q 9\r\n",
            "CONNECT {}\r\n",
            "PING\r\n",
        ] {
            for cut in 0..text.len() {
                match next(&text.as_bytes()[..cut], &LIMITS) {
                    Ok(DecodeOutcome::Need(needs)) => {
                        assert!(cut < needs && needs <= text.len(), "{text:?} {cut} {needs}")
                    }
                    other => panic!("{text:?} cut at {cut}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn protocol_violations_get_the_error_names_of_nats_server() {
        let violation = |text: &str| next(text.as_bytes(), &LIMITS).unwrap_err();
        for text in ["GET / HTTP/1.1\r\n", "PUBLISH", "\r\n", "\0", "PUB a 1\r\nxyz"] {
            assert_eq!(violation(text), Violation::Operation, "{text:?}");
        }
        for text in [
            "PUB\r\n",
            "PUB a\r\n",
            "PUB a b c 1\r\n",
            "PUB a -1\r\n",
            "HPUB a 5 4\r\n",
            "SUB a\r\n",
            "UNSUB\r\n",
        ] {
            assert_eq!(violation(text), Violation::Arguments, "{text:?}");
        }
        assert_eq!(violation("PUB a 17\r\n"), Violation::PayloadTooLarge);
        assert_eq!(violation("PUB a 9999999999\r\n"), Violation::Arguments);
        for verb in ["PUB ", "SUB ", "CONNECT "] {
            let endless = format!("{verb}{}", "x".repeat(64));
            assert_eq!(violation(&endless), Violation::LineTooLong);
            assert_eq!(violation(&format!("{endless}\r\n")), Violation::LineTooLong);
        }
    }
}

//! Encodes and parses the protocols of the brokers: those of NATS and Redis.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

/// The protocol that a broker speaks: NATS or Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The NATS protocol for clients.
    Nats,
    /// The protocol of Redis, with the commands `PUBLISH` and `SUBSCRIBE`.
    Redis,
}

/// One frame that a broker has sent. A [`Message`](BrokerFrame::Message) contains positions in the client's receive
/// buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum BrokerFrame {
    /// A message of a subscription. The ranges are positions in the client's receive buffer.
    Message { reply: Range<usize>, payload: Range<usize> },
    /// A confirmation: `PONG`, `+OK`, or the confirmation of a subscription.
    Done,
    /// A question whether the client is still alive. The client must send [`PONG`].
    Ping,
    /// Anything else.
    Other,
}

/// The response to [`BrokerFrame::Ping`]. If a client does not send it, the broker closes the connection.
pub const PONG: &[u8] = b"PONG\r\n";

const CONNECT: &str =
    "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false,\"lang\":\"raw\",\"version\":\"1\"";
const CONNECT_VERBOSE: &str =
    "CONNECT {\"verbose\":true,\"pedantic\":false,\"headers\":false,\"lang\":\"raw\",\"version\":\"1\"}\r\n";

impl Dialect {
    /// Returns the greeting, which a client sends first on a connection. The greeting contains `token` if there is one.
    /// The broker confirms the greeting with [`BrokerFrame::Done`].
    pub fn greeting(self, token: Option<&str>) -> String {
        match (self, token) {
            (Self::Nats, None) => format!("{CONNECT}}}\r\nPING\r\n"),
            (Self::Nats, Some(token)) => format!("{CONNECT},\"auth_token\":\"{token}\"}}\r\nPING\r\n"),
            (Self::Redis, _) => "PING\r\n".to_owned(),
        }
    }

    /// Returns a greeting after which the broker confirms each publish with [`BrokerFrame::Done`].
    pub fn verbose_greeting(self) -> &'static str {
        match self {
            Self::Nats => CONNECT_VERBOSE,
            Self::Redis => "PING\r\n",
        }
    }

    /// Returns a message that makes the broker stop confirming publishes. The message is empty for a broker that never
    /// confirms publishes.
    pub fn disable_confirmations(self) -> &'static str {
        match self {
            Self::Nats => "",
            Self::Redis => "CLIENT REPLY OFF\r\n",
        }
    }

    /// Returns a message that the broker confirms with [`BrokerFrame::Done`] after it has handled all earlier messages.
    /// Even if [`disable_confirmations`](Self::disable_confirmations) was sent before, the broker confirms this
    /// message.
    pub fn flush_message(self) -> &'static str {
        match self {
            Self::Nats => "PING\r\n",
            Self::Redis => "CLIENT REPLY ON\r\n",
        }
    }

    /// Returns a message that subscribes to a subject. The broker confirms the subscription with [`BrokerFrame::Done`].
    pub fn subscribe(self, subject: &str) -> String {
        match self {
            Self::Nats => format!("SUB {subject} 1\r\nPING\r\n"),
            Self::Redis => format!("SUBSCRIBE {subject}\r\n"),
        }
    }

    /// Returns the bytes that precede the payload in a publish to `subject`. The payload has `bytes` bytes.
    pub fn publish_head(self, subject: &str, bytes: usize) -> Vec<u8> {
        match self {
            Self::Nats => format!("PUB {subject} {bytes}\r\n"),
            Self::Redis => {
                format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{subject}\r\n${bytes}\r\n", subject.len())
            }
        }
        .into_bytes()
    }

    /// Parses the first frame in `bytes`, which begin at offset `at` of the receive buffer. Returns the frame, and the
    /// frame's length in bytes; `None` if the frame is incomplete. The positions in the frame are positions in the
    /// receive buffer.
    #[inline]
    pub fn parse(self, bytes: &[u8], at: usize) -> Result<Option<(BrokerFrame, usize)>> {
        match self {
            Self::Nats => nats(bytes, at),
            Self::Redis => redis(bytes, at),
        }
    }
}

/// Appends a publish of the NATS protocol to `out`. The publish has a reply subject unless `reply` is empty.
pub fn write_request(out: &mut Vec<u8>, subject: &[u8], reply: &[u8], payload: &[u8]) {
    out.extend_from_slice(b"PUB ");
    out.extend_from_slice(subject);
    out.push(b' ');
    if !reply.is_empty() {
        out.extend_from_slice(reply);
        out.push(b' ');
    }
    out.extend_from_slice(payload.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), end + 1))
}

#[inline]
fn nats(bytes: &[u8], at: usize) -> Result<Option<(BrokerFrame, usize)>> {
    let Some((line, after)) = line(bytes) else { return Ok(None) };
    if let Some(rest) = line.strip_prefix(b"MSG ") {
        return nats_message(rest, bytes, after, at);
    }
    let frame = match line {
        b"PONG" | b"+OK" => BrokerFrame::Done,
        b"PING" => BrokerFrame::Ping,
        info if info.starts_with(b"INFO ") => BrokerFrame::Other,
        other => bail!("unexpected message from the broker: {}", String::from_utf8_lossy(other)),
    };
    Ok(Some((frame, after)))
}

/// Parses a NATS message. `head` is the message's first line without `MSG `: `subject sid [reply] size`. In `bytes`,
/// the payload and a line break follow from offset `after` on. `bytes` is the part of the receive buffer that begins at
/// offset `at`.
#[inline]
fn nats_message(head: &[u8], bytes: &[u8], after: usize, at: usize) -> Result<Option<(BrokerFrame, usize)>> {
    let size_from =
        head.iter().rposition(|byte| *byte == b' ').context("the broker sent MSG without a size")? + 1;
    let Some((payload, end)) = sized(decimal(&head[size_from..])?, bytes, after, at)? else {
        return Ok(None);
    };
    let mut words = head[..size_from - 1].split(|byte| *byte == b' ').skip(2);
    let reply = words.next().map_or(0, <[u8]>::len);
    let reply_end = at + b"MSG ".len() + size_from - 1;
    Ok(Some((BrokerFrame::Message { reply: reply_end - reply..reply_end, payload }, end)))
}

/// Finds a payload of `size` bytes, and the line break that follows the payload. The payload begins at offset `after`
/// of `bytes`, and `bytes` is the part of the receive buffer that begins at offset `at`. Returns two values: the range
/// of the payload in the receive buffer, and the offset in `bytes` behind the line break. Returns `None` if the payload
/// and the line break have not arrived completely.
#[inline]
fn sized(size: usize, bytes: &[u8], after: usize, at: usize) -> Result<Option<(Range<usize>, usize)>> {
    let end = after + size + 2;
    if bytes.len() < end {
        return Ok(None);
    }
    ensure!(&bytes[after + size..end] == b"\r\n", "the broker sent a payload longer than the announced size");
    Ok(Some((at + after..at + after + size, end)))
}

#[inline]
fn redis(bytes: &[u8], at: usize) -> Result<Option<(BrokerFrame, usize)>> {
    let Some((head, after)) = line(bytes) else { return Ok(None) };
    match head {
        b"+OK" | b"+PONG" => Ok(Some((BrokerFrame::Done, after))),
        [b'*', count @ ..] => redis_array(decimal(count)?, bytes, after, at),
        [b':', ..] => Ok(Some((BrokerFrame::Other, after))),
        other => bail!("unexpected message from the broker: {}", String::from_utf8_lossy(other)),
    }
}

/// Parses an array of the Redis protocol: `message` with channel and payload, or `subscribe` with channel and number of
/// subscriptions.
#[inline]
fn redis_array(
    count: usize,
    bytes: &[u8],
    mut from: usize,
    at: usize,
) -> Result<Option<(BrokerFrame, usize)>> {
    let (mut is_message, mut last) = (false, at..at);
    for nth in 0..count {
        let Some((head, used)) = line(&bytes[from..]) else { return Ok(None) };
        from += used;
        let Some(size) = head.strip_prefix(b"$") else { continue };
        let Some((text, end)) = sized(decimal(size)?, bytes, from, at)? else { return Ok(None) };
        if nth == 0 {
            is_message = bytes[from..end].starts_with(b"message");
        }
        (last, from) = (text, end);
    }
    let frame =
        if is_message { BrokerFrame::Message { reply: at..at, payload: last } } else { BrokerFrame::Done };
    Ok(Some((frame, from)))
}

#[inline]
fn decimal(digits: &[u8]) -> Result<usize> {
    ensure!(
        !digits.is_empty() && digits.len() < 10 && digits.iter().all(u8::is_ascii_digit),
        "the broker sent a size that is not a number"
    );
    Ok(digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(dialect: Dialect, bytes: &[u8], at: usize) -> (&[u8], &[u8], usize) {
        let (frame, used) = dialect.parse(&bytes[at..], at).unwrap().unwrap();
        let BrokerFrame::Message { reply, payload } = frame else { panic!("{frame:?}") };
        (&bytes[reply], &bytes[payload], at + used)
    }

    #[test]
    fn messages_with_and_without_a_reply_subject_are_parsed() {
        let bytes = b"MSG a.b 1 _INBOX.7 5\r\nhello\r\nMSG a.b 1 2\r\nhi\r\n";
        let (reply, payload, next) = message(Dialect::Nats, bytes, 0);
        assert_eq!((reply, payload), (&b"_INBOX.7"[..], &b"hello"[..]));
        let (reply, payload, end) = message(Dialect::Nats, bytes, next);
        assert_eq!((reply, payload), (&b""[..], &b"hi"[..]));
        assert_eq!(end, bytes.len());
    }

    #[test]
    fn redis_confirmation_and_message_are_parsed() {
        let bytes =
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$5\r\nhello\r\n";
        let (frame, used) = Dialect::Redis.parse(bytes, 0).unwrap().unwrap();
        assert_eq!(frame, BrokerFrame::Done);
        assert_eq!(message(Dialect::Redis, bytes, used), (&b""[..], &b"hello"[..], bytes.len()));
    }

    #[test]
    fn incomplete_message_is_not_parsed() {
        let nats: &[u8] = b"MSG a.b 1 5\r\nhello\r\n";
        let redis: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$5\r\nhello\r\n";
        for (dialect, bytes) in [(Dialect::Nats, nats), (Dialect::Redis, redis)] {
            for cut in 0..bytes.len() {
                assert_eq!(dialect.parse(&bytes[..cut], 0).unwrap(), None, "{cut}");
            }
        }
    }

    #[test]
    fn parser_refuses_error_replies_and_malformed_messages() {
        let slow = Dialect::Nats.parse(b"-ERR 'Slow Consumer'\r\n", 0).unwrap_err();
        assert!(slow.to_string().contains("Slow Consumer"));
        assert!(Dialect::Nats.parse(b"MSG a 1 x\r\n", 0).is_err());
        assert!(Dialect::Nats.parse(b"MSG a 1 2\r\nhello\r\n", 0).is_err());
        assert!(Dialect::Redis.parse(b"-ERR unknown command\r\n", 0).is_err());
    }
}

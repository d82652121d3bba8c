//! Decodes WebSocket frames (RFC 6455) in place. Binary messages are decoded into one stream of bytes. For text
//! messages, the decoder reports where each ends.
//!
//! Limits: of an incomplete frame, the decoder keeps only the header. Of an incomplete control frame, it also keeps the
//! payload, which has at most 125 bytes.

use std::io::{self, Cursor};

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// Largest header of a frame, bytes. It has a 64-bit length and a mask.
const HEAD_BYTES_MAX: usize = 14;
/// Largest payload of a control frame, bytes.
const CONTROL_BYTES_MAX: u64 = 125;

/// The way in which a client's frames are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebSocketError {
    /// The frames violate the protocol. The close frame has status 1002.
    Rules(&'static str),
    /// The client sent a text message where binary messages are expected, or the reverse. The close frame has status
    /// 1003.
    Kind,
    /// A close frame's reason is not UTF-8. The close frame has status 1007.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecodedFrames {
    /// Number of decoded payload bytes. They are at the beginning of the buffer.
    pub(super) payload: usize,
    /// Number of bytes that were decoded. Decoding stops at the end of the buffer, of a text message, or of a close
    /// frame.
    pub(super) read: usize,
    /// Whether a text message ends after this payload.
    pub(super) ends_text: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ControlFrames {
    /// The payload of the last ping, which the pong must contain.
    pub(super) ping: Option<Vec<u8>>,
    pub(super) close: bool,
}

/// Decodes frames that may arrive in arbitrary pieces.
#[derive(Debug)]
pub(super) struct FrameDecoder {
    /// The kind of messages that the decoder accepts: binary or text.
    kind: Data,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    open_frame: Option<OpenFrame>,
    /// Whether the present message continues in another frame.
    is_fragment: bool,
    control: Vec<u8>,
}

/// A frame whose header was decoded, but whose payload is not complete yet.
#[derive(Debug, Clone, Copy)]
struct OpenFrame {
    left: u64,
    mask: [u8; 4],
    /// Number of payload bytes that were decoded. It determines which byte of the mask is used next.
    at: usize,
    control: Option<Control>,
}

impl FrameDecoder {
    /// Creates a decoder that accepts either binary or text messages.
    pub(super) fn of(kind: Data) -> FrameDecoder {
        FrameDecoder {
            kind,
            head: [0; HEAD_BYTES_MAX],
            head_bytes: 0,
            open_frame: None,
            is_fragment: false,
            control: Vec::new(),
        }
    }

    /// Decodes frames, and moves their payload to the beginning of `bytes`. Bytes after a close frame are ignored.
    pub(super) fn decode(
        &mut self,
        bytes: &mut [u8],
        control_frames: &mut ControlFrames,
    ) -> Result<DecodedFrames, WebSocketError> {
        let (mut at, mut payload) = (0, 0);
        loop {
            if let Some(open_frame) = &mut self.open_frame {
                let count = usize::try_from(open_frame.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                unmask(&mut bytes[at..at + count], open_frame.mask, open_frame.at);
                open_frame.at += count;
                open_frame.left -= count as u64;
                if open_frame.control.is_some() {
                    self.control.extend_from_slice(&bytes[at..at + count]);
                } else {
                    bytes.copy_within(at..at + count, payload);
                    payload += count;
                }
                at += count;
                if open_frame.left > 0 {
                    return Ok(DecodedFrames { payload, read: at, ends_text: false });
                }
                let control = open_frame.control;
                self.open_frame = None;
                self.handle_control(control, control_frames)?;
                if self.kind == Data::Text && control.is_none() && !self.is_fragment {
                    return Ok(DecodedFrames { payload, read: at, ends_text: true });
                }
            }
            if at == bytes.len() || control_frames.close {
                return Ok(DecodedFrames { payload, read: at, ends_text: false });
            }
            at += self.parse_head(&bytes[at..])?;
        }
    }

    fn handle_control(
        &mut self,
        control: Option<Control>,
        control_frames: &mut ControlFrames,
    ) -> Result<(), WebSocketError> {
        match control {
            Some(Control::Close) => {
                check_close(&self.control)?;
                control_frames.close = true;
            }
            Some(Control::Ping) => control_frames.ping = Some(std::mem::take(&mut self.control)),
            _ => {}
        }
        self.control.clear();
        Ok(())
    }

    /// Decodes a frame's header as far as its bytes have arrived. Returns how many of `bytes` belong to the header.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<usize, WebSocketError> {
        let before = self.head_bytes;
        let more = bytes.len().min(HEAD_BYTES_MAX - before);
        self.head[before..before + more].copy_from_slice(&bytes[..more]);
        let mut cursor = Cursor::new(&self.head[..before + more]);
        let parsed =
            FrameHeader::parse(&mut cursor).map_err(|_| WebSocketError::Rules("unknown frame type"))?;
        let Some((head, length)) = parsed else {
            self.head_bytes += more;
            return Ok(more);
        };
        let head_bytes = usize::try_from(cursor.position()).unwrap_or(HEAD_BYTES_MAX);
        if head_bytes != head.len(length) {
            return Err(WebSocketError::Rules("the length is not in its shortest form"));
        }
        let taken = head_bytes - before;
        self.head_bytes = 0;
        self.open_frame = Some(self.check_head(&head, length)?);
        Ok(taken)
    }

    fn check_head(&mut self, head: &FrameHeader, length: u64) -> Result<OpenFrame, WebSocketError> {
        if head.rsv1 || head.rsv2 || head.rsv3 {
            return Err(WebSocketError::Rules("reserved bits are set without an extension"));
        }
        let Some(mask) = head.mask else {
            return Err(WebSocketError::Rules("the frame has no mask"));
        };
        if length > i64::MAX as u64 {
            return Err(WebSocketError::Rules("the length has its highest bit set"));
        }
        let control = match head.opcode {
            OpCode::Data(kind) if kind != Data::Continue && kind != self.kind => {
                return Err(WebSocketError::Kind);
            }
            OpCode::Data(kind) => {
                if (kind == Data::Continue) != self.is_fragment {
                    return Err(WebSocketError::Rules(
                        "a message starts inside another, or a continuation has no start",
                    ));
                }
                self.is_fragment = !head.is_final;
                None
            }
            OpCode::Control(_) if !head.is_final || length > CONTROL_BYTES_MAX => {
                return Err(WebSocketError::Rules("a control frame is fragmented or longer than 125 bytes"));
            }
            OpCode::Control(kind) => Some(kind),
        };
        Ok(OpenFrame { left: length, mask, at: 0, control })
    }
}

/// Checks the payload of a close frame (RFC 6455, section 7.4): either it is empty, or it consists of a permitted
/// status and a reason in UTF-8.
fn check_close(payload: &[u8]) -> Result<(), WebSocketError> {
    let Some((status, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(())
        } else {
            Err(WebSocketError::Rules("the close frame's status has one byte instead of two"))
        };
    };
    match u16::from_be_bytes(*status) {
        1_000..=1_003 | 1_007..=1_014 | 3_000..=4_999 => {}
        _ => return Err(WebSocketError::Rules("the close frame has an invalid status")),
    }
    str::from_utf8(reason).map(drop).map_err(|_| WebSocketError::Text)
}

/// Removes the mask from a part of a frame's payload. The first byte of the part is byte `at` of the payload.
fn unmask(bytes: &mut [u8], mask: [u8; 4], at: usize) {
    let mut rotated = mask;
    rotated.rotate_left(at % 4);
    let word = u32::from_ne_bytes(rotated);
    let mut words = bytes.chunks_exact_mut(4);
    for chunk in &mut words {
        let masked = u32::from_ne_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        chunk.copy_from_slice(&(masked ^ word).to_ne_bytes());
    }
    words.into_remainder().iter_mut().zip(rotated).for_each(|(byte, key)| *byte ^= key);
}

/// Appends the header of a frame that the node sends. Such a frame has no mask.
pub(super) fn head_of(kind: OpCode, length: usize, out: &mut Vec<u8>) {
    let head = FrameHeader { is_final: true, opcode: kind, mask: None, ..FrameHeader::default() };
    // Writing to a `Vec` cannot fail.
    let _: Result<(), tungstenite::Error> = head.format(length as u64, out);
}

impl From<WebSocketError> for io::Error {
    fn from(broken: WebSocketError) -> io::Error {
        let text = match broken {
            WebSocketError::Rules(text) => text,
            WebSocketError::Kind => "the message has the wrong type, text or binary",
            WebSocketError::Text => "the text is not UTF-8",
        };
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}

impl WebSocketError {
    pub(super) fn status(self) -> u16 {
        match self {
            WebSocketError::Rules(_) => 1_002,
            WebSocketError::Kind => 1_003,
            WebSocketError::Text => 1_007,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![first];
        match payload.len() {
            len @ ..126 => frame.push(0x80 | len as u8),
            len @ ..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((len as u16).to_be_bytes());
            }
            len => {
                frame.push(0x80 | 127);
                frame.extend((len as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        frame
    }

    /// Decodes the bytes in pieces of `piece` bytes.
    fn decode(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, ControlFrames), WebSocketError> {
        let (mut frames, mut control_frames, mut out) =
            (FrameDecoder::of(Data::Binary), ControlFrames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece.to_vec();
            let decoded = frames.decode(&mut piece, &mut control_frames)?;
            assert!(control_frames.close || decoded.read == piece.len() && !decoded.ends_text);
            out.extend_from_slice(&piece[..decoded.payload]);
        }
        Ok((out, control_frames))
    }

    #[test]
    fn websocket_frames_decode_equally_from_pieces_of_any_size() {
        let long: Vec<u8> = (0..70_000_u32).map(|n| (n * 7) as u8).collect();
        let sent = [
            frame(0x82, b"one", [1, 2, 3, 4]),
            frame(0x02, &long[..300], [9, 0, 255, 7]),
            frame(0x89, b"are you there?", [5, 6, 7, 8]),
            frame(0x00, &[], [0; 4]),
            frame(0x80, &long, [1, 1, 2, 3]),
            frame(0x8a, b"", [1, 1, 2, 3]),
        ]
        .concat();
        let expected = [b"one", &long[..300], &long[..]].concat();
        for piece in [1, 2, 3, 7, 14, 100, 4_096, sent.len()] {
            let (out, control_frames) = decode(&sent, piece).unwrap();
            assert!(out == expected, "in pieces of {piece}");
            assert_eq!(
                control_frames,
                ControlFrames { ping: Some(b"are you there?".to_vec()), close: false }
            );
        }
    }

    #[test]
    fn bytes_after_a_websocket_close_frame_are_not_read() {
        let sent =
            [frame(0x82, b"one", [1, 2, 3, 4]), frame(0x88, &[3, 232], [0; 4]), vec![0xff; 9]].concat();
        let (out, control_frames) = decode(&sent, sent.len()).unwrap();
        assert_eq!((&out[..], control_frames.close), (&b"one"[..], true));
    }

    #[test]
    fn websocket_frames_that_violate_the_protocol_are_refused() {
        let unmasked = vec![0x82, 1, b'a'];
        let reserved = frame(0xc2, b"a", [1; 4]);
        let kind = frame(0x83, b"a", [1; 4]);
        let continuation_without_start = frame(0x80, b"a", [1; 4]);
        let start_within_message = [frame(0x02, b"a", [1; 4]), frame(0x82, b"b", [1; 4])].concat();
        let fragmented_ping = frame(0x09, b"a", [1; 4]);
        let ping_too_long = frame(0x89, &[0; 126], [1; 4]);
        let no_length = [&[0x82, 0xff][..], &[0xff; 8], &[0; 4]].concat();
        let long_length = [&[0x82, 0xfe, 0, 125][..], &[0; 4], &[0; 125]].concat();
        let longer_length = [&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 255, 255][..], &[0; 4], &[0; 9]].concat();
        let long_ping = [&[0x89, 0xfe, 0, 1][..], &[0; 4], &[0; 1]].concat();
        let half_status = frame(0x88, &[3], [1; 4]);
        let no_status = frame(0x88, &1_005_u16.to_be_bytes(), [1; 4]);
        for wrong in [
            unmasked,
            reserved,
            kind,
            continuation_without_start,
            start_within_message,
            fragmented_ping,
            ping_too_long,
            no_length,
            long_length,
            longer_length,
            long_ping,
            half_status,
            no_status,
        ] {
            for piece in [1, wrong.len()] {
                assert!(matches!(decode(&wrong, piece), Err(WebSocketError::Rules(_))), "{wrong:x?}");
            }
        }
        assert_eq!(decode(&frame(0x81, b"text", [1; 4]), 3), Err(WebSocketError::Kind));
        assert_eq!(decode(&frame(0x88, b"\x03\xe8\xff", [1; 4]), 3), Err(WebSocketError::Text));
    }

    #[test]
    fn last_frame_of_a_websocket_text_message_is_recognized() {
        let mut sent = [
            frame(0x01, b"he", [1, 2, 3, 4]),
            frame(0x89, b"", [1, 2, 3, 4]),
            frame(0x80, b"llo", [4, 3, 2, 1]),
            frame(0x81, b"", [1, 2, 3, 4]),
            frame(0x81, b"world", [1, 2, 3, 4]),
        ]
        .concat();
        let (mut frames, mut control_frames) = (FrameDecoder::of(Data::Text), ControlFrames::default());
        let mut rest = &mut sent[..];
        for expected in [&b"hello"[..], b"", b"world"] {
            let DecodedFrames { payload, read, ends_text } =
                frames.decode(rest, &mut control_frames).unwrap();
            assert!(ends_text);
            assert_eq!(&rest[..payload], expected);
            rest = &mut rest[read..];
        }
        assert!(rest.is_empty() && control_frames.ping.is_some());
        assert_eq!(
            frames.decode(&mut frame(0x82, b"x", [1; 4]), &mut control_frames),
            Err(WebSocketError::Kind)
        );
    }
}

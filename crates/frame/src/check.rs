//! Validates frames that come from clients, other nodes or files.

use crate::error::FrameError;
use crate::frame::*;

const KNOWN_FLAGS: u8 = FLAG_EVENT_TIME | FLAG_EXPIRES | FLAG_SUBJECT | FLAG_KEY | FLAG_REPLY | FLAG_HEADERS;

impl<'a> Frame<'a> {
    /// Validates the first frame in `bytes` completely and returns it with the number of bytes it takes.
    ///
    /// `bytes_max` is the largest size that the frame may have, padding included.
    pub fn check(bytes: &'a [u8], bytes_max: usize) -> Result<(Frame<'a>, usize), FrameError> {
        let have = bytes.len();
        let (len, flags, meta_len) = head(bytes).ok_or(FrameError::Truncated { need: HEAD_BYTES, have })?;
        let need = padded(len);
        if need > bytes_max {
            return Err(FrameError::TooLarge { bytes: need, bytes_max });
        }
        if need > have {
            return Err(FrameError::Truncated { need, have });
        }
        if bytes[4] != KIND_RECORD {
            return Err(FrameError::UnknownKind(bytes[4]));
        }
        if flags & !KNOWN_FLAGS != 0 {
            return Err(FrameError::ForbiddenFlags(flags));
        }
        if len < HEAD_BYTES + meta_len || meta_len < META_BYTES_MIN {
            return Err(FrameError::ShortLength { len, head: HEAD_BYTES + meta_len.max(META_BYTES_MIN) });
        }
        if bytes[len..need].iter().any(|&b| b != 0) {
            return Err(FrameError::Padding);
        }
        if flags != 0 || meta_len != META_BYTES_MIN {
            check_meta(&bytes[HEAD_BYTES..HEAD_BYTES + meta_len], flags)?;
        }
        let (meta, payload) = bytes[HEAD_BYTES..len].split_at(meta_len);
        Ok((Frame::from_parts(meta, payload, flags), need))
    }
}

/// Checks that the fields of a record fill the meta exactly, and that text fields are valid UTF-8. The meta is the part
/// of a frame between its first 8 bytes and the payload.
fn check_meta(meta: &[u8], flags: u8) -> Result<(), FrameError> {
    let mut rest = &meta[META_BYTES_MIN..];
    for (flag, name) in [(FLAG_EVENT_TIME, "event time"), (FLAG_EXPIRES, "expires")] {
        if flags & flag != 0 {
            take(&mut rest, 8, name)?;
        }
    }
    for (flag, name) in [(FLAG_SUBJECT, "subject"), (FLAG_KEY, "key"), (FLAG_REPLY, "reply")] {
        if flags & flag != 0 {
            let len = take_u16(&mut rest, name)?;
            let bytes = take(&mut rest, len, name)?;
            if flag != FLAG_KEY && (bytes.is_empty() || std::str::from_utf8(bytes).is_err()) {
                return Err(FrameError::Meta(name));
            }
        }
    }
    if flags & FLAG_HEADERS != 0 {
        let count = take_u16(&mut rest, "headers")?;
        if count == 0 {
            return Err(FrameError::Meta("headers"));
        }
        for _ in 0..count {
            let name_len = take_u16(&mut rest, "headers")?;
            let value_len = take_u16(&mut rest, "headers")?;
            let name = take(&mut rest, name_len, "headers")?;
            take(&mut rest, value_len, "headers")?;
            if name.is_empty() || std::str::from_utf8(name).is_err() {
                return Err(FrameError::Meta("headers"));
            }
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(FrameError::Meta("trailing")) }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize, name: &'static str) -> Result<&'a [u8], FrameError> {
    let (field, after) = rest.split_at_checked(bytes).ok_or(FrameError::Meta(name))?;
    *rest = after;
    Ok(field)
}

fn take_u16(rest: &mut &[u8], name: &'static str) -> Result<usize, FrameError> {
    Ok(read_u16(take(rest, 2, name)?, 0) as usize)
}

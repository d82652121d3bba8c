//! Encodes records as frames.

use crate::error::FrameError;
use crate::frame::*;

/// A record without its payload: key, times, reply subject, headers and the variable part of the subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordMeta<'a> {
    /// Time at which the event happened, ns since the Unix epoch.
    pub event_time_ns: Option<u64>,
    /// Time from which subscribers skip the record as expired, ns since the Unix epoch.
    pub expires_ns: Option<u64>,
    /// The part of the subject after the topic's literal prefix.
    pub subject_tail: &'a str,
    /// The key, which selects the partition. Records with the same key stay in order, also in groups.
    pub key: Option<&'a [u8]>,
    /// The subject to which replies go.
    pub reply: Option<&'a str>,
    /// Names and values of the headers, in order.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// The size and the flags of a frame that is to be encoded, packed into one word. The word has the same layout as the
/// frame's first 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLayout(u64);

impl FrameLayout {
    /// Size of the frame without padding, bytes. The frame's field `len` holds this number.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0 as u32 as usize
    }

    #[inline(always)]
    fn has_fields(&self) -> bool {
        (self.0 >> 40) as u8 != 0
    }

    /// Always `false`, because every frame has a head.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Number of bytes before the payload: the frame's first 8 bytes and its meta.
    #[inline(always)]
    pub fn head_bytes(&self) -> usize {
        HEAD_BYTES + (self.0 >> 48) as usize
    }

    /// Size of the frame with padding, bytes.
    #[inline(always)]
    pub fn padded(&self) -> usize {
        padded(self.len())
    }
}

impl<'a> RecordMeta<'a> {
    /// Computes the size and the flags of the frame that holds these fields and a payload of `payload_bytes` bytes.
    ///
    /// # Errors
    /// [`FrameError::FieldTooLong`] if a field is too long for the layout; [`FrameError::TooLarge`] if the frame is too
    /// long.
    #[inline(always)]
    pub fn measure(&self, payload_bytes: usize) -> Result<FrameLayout, FrameError> {
        let (flags, meta_len) = if self.is_plain() { (0, META_BYTES_MIN) } else { self.measure_fields()? };
        let len = HEAD_BYTES + meta_len + payload_bytes;
        // Leaves room for the padding, because the padded size must also fit a `u32`.
        if len > (u32::MAX as usize) - FRAME_ALIGN {
            return Err(FrameError::TooLarge { bytes: len, bytes_max: u32::MAX as usize - FRAME_ALIGN });
        }
        let (len, kind, flags) = (len as u64, KIND_RECORD as u64, flags as u64);
        Ok(FrameLayout(len | kind << 32 | flags << 40 | (meta_len as u64) << 48))
    }

    /// Writes the whole frame, padding included, to the start of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than `encoded.padded()`, or if `encoded` was computed for another payload length.
    #[inline(always)]
    pub fn encode(&self, encoded: FrameLayout, append_time_ns: u64, payload: &[u8], out: &mut [u8]) {
        let out = &mut out[..encoded.padded()];
        let tail = out.len() - FRAME_ALIGN;
        out[tail..].fill(0);
        self.encode_head(encoded, append_time_ns, 0, out);
        out[encoded.head_bytes()..encoded.len()].copy_from_slice(payload);
    }

    /// Writes only the part of the frame before the payload to the start of `out`. Sets `more_flags` in addition to the
    /// flags of `encoded`.
    ///
    /// # Panics
    /// If `out` is shorter than `encoded.head_bytes()`.
    #[inline(always)]
    pub fn encode_head(&self, encoded: FrameLayout, append_time_ns: u64, more_flags: u8, out: &mut [u8]) {
        let word = encoded.0 | (more_flags as u64) << 40;
        out[..8].copy_from_slice(&word.to_le_bytes());
        out[8..16].copy_from_slice(&append_time_ns.to_le_bytes());
        if encoded.has_fields() {
            self.encode_fields(&mut out[16..encoded.head_bytes()]);
        }
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.subject_tail.is_empty()
            && self.key.is_none()
            && self.event_time_ns.is_none()
            && self.headers.is_empty()
            && self.reply.is_none()
            && self.expires_ns.is_none()
    }

    fn measure_fields(&self) -> Result<(u8, usize), FrameError> {
        let mut flags = 0;
        let mut bytes = META_BYTES_MIN;
        let mut add = |present: bool, flag: u8, size: usize| {
            if present {
                flags |= flag;
                bytes += size;
            }
        };
        add(self.event_time_ns.is_some(), FLAG_EVENT_TIME, 8);
        add(self.expires_ns.is_some(), FLAG_EXPIRES, 8);
        add(!self.subject_tail.is_empty(), FLAG_SUBJECT, 2 + self.subject_tail.len());
        add(self.key.is_some(), FLAG_KEY, 2 + self.key.map_or(0, <[u8]>::len));
        add(self.reply.is_some(), FLAG_REPLY, 2 + self.reply.map_or(0, str::len));
        let headers: usize = self.headers.iter().map(|(n, v)| 4 + n.len() + v.len()).sum();
        add(!self.headers.is_empty(), FLAG_HEADERS, 2 + headers);
        if bytes > u16::MAX as usize {
            return Err(FrameError::FieldTooLong { field: "meta", bytes, bytes_max: u16::MAX as usize });
        }
        Ok((flags, bytes))
    }

    fn encode_fields(&self, out: &mut [u8]) {
        let mut rest = out;
        for time in [self.event_time_ns, self.expires_ns].into_iter().flatten() {
            put(&mut rest, &time.to_le_bytes());
        }
        let subject = (!self.subject_tail.is_empty()).then_some(self.subject_tail.as_bytes());
        for field in [subject, self.key, self.reply.map(str::as_bytes)].into_iter().flatten() {
            put(&mut rest, &(field.len() as u16).to_le_bytes());
            put(&mut rest, field);
        }
        if !self.headers.is_empty() {
            put(&mut rest, &(self.headers.len() as u16).to_le_bytes());
        }
        for (name, value) in self.headers {
            put(&mut rest, &(name.len() as u16).to_le_bytes());
            put(&mut rest, &(value.len() as u16).to_le_bytes());
            put(&mut rest, name.as_bytes());
            put(&mut rest, value);
        }
    }
}

fn put(rest: &mut &mut [u8], bytes: &[u8]) {
    let (field, after) = std::mem::take(rest).split_at_mut(bytes.len());
    field.copy_from_slice(bytes);
    *rest = after;
}

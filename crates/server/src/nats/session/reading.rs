//! Reads operations from the socket.
//!
//! Operations are parsed in a read buffer that the thread's sessions share. A session copies only the bytes of an
//! incomplete operation. If an operation is larger than the read buffer, the session collects it in a buffer of its
//! own. Copied bytes are charged to the login share before the login, and to the client's tenant after it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::wire::DecodeOutcome;
use dunlin::wire::nats::{self, NatsDecoderLimits};

use super::access::VIOLATION;
use super::publish::{PublishedBatch, RetryFrom, cleared};
use super::{CONTROL_BYTES_MAX, Phase, Session};
use crate::charging::UNCHARGED_UNREAD_BYTES_MAX;
use crate::session::scratch::{READ_BYTES, Scratch};
use crate::session::turn::WORK_PER_TURN;
use crate::session::{ConnectionLost, RoundProgress};
use crate::shared::SharedServer;

/// The session never asks for fewer bytes than this in a read.
const READ_BYTES_MIN: usize = 16 << 10;

/// After this many consecutive small reads without a complete operation, reading from the client pauses.
const TRICKLES_MAX: u32 = 8;
const TRICKLE_BYTES: usize = 512;

/// The reason that operators see when an incomplete operation has no room in the memory budget.
const MEMORY_SPENT: &str = "the memory budget of the node or of the client's tenant is used up";

/// A payload must be smaller than the largest record by this number of bytes, because a record also contains headers
/// and a subject.
const META_BYTES_MAX: u32 = 64 << 10;

/// The limits on the size of operations that clients send.
pub(super) fn limits(shared: &SharedServer) -> NatsDecoderLimits {
    let payload_bytes_max = shared.node.config().topic.record_bytes_max.saturating_sub(META_BYTES_MAX);
    NatsDecoderLimits {
        line_bytes_max: NatsDecoderLimits::LINE_BYTES_MAX,
        payload_bytes_max: payload_bytes_max as usize,
    }
}

impl Session {
    /// Reads once from the socket, and handles the operations that have arrived.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<RoundProgress, ConnectionLost> {
        if self.is_login_pending() {
            let unread = std::mem::take(&mut self.unread);
            self.handle_all(&unread, &mut scratch.nats.batch);
            return Ok(if self.is_login_pending() { RoundProgress::None } else { RoundProgress::Some });
        }
        if self.has_unfinished() && !self.is_closing() {
            return Ok(RoundProgress::None);
        }
        if self.repeats.has_pending() {
            self.repeat_operations(&mut scratch.nats.batch);
            return Ok(RoundProgress::Some);
        }
        if self.repeats.waits_for_outcomes() {
            return Ok(RoundProgress::None);
        }
        if let Some(opened) = self.waits_for_opening {
            if self.opened == opened && !self.opening.is_empty() {
                return Ok(RoundProgress::None);
            }
            self.waits_for_opening = None;
            let unread = std::mem::take(&mut self.unread);
            self.handle_all(&unread, &mut scratch.nats.batch);
            return Ok(RoundProgress::Some);
        }
        if let Some(target_search) = &mut self.target_search {
            let limits = limits(&self.shared);
            let polled = target_search.poll(cx, &self.node, &self.unread, &limits);
            let Poll::Ready(owner) = polled else { return Ok(RoundProgress::None) };
            if let Some(target_search) = self.target_search.take() {
                self.targets.store_result(target_search, owner);
            }
            let unread = std::mem::take(&mut self.unread);
            self.handle_all(&unread, &mut scratch.nats.batch);
            return Ok(RoundProgress::Some);
        }
        if self.subscriber_queries.is_waiting() {
            if self.subscriber_queries.poll(cx).is_pending() {
                return Ok(RoundProgress::None);
            }
            let unread = std::mem::take(&mut self.unread);
            self.handle_all(&unread, &mut scratch.nats.batch);
            return Ok(RoundProgress::Some);
        }
        if let Some(awaited_topics) = &mut self.awaited_topics {
            let Poll::Ready(known) = Pin::new(awaited_topics).poll(cx) else {
                return Ok(RoundProgress::None);
            };
            self.awaited_topics = None;
            match known {
                Ok(()) => {
                    let unread = std::mem::take(&mut self.unread);
                    self.handle_all(&unread, &mut scratch.nats.batch);
                }
                // The client is disconnected instead of refused: client libraries subscribe again after they have
                // reconnected, but not after a refusal.
                Err(why) => self.disconnect(&why.to_string()),
            }
            return Ok(RoundProgress::Some);
        }
        if let Some(blocked) = &mut self.blocked {
            if !blocked.take_retry() {
                return Ok(RoundProgress::None);
            }
            let unread = std::mem::take(&mut self.unread);
            self.handle_all(&unread, &mut scratch.nats.batch);
            return Ok(RoundProgress::Some);
        }
        let is_behind = self.outbound.control.len() > CONTROL_BYTES_MAX || !self.refusals.is_empty();
        if self.reading_is_paused || is_behind || self.pongs.is_full() {
            return Ok(RoundProgress::None);
        }
        if self.has_unhandled && !self.is_closing() {
            let unread = std::mem::take(&mut self.unread);
            self.handle_all(&unread, &mut scratch.nats.batch);
            return Ok(RoundProgress::Some);
        }
        if !self.spin.is_on() {
            match self.stream.poll_readable(cx) {
                Poll::Pending => return Ok(RoundProgress::None),
                Poll::Ready(ready) => ready.map_err(|_| ConnectionLost)?,
            }
        }
        let read = if self.unread_needs > READ_BYTES {
            self.read_large(scratch)
        } else {
            self.read_buffered(scratch)
        };
        match read {
            Ok(0) => self.on_client_eof(),
            Ok(bytes) => {
                self.count_trickle(bytes);
                Ok(RoundProgress::Some)
            }
            // The socket has no more bytes. The next round waits until the socket is readable.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.spin.is_on() => {
                Ok(RoundProgress::Some)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(RoundProgress::None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(RoundProgress::Some),
            Err(_) => Err(ConnectionLost),
        }
    }

    /// Counts reads of a few bytes. After several of them, pauses reading, so that the socket collects more bytes: each
    /// read delays the other sessions.
    fn count_trickle(&mut self, bytes: usize) {
        let is_trickle = self.operations == 0 && bytes < TRICKLE_BYTES && matches!(self.phase, Phase::Open);
        self.trickles = if is_trickle { self.trickles + 1 } else { 0 };
        if self.trickles >= TRICKLES_MAX && self.blocked.is_none() && !self.is_waiting() {
            self.pause_reading();
        }
    }

    pub(super) fn limits(&self) -> NatsDecoderLimits {
        limits(&self.shared)
    }

    fn read_buffered(&mut self, scratch: &mut Scratch) -> io::Result<usize> {
        let before = self.unread.len();
        scratch.read[..before].copy_from_slice(&self.unread);
        let until = READ_BYTES.min(before + self.read_bytes.max(self.unread_needs));
        let read = self.read_into(&mut scratch.read[before..until])?;
        if read > 0 {
            self.unread = Vec::new();
            self.handle_all(&scratch.read[..before + read], &mut scratch.nats.batch);
        }
        Ok(read)
    }

    fn read_into(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.spin.is_on() { self.stream.read_now(room) } else { self.stream.read(room) }
    }

    /// Reads more bytes of a large operation. The buffer grows with the bytes that arrive, not to the length that the
    /// client announced.
    fn read_large(&mut self, scratch: &mut Scratch) -> io::Result<usize> {
        let before = self.unread.len();
        let more = before.max(READ_BYTES).min(self.unread_needs - before);
        if self.unread_charge.grow_to(before + more).is_err() {
            self.disconnect(MEMORY_SPENT);
            return Ok(more);
        }
        self.unread.resize(before + more, 0);
        let mut unread = std::mem::take(&mut self.unread);
        let read = self.read_into(&mut unread[before..]);
        unread.truncate(before + *read.as_ref().unwrap_or(&0));
        if unread.len() == self.unread_needs {
            self.handle_all(&unread, &mut scratch.nats.batch);
        } else {
            self.operations = 0;
            self.unread = unread;
        }
        read
    }

    /// Handles as many complete operations as fit in one turn, and keeps the remaining bytes.
    pub(super) fn handle_all(&mut self, bytes: &[u8], memory: &mut PublishedBatch<'static>) {
        let mut batch = cleared(std::mem::take(memory));
        let (at, operations) = self.handle_each(bytes, &mut batch);
        self.repeats.on_handled(at);
        *memory = cleared(batch);
        self.read_bytes = (at / operations.max(1) * WORK_PER_TURN).clamp(READ_BYTES_MIN, READ_BYTES);
        self.is_large_read = self.has_unhandled || operations > WORK_PER_TURN / 2;
        self.operations = operations;
        if !self.is_closing() {
            self.unread = bytes[at..].to_vec();
            self.track_unread(at > 0);
            // While a publish waits, reading is stopped anyway, and the publish needs the timer that would end the
            // pause.
            if let Some(pause_ms) = self.pressure.take_pause_ms()
                && self.blocked.is_none()
                && !self.is_waiting()
            {
                self.pause_reading_for(pause_ms);
            }
            self.charge_unread();
        }
    }

    /// Charges the bytes in `unread`, unless they are few. If the share of the memory budget to which they are charged
    /// has no room, and an operation or the login is incomplete, disconnects the client. A client with complete
    /// operations that wait is not disconnected.
    fn charge_unread(&mut self) {
        if self.unread.len() <= UNCHARGED_UNREAD_BYTES_MAX {
            return self.unread_charge.release();
        }
        let is_spent = self.unread_charge.grow_share_to(self.unread.len()).is_err();
        let is_incomplete = self.unread_needs > 0 && self.blocked.is_none() && !self.is_waiting();
        if is_spent && (is_incomplete || self.is_login_pending()) {
            self.disconnect(MEMORY_SPENT);
        }
    }

    /// Handles as many complete operations as fit in one turn. Returns the number of handled bytes, and of operations.
    fn handle_each<'b>(&mut self, bytes: &'b [u8], batch: &mut PublishedBatch<'b>) -> (usize, usize) {
        let limits = self.limits();
        let (mut at, mut operations) = (0, 0);
        self.unread_needs = 0;
        self.has_unhandled = false;
        while !self.is_closing() {
            if (self.commands.is_spent() || self.has_unfinished()) && at < bytes.len() {
                self.has_unhandled = true;
                break;
            }
            match nats::next(&bytes[at..], &limits) {
                Ok(DecodeOutcome::Message(operation, taken)) => {
                    let offset = at;
                    at += taken;
                    operations += 1;
                    if let Err(RetryFrom { from }) = self.handle(operation, offset, batch) {
                        return (from, operations);
                    }
                }
                // A client that is not logged in may not send large payloads.
                Ok(DecodeOutcome::Need(needs))
                    if needs > UNCHARGED_UNREAD_BYTES_MAX && !self.is_logged_in() =>
                {
                    self.fail(VIOLATION);
                }
                Ok(DecodeOutcome::Need(needs)) => {
                    self.unread_needs = needs;
                    break;
                }
                Err(violation) => {
                    // The operations before the invalid one are valid, so their records are appended.
                    let _ = self.publish_batch(batch);
                    self.fail(&violation.to_string());
                }
            }
        }
        match self.publish_batch(batch) {
            Ok(()) => (at, operations),
            Err(RetryFrom { from }) => (from, operations),
        }
    }

    /// Handles the end of the client's stream. The client has closed its side, and expects no more data.
    fn on_client_eof(&mut self) -> Result<RoundProgress, ConnectionLost> {
        match &mut self.phase {
            Phase::Closing(closing) => {
                closing.is_over = self.outbound.is_empty() && self.refusals.is_empty();
                if closing.is_over { Ok(RoundProgress::None) } else { Err(ConnectionLost) }
            }
            _ => Err(ConnectionLost),
        }
    }
}

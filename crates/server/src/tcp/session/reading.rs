//! Reads messages from the socket.
//!
//! Messages are decoded in the thread's read buffer. The session copies only an incomplete message; a message larger
//! than the buffer is collected in the session's own memory. The copied bytes are charged to the login share before the
//! login, and to the client's tenant afterwards.

use std::io;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use dunlin::Refused;
use dunlin::wire::{DecodeOutcome, FromClient, PREAMBLE_BYTES, RUN_HEAD_BYTES};

use super::handle::work_of;
use super::outbound::protocol;
use super::preparation::PreparationStatus;
use super::scratch::{READ_BYTES, Scratch};
use super::{CONTROL_BYTES_MAX, ConnectionLost, Phase, RoundProgress, Session};
use crate::charging::UNCHARGED_UNREAD_BYTES_MAX;

/// Maximum number of bytes of one read while a batch waits for room. They contain about as many messages as one turn
/// handles.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// The result of an attempt to handle a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandleOutcome {
    Handled,
    /// The message cannot be handled yet, or not in this turn. It stays in `unread`, and is handled again later.
    Blocked,
}

impl Session {
    /// Reads once from the socket, and handles the messages that have arrived.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<RoundProgress, ConnectionLost> {
        if self.is_login_pending() {
            self.handle_unread();
            return Ok(if self.is_login_pending() { RoundProgress::None } else { RoundProgress::Some });
        }
        match self.poll_preparation(cx) {
            PreparationStatus::None => {}
            PreparationStatus::Pending => return Ok(RoundProgress::None),
            PreparationStatus::Done => {
                self.handle_unread();
                return Ok(RoundProgress::Some);
            }
        }
        if self.publishing.take_retry() {
            self.handle_unread();
            return Ok(RoundProgress::Some);
        }
        if self.publishing.is_held {
            return Ok(RoundProgress::None);
        }
        if self.outbound.control.len() > CONTROL_BYTES_MAX || self.is_blocked() && !self.may_read_ahead() {
            return Ok(RoundProgress::None);
        }
        if self.has_unhandled && !self.is_closing() {
            self.handle_unread();
            return Ok(RoundProgress::Some);
        }
        if !self.spin.is_on() {
            match self.stream.poll_readable(cx) {
                Poll::Pending => return Ok(RoundProgress::None),
                Poll::Ready(ready) => ready.map_err(|_| ConnectionLost)?,
            }
        }
        let read = if self.skip_bytes > 0 {
            self.skip(scratch)
        } else if self.unread_needs > READ_BYTES {
            self.read_large()
        } else {
            self.read_buffered(scratch)
        };
        match read {
            Ok(0) => self.on_client_eof(),
            Ok(_) => Ok(RoundProgress::Some),
            // The socket is empty. The next round polls it for readiness, so that the session is woken when bytes
            // arrive.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.spin.is_on() => {
                Ok(RoundProgress::Some)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(RoundProgress::None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(RoundProgress::Some),
            Err(_) => Err(ConnectionLost),
        }
    }

    /// Whether the session reads although a batch waits for room. If the client has a registered subscription, its
    /// credit messages may make room. Reading ahead ends at `in_flight_bytes_max` unread bytes.
    fn may_read_ahead(&self) -> bool {
        self.unread.len() < self.shared.limits.in_flight_bytes_max as usize
            && self.subscriptions.values().any(|subscription| subscription.options.registered)
    }

    /// Reads while a batch waits for room. Only credit messages take effect now; all messages are handled later in
    /// order.
    fn read_ahead(&mut self, scratch: &mut Scratch) -> io::Result<usize> {
        let read = self.stream.read(&mut scratch.read[..READ_AHEAD_BYTES])?;
        self.unread.extend_from_slice(&scratch.read[..read]);
        self.charge_unread();
        self.apply_early_credit();
        Ok(read)
    }

    fn apply_early_credit(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        while let Ok(DecodeOutcome::Message(message, taken)) =
            self.decoder.next_from_client(&unread[self.scanned_bytes..])
        {
            // The credit message is handled a second time later. The repetition does no harm, because the message
            // states the total credit.
            self.commands.add(work_of(&message));
            if let FromClient::Credit(credit) = message {
                self.credit(&credit);
            }
            self.scanned_bytes += taken;
        }
        self.unread = unread;
    }

    fn read_buffered(&mut self, scratch: &mut Scratch) -> io::Result<usize> {
        if self.is_blocked() {
            return self.read_ahead(scratch);
        }
        let before = self.unread.len();
        scratch.read[..before].copy_from_slice(&self.unread);
        let room = &mut scratch.read[before..];
        let read = if self.spin.is_on() { self.stream.read_now(room) } else { self.stream.read(room) }?;
        if read > 0 {
            self.unread = BytesMut::new();
            let bytes = &scratch.read[..before + read];
            let taken = self.handle_messages(bytes);
            self.end_handling(BytesMut::from(&bytes[taken..]));
        }
        Ok(read)
    }

    /// Reads and discards the rest of a message that was refused before it had arrived completely.
    fn skip(&mut self, scratch: &mut Scratch) -> io::Result<usize> {
        let room = &mut scratch.read[..self.skip_bytes.min(READ_BYTES)];
        let read = if self.spin.is_on() { self.stream.read_now(room) } else { self.stream.read(room) }?;
        self.skip_bytes -= read;
        Ok(read)
    }

    /// Reads more of a message that is larger than the read buffer. The memory grows with the bytes that arrive, not
    /// with the announced size. If the memory budget has no room, the batch is refused, and the session continues after
    /// this message.
    fn read_large(&mut self) -> io::Result<usize> {
        let before = self.unread.len();
        // The first read must contain enough bytes to identify the publisher, in case the message is refused.
        let step = if before < RUN_HEAD_BYTES { RUN_HEAD_BYTES } else { before.max(READ_BYTES) };
        let more = step.min(self.unread_needs - before);
        if before >= RUN_HEAD_BYTES
            && let Err(spent) = self.unread_charge.grow_to(before + more)
        {
            self.refuse_unread(&Refused::from(spent));
            return Ok(more);
        }
        self.unread.resize(before + more, 0);
        let room = &mut self.unread[before..];
        let read = if self.spin.is_on() { self.stream.read_now(room) } else { self.stream.read(room) };
        self.unread.truncate(before + *read.as_ref().unwrap_or(&0));
        if self.unread.len() == self.unread_needs {
            self.handle_unread();
        }
        read
    }

    fn refuse_unread(&mut self, refused: &Refused) {
        let unread = std::mem::take(&mut self.unread);
        self.unread_charge.release();
        if self.refuse_unfinished(&unread, refused) {
            self.skip_bytes = std::mem::take(&mut self.unread_needs) - unread.len();
        } else {
            self.fail(refused);
        }
    }

    /// Handles the messages in `unread` that are complete, as many as this turn allows.
    fn handle_unread(&mut self) {
        let mut unread = std::mem::take(&mut self.unread);
        let taken = self.handle_messages(&unread);
        unread.advance(taken);
        // The rest may wait for a long time, so it does not keep the memory of the handled messages. A small rest is not
        // charged, so it never keeps that memory.
        if !self.has_unhandled || unread.len() <= UNCHARGED_UNREAD_BYTES_MAX {
            unread = BytesMut::from(&unread[..]);
        }
        self.end_handling(unread);
    }

    /// Handles the messages that are complete, as many as this turn allows. Returns the number of their bytes.
    fn handle_messages(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        (self.unread_needs, self.scanned_bytes, self.has_unhandled) = (0, 0, false);
        while !self.is_closing() {
            match self.handle_first(&bytes[at..]) {
                DecodeOutcome::Message(HandleOutcome::Handled, taken) => at += taken,
                DecodeOutcome::Message(HandleOutcome::Blocked, _) => break,
                DecodeOutcome::Need(needs) => {
                    self.unread_needs = needs;
                    break;
                }
            }
        }
        at
    }

    /// Responds to the handled messages, and keeps the bytes that follow them.
    fn end_handling(&mut self, unread: BytesMut) {
        self.acknowledge();
        self.propose_control_requests();
        self.propose_task_requests();
        if !self.is_closing() {
            self.unread = unread;
            self.charge_unread();
        }
        if self.is_blocked() && self.may_read_ahead() {
            self.apply_early_credit();
        }
    }

    /// Charges the bytes in `unread`, unless there are only a few. If the memory budget has no room, refuses an
    /// incomplete message, or a login that is still being checked. In all other cases, keeps the bytes.
    fn charge_unread(&mut self) {
        if self.unread.len() <= UNCHARGED_UNREAD_BYTES_MAX {
            return self.unread_charge.release();
        }
        if let Err(spent) = self.unread_charge.grow_share_to(self.unread.len())
            && (self.unread_needs > 0 || self.is_login_pending())
        {
            self.refuse_unread(&Refused::from(spent));
        }
    }

    fn handle_first(&mut self, bytes: &[u8]) -> DecodeOutcome<HandleOutcome> {
        if let Phase::Preamble = self.phase {
            return self.take_preamble(bytes);
        }
        match self.decoder.next_from_client(bytes) {
            Ok(DecodeOutcome::Message(message, taken)) => DecodeOutcome::Message(self.handle(message), taken),
            // Messages with records may be large. Before HELLO, the session does not collect such a message.
            Ok(DecodeOutcome::Need(needs))
                if matches!(self.phase, Phase::Hello)
                    && needs > self.shared.limits.control_bytes_max as usize =>
            {
                self.fail(&protocol("expected HELLO, received a message with records"));
                DecodeOutcome::Need(PREAMBLE_BYTES)
            }
            Ok(DecodeOutcome::Need(needs)) => DecodeOutcome::Need(needs),
            Err(error) => {
                self.fail(&protocol(error.to_string()));
                DecodeOutcome::Need(PREAMBLE_BYTES)
            }
        }
    }

    /// Ends the session, because the client has closed its side. All complete messages from the client were handled. To
    /// receive outstanding responses, a client must send LEAVE instead of closing.
    fn on_client_eof(&mut self) -> Result<RoundProgress, ConnectionLost> {
        match &mut self.phase {
            Phase::Closing(closing) => {
                closing.is_over = self.outbound.is_empty();
                if closing.is_over { Ok(RoundProgress::None) } else { Err(ConnectionLost) }
            }
            _ => Err(ConnectionLost),
        }
    }
}

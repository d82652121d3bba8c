//! Sends one `-ERR` for each refused record, like nats-server, even if many records are refused together.
//!
//! Limit: errors are written until the output has `CONTROL_BYTES_MAX` bytes. Of further refusals, the session keeps the
//! text and the number of records, and stops reading until these refusals are sent. Refusals by topics' owners at other
//! nodes are sent last.

use std::collections::VecDeque;

use dunlin::wire::nats;

use super::{CONTROL_BYTES_MAX, Session};

/// The refusals that a session still has to send, in order.
#[derive(Debug, Default)]
pub(super) struct PendingRefusals(VecDeque<RepeatedRefusal>);

#[derive(Debug)]
struct RepeatedRefusal {
    text: String,
    /// Number of refused records whose `-ERR` was not sent yet; at least 1.
    records: usize,
}

impl PendingRefusals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, text: String, records: usize) {
        match self.0.back_mut() {
            Some(last) if last.text == text => last.records += records,
            _ => self.0.push_back(RepeatedRefusal { text, records }),
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        while out.len() <= CONTROL_BYTES_MAX
            && let Some(first) = self.0.front_mut()
        {
            nats::put_error(out, &first.text);
            first.records -= 1;
            if first.records == 0 {
                self.0.pop_front();
            }
        }
    }
}

impl Session {
    /// Sends an error with this text for each of `records` refused records.
    pub(super) fn refuse_each(&mut self, text: String, records: usize) {
        self.refusals.add(text, records);
        self.refusals.write(&mut self.outbound.control);
    }

    /// Sends the refusals for which the output had no room before.
    pub(super) fn send_pending_refusals(&mut self) {
        if !self.refusals.is_empty() {
            self.refusals.write(&mut self.outbound.control);
            self.handle_owner_responses();
        }
    }
}

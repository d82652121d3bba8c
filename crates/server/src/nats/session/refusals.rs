//! Refused records: one `-ERR` for each record, as from nats-server, even if many are refused together.
//!
//! Limit: `CONTROL_BYTES_MAX` of text at once. Further refusals wait as a text and its count. The session then stops
//! reading, and reports no owners' refusals.

use std::collections::VecDeque;

use dunlin::wire::nats;

use super::{CONTROL_BYTES_MAX, Session};

/// The refusals to send, in order.
#[derive(Debug, Default)]
pub(super) struct PendingRefusals(VecDeque<RepeatedRefusal>);

#[derive(Debug)]
struct RepeatedRefusal {
    text: String,
    /// Number of refused records whose `-ERR` is not sent yet; at least one.
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
            nats::refuse(out, &first.text);
            first.records -= 1;
            if first.records == 0 {
                self.0.pop_front();
            }
        }
    }
}

impl Session {
    /// Refuses `records` records, at least one, with a text for each.
    pub(super) fn refuse_each(&mut self, text: String, records: usize) {
        self.refusals.add(text, records);
        self.refusals.write(&mut self.outbound.control);
    }

    /// Continues with refusals that had no room before.
    pub(super) fn go_on_refusing(&mut self) {
        if !self.refusals.is_empty() {
            self.refusals.write(&mut self.outbound.control);
            self.report_owner_refusals();
        }
    }
}

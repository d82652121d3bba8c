//! Parting: what was said before is still sent, and read by the client.

use dunlin::wire::nats;

use super::{Phase, Session};
use crate::session::Gone;

/// How long a client has to take what it was sent, ms.
const FAREWELL_MS: u32 = 1_000;

/// Why such a client was cut off, for operators.
const SLOW_CONSUMER: &str = "Slow Consumer";

#[derive(Debug, Default)]
pub(super) struct Closing {
    /// The direction to the client was ended.
    ended_writing: bool,
    /// The time is up, or the client is gone.
    pub(super) is_over: bool,
}

impl Session {
    /// Tells the client what is wrong, and parts.
    pub(super) fn fail(&mut self, text: &str) {
        if !self.is_closing() {
            match self.phase {
                Phase::Open => self.visit.cut_off(text, self.behind()),
                _ => self.visit.turned_away(text),
            }
            nats::refuse(&mut self.outbound.control, text);
            self.part();
        }
    }

    /// Closes the connection of a client that lost records because it read too slowly, as nats-server does.
    pub(super) fn close_slow_consumer(&mut self) {
        self.cut_off(SLOW_CONSUMER);
    }

    /// Closes the connection of a client that has broken no rule. It is sent no `-ERR`, on which client libraries would close
    /// for good: they connect again. Operators see why.
    pub(super) fn cut_off(&mut self, why: &str) {
        if !self.is_closing() {
            self.visit.cut_off(why, self.behind());
            self.part();
        }
    }

    /// Records that lie ahead of what the client reads, in the log where they are most.
    fn behind(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.behind()).max().unwrap_or(0)
    }

    /// No more is read for its meaning, no more records are sent; what waits to be sent still is. A client that is told
    /// no error takes it for a reason to connect again.
    pub(super) fn part(&mut self) {
        if self.is_closing() {
            return;
        }
        if self.shared.is_stopping() {
            self.visit.ends_with_the_node();
            // It says that the node ends; a client that has just come heard it in its first INFO.
            self.say_info_again();
        }
        self.phase = Phase::Closing(Closing::default());
        self.line.clear();
        self.leave_groups();
        self.blocked = None;
        self.unread = Vec::new();
        self.timer.set_ms(FAREWELL_MS);
    }

    /// Whether the connection may be dropped. Before it is, the client's end is awaited: to close a socket
    /// with unread bytes in it would destroy what is on its way to the client.
    pub(super) fn may_close(&mut self) -> Result<bool, Gone> {
        let Phase::Closing(closing) = &mut self.phase else { return Ok(false) };
        let all_is_said = self.outbound.is_empty() && self.refusals.is_empty();
        if all_is_said && self.stream.is_flushed() && !closing.ended_writing {
            closing.ended_writing = true;
            self.stream.end_writing().map_err(|_| Gone)?;
        }
        Ok(closing.is_over)
    }
}

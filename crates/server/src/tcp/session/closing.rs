//! Parting: what was said before is still sent, and read by the client.
//!
//! Invariant: GOODBYE comes behind the answers to all commands and questions that were taken, and what comes after it has begun to part
//! is not taken. A client that reads GOODBYE knows that the rest was not done.

use dunlin::Refused;
use dunlin::wire::{ALL_ANSWERED, ErrorCode, FromNode, Goodbye, Heartbeat, List, Preamble};

use crate::departures::in_words;
use crate::tcp::session::access::Entrance;
use crate::tcp::session::{Gone, Phase, Session};

/// How long a client has to take what it was sent, ms.
const FAREWELL_MS: u32 = 1_000;
/// How long a session waits for answers that it owes, ms: no command takes longer.
const ANSWERS_MS_MAX: u32 = 7_000;
/// When clients are to come back after the node stopped, ms.
const RECONNECT_AFTER_MS: u32 = 100;

#[derive(Debug, Default)]
pub(super) struct Closing {
    /// GOODBYE is said when all that was taken is answered.
    owes_goodbye: bool,
    /// How long it has waited for answers, ms.
    waited_ms: u32,
    /// The direction to the client was ended.
    ended_writing: bool,
    /// The time is up, or the client is gone.
    pub(super) is_over: bool,
}

impl Session {
    /// Tells the client that it broke the protocol, and parts.
    pub(super) fn fail(&mut self, refused: &Refused) {
        let message = match self.phase {
            Phase::Preamble | Phase::Hello => FromNode::Refused(refused.as_wire()),
            Phase::Open => FromNode::Error(refused.as_wire()),
            Phase::Closing(_) => return,
        };
        match self.phase {
            Phase::Open => self.visit.cut_off(&in_words(refused), self.behind()),
            _ => self.visit.turned_away(&in_words(refused)),
        }
        self.outbound.say(message);
        self.part();
    }

    /// Records that lie ahead of what the client reads, in the log where they are most.
    fn behind(&self) -> u64 {
        self.channels.values().map(|channel| channel.cursor.behind()).max().unwrap_or(0)
    }

    /// Whether the node ends. Other nodes stay until its clients are gone, and get what those published last.
    pub(super) fn is_to_end(&self) -> bool {
        match self.entrance {
            Entrance::Node => self.shared.is_stopping_nodes(),
            _ => self.shared.is_stopping(),
        }
    }

    pub(super) fn say_good_bye(&mut self) {
        self.visit.ends_with_the_node();
        let is_open = matches!(self.phase, Phase::Open);
        self.part();
        if let Phase::Closing(closing) = &mut self.phase {
            closing.owes_goodbye |= is_open;
        }
        self.pay_goodbye();
        if matches!(&self.phase, Phase::Closing(closing) if closing.owes_goodbye) {
            self.farewell_is_over();
        }
    }

    fn pay_goodbye(&mut self) {
        let is_answered = self.asking.is_answered() && self.tasking.is_answered();
        let Phase::Closing(closing) = &mut self.phase else { return };
        if is_answered && std::mem::take(&mut closing.owes_goodbye) {
            let numbers = [ALL_ANSWERED, 0, 0];
            let reason = Refused { numbers, ..Refused::new(ErrorCode::ShuttingDown, "") };
            let (reconnect_after_ms, reason) = (RECONNECT_AFTER_MS, reason.as_wire());
            self.outbound.say(FromNode::Goodbye(Goodbye { reconnect_after_ms, reason }));
            self.alive.set_ms(FAREWELL_MS);
        }
    }

    /// A client that is owed answers is not left without them: it would not know what became of its commands.
    pub(super) fn farewell_is_over(&mut self) {
        let Phase::Closing(closing) = &mut self.phase else { return };
        closing.is_over = !closing.owes_goodbye || closing.waited_ms >= ANSWERS_MS_MAX;
        if !closing.is_over {
            let wait_ms = self.shared.limits.heartbeat_ms.clamp(1, FAREWELL_MS);
            closing.waited_ms += wait_ms;
            self.alive.set_ms(wait_ms);
            // Else the client takes the node for dead meanwhile.
            self.outbound.say(FromNode::Heartbeat(Heartbeat { channels: List::new(&[]) }));
        }
    }

    /// There is no place for the client.
    pub(super) fn turn_away(&mut self) {
        self.say_preamble(Preamble::OURS);
        self.fail(&self.shared.no_place());
    }

    /// No more is read for its meaning, no more records are sent; what waits to be sent still is.
    pub(super) fn part(&mut self) {
        if self.is_closing() {
            return;
        }
        self.phase = Phase::Closing(Closing::default());
        self.line.clear();
        self.leave_groups();
        self.unread = Vec::new();
        self.alive.set_ms(FAREWELL_MS);
    }

    /// Whether the connection may be dropped. Before it is, the client's end is awaited: to close a socket
    /// with unread bytes in it would destroy what is on its way to the client.
    pub(super) fn may_close(&mut self) -> Result<bool, Gone> {
        self.pay_goodbye();
        let Phase::Closing(closing) = &mut self.phase else { return Ok(false) };
        if self.outbound.is_empty()
            && self.stream.is_flushed()
            && self.unstored.is_empty()
            && self.asking.is_answered()
            && self.tasking.is_answered()
            && !closing.owes_goodbye
            && !closing.ended_writing
        {
            closing.ended_writing = true;
            self.stream.end_writing().map_err(|_| Gone)?;
        }
        Ok(closing.is_over)
    }
}

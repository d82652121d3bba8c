//! What a log needs that may be owned by another process: who hands its publishers' records on, and feeds it.
//!
//! A log that is owned elsewhere is a *mirror*: it holds what its feed brings, at the owner's positions and in the owner's
//! bytes, and is read like any other. Publishing to it hands the records on, and what came of them is told later, the way
//! it is where a disk has to have them first ([`Log::await_stored`]).
//!
//! The log itself knows of no node and no connection: whoever embeds it hands it an [`Upstream`].

use std::fmt::Debug;
use std::sync::Arc;

use crate::claim::StateClaim;
use crate::config::Clock;
use crate::log::{Log, ProducerMark, StoredState};
use crate::publish::PublishError;
use crate::subscribe::Start;
use crate::wake::Waiter;

/// The way to a log's owner, which may be this very process. Nothing of it is called inside a log's lock.
pub trait Upstream: Send + Sync + Debug {
    /// Until when this process owns the log without asking again, ns by [`Upstream::clock`]; 0 where it does not.
    fn owned_until_ns(&self) -> u64;

    /// By which that is said. Not the log's, which follows the time of day: set back, that would let an owner go on whose time
    /// is over.
    fn clock(&self) -> Clock;

    /// Hands a run on to the owner, behind all that was handed on before; what became of it is told by the ticket. Does
    /// not wait: where too much has no answer yet it is [`PublishError::OwnerBehind`].
    fn forward(&self, run: ToOwner<'_>) -> Result<u64, PublishError>;

    /// What became of a run: [`StoredState::Answered`] once, then the ticket is forgotten. Until then `waiter` is notified
    /// of `token` when it is worth another look.
    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> StoredState;

    /// Whoever waited for outcomes or room has gone.
    fn leave(&self, waiter: &Arc<Waiter>);

    /// Has `waiter` notified of [`Waiter::ROOM`] when there is room for more runs.
    fn await_room(&self, waiter: &Arc<Waiter>);

    /// A reader begins in a mirror. Sees to it that it is fed, and waits, within bounds, until it stands where the owner
    /// does: from then on no record passes it by.
    fn is_read(&self, log: &Arc<Log>, start: Start);

    /// The first publisher of this process has come, or the last has gone, of a topic that keeps a state.
    fn publishers_changed(&self) {}

    /// A mirror for one reader alone, fed from `start`: the one that is shared does not reach back so far, or publishers
    /// are to wait for this reader. `None` where that cannot be had now.
    fn detour(&self, log: &Arc<Log>, start: Start, registered: bool) -> Option<Arc<Log>>;
}

/// A run on its way to the owner of its log.
#[derive(Debug, Clone, Copy)]
pub struct ToOwner<'a> {
    /// The partition.
    pub partition: usize,
    /// Whole, sound frames.
    pub frames: &'a [u8],
    /// How many.
    pub count: u32,
    /// Who publishes them.
    pub mark: Option<ProducerMark>,
    /// Append only if the log's last record has this sequence.
    pub expect_last: Option<u64>,
    /// What the publisher knows of the partition's state, where the topic keeps one.
    pub claim: Option<&'a Arc<StateClaim>>,
    /// Another node handed it on, taking this one for the owner: it is not handed on again.
    pub relayed: bool,
}

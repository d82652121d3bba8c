//! Commands that are asked for at about the same time share an entry of the log; those who wait to read share a question.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::OurRaft;
use crate::error::GroupError;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::machines::Machines;
use crate::proposal;
use crate::vocabulary::{Answers, Proposal};

/// One command, and who waits for what comes of it.
pub(super) struct Asked {
    pub(super) command: Bytes,
    pub(super) answer: oneshot::Sender<Result<Bytes, GroupError>>,
}

/// Who waits to read.
pub(super) type Waiting = oneshot::Sender<Result<(), GroupError>>;

/// How many are taken together at most.
const TOGETHER_MAX: usize = 4 << 10;

/// How soon a leader that is not sure of its followers asks again.
const AGAIN: Duration = Duration::from_millis(5);

/// A leader looks so often whether its machine is due to be told the time.
const LOOK: Duration = Duration::from_millis(50);

/// Joins what waits into entries, some of which are on their way at once.
pub(super) async fn propose<M: Machine>(
    raft: OurRaft<M>,
    machines: Machines<M>,
    asking: mpsc::Receiver<Asked>,
    limits: Limits,
) {
    let slots = Arc::new(Semaphore::new(limits.in_flight_max));
    let patience = Duration::from_millis(2 * limits.election_ms_max);
    let mut clock = Clock::new();
    let mut queue = Queue { asking, left: None, bytes_max: limits.entry_bytes_max };
    loop {
        let first = tokio::time::timeout(LOOK, queue.first()).await;
        // Another's machine may be busy for long: with a snapshot.
        let (machine_ms, due_ms) = match raft.is_leader() {
            true => machines.with(|machine| (machine.now_ms(), machine.next_due_ms())),
            false => (0, None),
        };
        let now_ms = clock.now_ms(raft.metrics().borrow_watched().current_term, machine_ms);
        let first = match first {
            Ok(None) => return,
            Ok(first) => first,
            Err(_nobody) if raft.is_leader() && due_ms.is_some_and(|due_ms| due_ms <= now_ms) => None,
            Err(_nobody) => continue,
        };
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let together = queue.together_with(first);
        let joined = proposal::join(now_ms, together.iter().map(|asked| &asked.command));
        let raft = raft.clone();
        tokio::spawn(async move {
            let written = write(&raft, joined, patience).await;
            drop(slot);
            answer(together, written);
        });
    }
}

/// Has an entry written. A leader whose followers' disks are slow may not know for a moment that they still follow, and
/// is refused before anything is done: it asks again.
async fn write<M: Machine>(
    raft: &OurRaft<M>,
    proposal: Proposal,
    patience: Duration,
) -> Result<Answers, GroupError> {
    let deadline = Instant::now() + patience;
    loop {
        let written = raft.client_write(proposal.clone()).await;
        match written.map(|written| written.data).map_err(GroupError::from) {
            Err(GroupError::NotLeader { leader: None }) if raft.is_leader() && Instant::now() < deadline => {
                tokio::time::sleep(AGAIN).await;
            }
            written => return written,
        }
    }
}

fn answer(together: Vec<Asked>, answers: Result<Answers, GroupError>) {
    match answers {
        Ok(answers) => {
            for (asked, answer) in together.into_iter().zip(answers.0) {
                let _ = asked.answer.send(Ok(answer));
            }
        }
        Err(error) => {
            for asked in together {
                let _ = asked.answer.send(Err(error.clone()));
            }
        }
    }
}

/// Commands that wait.
struct Queue {
    asking: mpsc::Receiver<Asked>,
    /// What found no room in the last entry.
    left: Option<Asked>,
    bytes_max: usize,
}

impl Queue {
    async fn first(&mut self) -> Option<Asked> {
        match self.left.take() {
            Some(left) => Some(left),
            None => self.asking.recv().await,
        }
    }

    /// What came while all slots were taken goes along.
    fn together_with(&mut self, first: Option<Asked>) -> Vec<Asked> {
        let mut together = Vec::from_iter(first);
        let mut bytes: usize = together.iter().map(|asked| asked.command.len()).sum();
        while together.len() < TOGETHER_MAX
            && let Ok(next) = self.asking.try_recv()
        {
            bytes += next.command.len();
            if bytes > self.bytes_max && !together.is_empty() {
                self.left = Some(next);
                break;
            }
            together.push(next);
        }
        together
    }
}

/// One question to the others for all who wait by then.
pub(super) async fn confirm<M: Machine>(raft: OurRaft<M>, mut waits: mpsc::Receiver<Waiting>) {
    let mut together = Vec::new();
    while waits.recv_many(&mut together, TOGETHER_MAX).await > 0 {
        let confirmed = raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
        let confirmed = confirmed.map(|_| ()).map_err(GroupError::from);
        together.drain(..).for_each(|waiting| drop(waiting.send(confirmed.clone())));
    }
}

/// Counts the group's time on from where the machine has it when this node begins to lead. Time in which nobody led is
/// not counted, and leases live the longer for it. No clock that can be set is asked.
struct Clock {
    term: u64,
    base_ms: u64,
    since: Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock { term: 0, base_ms: 0, since: Instant::now() }
    }

    fn now_ms(&mut self, term: u64, machine_ms: u64) -> u64 {
        if term != self.term {
            *self = Clock { term, base_ms: machine_ms, since: Instant::now() };
        }
        (self.base_ms + self.since.elapsed().as_millis() as u64).max(machine_ms)
    }
}

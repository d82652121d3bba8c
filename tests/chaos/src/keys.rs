//! Clients that write and read the keys of a group. Three clients share a group for some time, and then use the next
//! group.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_control::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlRefusal, ControlReply, FoundKeys,
    KeyOperation as Step, OperationOutcome, prefix_end,
};
use dunlin_replica::seed::Seed;

use crate::going::ClientProgress;
use crate::history::{Clock, KEYS, KeyRequest, KeyResponse, KeyState, Operation, key};
use crate::replica_client::{CommandResult, ReplicaClient};

/// The number of clients that share a group.
pub const SHARE: u64 = 3;
/// The number of changes with unknown outcomes above which a client only reads a group, because each such change
/// doubles the number of orders that the checker has to try.
const UNKNOWN: u32 = 2;
/// How long a group is written to, in ms.
pub const SLICE_MS: u64 = 600;

/// A client that writes and reads keys.
#[derive(Debug)]
pub struct KeyClient {
    id: u64,
    replica_client: ReplicaClient,
    clock: Clock,
    seed: Seed,
    written: u64,
    /// The group that the client uses, and the last revisions that it saw of the group's keys.
    seen: (String, [u64; KEYS]),
    /// The number of changes in this group with unknown outcomes.
    unknown: u32,
    history: Vec<Operation>,
    going: Arc<ClientProgress>,
}

impl KeyClient {
    /// Creates the client with this number.
    pub fn new(
        id: u64,
        replica_client: ReplicaClient,
        clock: Clock,
        seed: u64,
        going: Arc<ClientProgress>,
    ) -> KeyClient {
        let seed = Seed::new(seed);
        let (seen, unknown, history) = Default::default();
        KeyClient { id, replica_client, clock, seed, written: 0, seen, unknown, history, going }
    }

    /// Sends requests until stopped. Returns the client's history.
    pub fn run(mut self, stop: &AtomicBool) -> Vec<Operation> {
        while !stop.load(Ordering::Relaxed) {
            let slice = self.clock.now() / 1_000_000 / SLICE_MS;
            let group = format!("g{}.{slice}", self.id / SHARE);
            if self.seen.0 != group {
                (self.seen, self.unknown) = ((group.clone(), [0; KEYS]), 0);
            }
            let asked = self.next();
            self.ask(group, asked);
            let pause_us = self.seed.between(0, 8_000);
            std::thread::sleep(std::time::Duration::from_micros(pause_us));
        }
        self.history
    }

    /// Reads all keys of each group once more, until all are read or `give_up` returns `true`.
    pub fn read_all(mut self, groups: &[String], give_up: impl Fn() -> bool) -> Option<Vec<Operation>> {
        for group in groups {
            let before = self.history.len();
            while self.history.len() == before {
                if give_up() {
                    return None;
                }
                self.ask(group.clone(), KeyRequest::Range);
            }
        }
        Some(self.history)
    }

    fn next(&mut self) -> KeyRequest {
        let (at, other) = (self.seed.between(0, 2) as usize, self.seed.between(1, 2) as usize);
        let other = (at + other) % KEYS;
        let expect = self.seen.1[at];
        self.written += 1;
        let value = format!("{}.{}", self.id, self.written);
        let kinds = if self.unknown < UNKNOWN { 99 } else { 39 };
        match self.seed.between(0, kinds) {
            0..30 => KeyRequest::Get(at),
            30..40 => KeyRequest::Range,
            40..65 => KeyRequest::Put(at, value),
            65..82 => KeyRequest::Cas(at, value, expect),
            82..90 => KeyRequest::Delete(at),
            _ => KeyRequest::Move(at, other, value, expect),
        }
    }

    fn ask(&mut self, group: String, asked: KeyRequest) {
        let call = self.clock.now();
        let answered = match self.send(&group, &asked) {
            Some(CommandResult::Done(reply)) => Some(answered(&asked, reply)),
            Some(CommandResult::Refused(ControlRefusal::Mismatch { modified })) => {
                Some(KeyResponse { revision: modified, ..KeyResponse::default() })
            }
            Some(CommandResult::Refused(refusal)) => panic!("group {group} refused {asked:?}: {refusal}"),
            // A failed read has no result, so the history does not contain it.
            Some(CommandResult::NotDone) | None => return,
            Some(CommandResult::Unknown) => {
                self.unknown += 1;
                None
            }
        };
        let answered = answered.map(|answered| (self.clock.now(), answered));
        let operation = Operation { client: self.id, group, asked, call, answered };
        self.learn(&operation);
        self.history.push(operation);
    }

    /// Sends a request and adds it to the history. Returns `None` if a read failed.
    fn send(&mut self, group: &str, asked: &KeyRequest) -> Option<CommandResult> {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|index| key(group, index)).collect();
        let read = |replica_client: &mut ReplicaClient, start: &[u8]| {
            let found = replica_client.read(start, &prefix_end(start))?;
            Some(CommandResult::Done(dunlin_replica::protocol::found(found)))
        };
        let command = match asked {
            KeyRequest::Get(at) => return read(&mut self.replica_client, &keys[*at]),
            KeyRequest::Range => return read(&mut self.replica_client, format!("{group}/").as_bytes()),
            KeyRequest::Put(at, value) => {
                ControlCommand::Put { key: &keys[*at], value: value.as_bytes(), lease: 0 }
            }
            KeyRequest::Cas(at, value, expect) => {
                ControlCommand::PutIf { key: &keys[*at], value: value.as_bytes(), lease: 0, expect: *expect }
            }
            KeyRequest::Delete(at) => ControlCommand::Delete { key: &keys[*at] },
            KeyRequest::Move(at, other, value, expect) => {
                let put = |at: usize| Step::Put { key: &keys[at], value: value.as_bytes(), lease: 0 };
                let get = |at: usize| Step::Get { key: &keys[at] };
                let target = ComparedProperty::Modified { revision: *expect };
                ControlCommand::Transaction {
                    compare: vec![Compare { key: &keys[*at], is: Comparison::Equal, target }],
                    then: vec![put(*at), put(*other)],
                    otherwise: vec![get(*at), get(*other)],
                }
            }
        };
        Some(self.replica_client.change(&command))
    }

    fn learn(&mut self, operation: &Operation) {
        let Some((_, answered)) = &operation.answered else { return };
        if let Some(revision) = operation.revision() {
            self.going.changed();
            operation.writes().iter().for_each(|(at, value)| {
                self.seen.1[*at] = if value.is_some() { revision } else { 0 };
            });
        }
        match &operation.asked {
            KeyRequest::Cas(at, ..) if !answered.done => self.seen.1[*at] = answered.revision,
            KeyRequest::Get(at) => self.seen.1[*at] = answered.items[0].1,
            _ => {}
        }
    }
}

fn answered(asked: &KeyRequest, reply: ControlReply) -> KeyResponse {
    match (asked, reply) {
        (KeyRequest::Get(at), reply) => {
            KeyResponse { items: items(&[*at], &[read(reply)]), ..KeyResponse::default() }
        }
        (KeyRequest::Range, reply) => {
            KeyResponse { items: items(&[0, 1, 2], &[read(reply)]), ..KeyResponse::default() }
        }
        (_, ControlReply::Changed { revision, keys }) => {
            KeyResponse { revision, done: keys > 0, items: vec![] }
        }
        (KeyRequest::Move(at, other, ..), ControlReply::Transaction { revision, succeeded, results }) => {
            let found: Vec<FoundKeys> = results.into_iter().filter_map(of_read).collect();
            let items = if succeeded { vec![] } else { items(&[*at, *other], &found) };
            KeyResponse { revision, done: succeeded, items }
        }
        (asked, reply) => panic!("unexpected reply to {asked:?}: {reply:?}"),
    }
}

fn of_read(outcome: OperationOutcome) -> Option<FoundKeys> {
    match outcome {
        OperationOutcome::Found { found } => Some(found),
        OperationOutcome::Changed { .. } => None,
    }
}

fn read(reply: ControlReply) -> FoundKeys {
    match reply {
        ControlReply::Transaction { results, .. } => {
            results.into_iter().find_map(of_read).unwrap_or_default()
        }
        _ => FoundKeys::default(),
    }
}

/// Returns the state of these keys from the result of a read.
fn items(keys: &[usize], found: &[FoundKeys]) -> Vec<KeyState> {
    let pairs = found.iter().flat_map(|found| &found.items);
    let held: HashMap<Option<u8>, KeyState> = pairs
        .map(|pair| {
            let value = String::from_utf8_lossy(&pair.item.value).into_owned();
            (pair.key.last().copied(), (value, pair.item.modified))
        })
        .collect();
    keys.iter().map(|key| held.get(&Some(b'0' + *key as u8)).cloned().unwrap_or_default()).collect()
}

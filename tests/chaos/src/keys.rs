//! Clients that write and read keys. Three clients at a time share a group of keys. After a while, these clients go on
//! to another group.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_control::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlRefusal, ControlReply, FoundKeys,
    KeyOperation as Step, OperationOutcome, prefix_end,
};
use dunlin_replica::seed::SeededRandom;

use crate::history::{KEYS, KeyRequest, KeyResponse, KeyState, Operation, RunClock, key};
use crate::progress::ClientProgress;
use crate::replica_client::{ReplicaClient, ReplicaCommandOutcome};

/// The number of clients that share a group.
pub const CLIENTS_PER_GROUP: u64 = 3;
/// The number of changes with unknown outcomes after which a client only reads the group. Each such change doubles the
/// number of histories that the checker has to try.
const UNKNOWN_MAX: u32 = 2;
/// How long clients use one group of keys before they go on to the next group, in ms.
pub const SLICE_MS: u64 = 600;

/// A client that writes and reads keys.
#[derive(Debug)]
pub struct KeyClient {
    id: u64,
    replica_client: ReplicaClient,
    clock: RunClock,
    seed: SeededRandom,
    write_count: u64,
    /// The group that the client uses at present. For each key of this group, also the last revision that the client
    /// has seen.
    known: (String, [u64; KEYS]),
    /// The number of this client's changes in the present group whose outcomes are unknown.
    unknown: u32,
    history: Vec<Operation>,
    progress: Arc<ClientProgress>,
}

impl KeyClient {
    /// Creates a client with the number `id`.
    pub fn new(
        id: u64,
        replica_client: ReplicaClient,
        clock: RunClock,
        seed: u64,
        progress: Arc<ClientProgress>,
    ) -> KeyClient {
        let seed = SeededRandom::new(seed);
        let (known, unknown, history) = Default::default();
        KeyClient { id, replica_client, clock, seed, write_count: 0, known, unknown, history, progress }
    }

    /// Sends requests until `stop` is set. Returns the client's history.
    pub fn run(mut self, stop: &AtomicBool) -> Vec<Operation> {
        while !stop.load(Ordering::Relaxed) {
            let slice = self.clock.now() / 1_000_000 / SLICE_MS;
            let group = format!("g{}.{slice}", self.id / CLIENTS_PER_GROUP);
            if self.known.0 != group {
                (self.known, self.unknown) = ((group.clone(), [0; KEYS]), 0);
            }
            let request = self.next_request();
            self.perform(group, request);
            let pause_us = self.seed.between(0, 8_000);
            std::thread::sleep(std::time::Duration::from_micros(pause_us));
        }
        self.history
    }

    /// Reads all keys of `groups`; repeats each read until it succeeds. Returns the client's history. Returns `None` if
    /// `should_stop` returns `true` before all groups are read.
    pub fn read_all(mut self, groups: &[String], should_stop: impl Fn() -> bool) -> Option<Vec<Operation>> {
        for group in groups {
            let before = self.history.len();
            while self.history.len() == before {
                if should_stop() {
                    return None;
                }
                self.perform(group.clone(), KeyRequest::Range);
            }
        }
        Some(self.history)
    }

    fn next_request(&mut self) -> KeyRequest {
        let (at, other) = (self.seed.between(0, 2) as usize, self.seed.between(1, 2) as usize);
        let other = (at + other) % KEYS;
        let expect = self.known.1[at];
        self.write_count += 1;
        let value = format!("{}.{}", self.id, self.write_count);
        let kinds = if self.unknown < UNKNOWN_MAX { 99 } else { 39 };
        match self.seed.between(0, kinds) {
            0..30 => KeyRequest::Get(at),
            30..40 => KeyRequest::Range,
            40..65 => KeyRequest::Put(at, value),
            65..82 => KeyRequest::Cas(at, value, expect),
            82..90 => KeyRequest::Delete(at),
            _ => KeyRequest::Move(at, other, value, expect),
        }
    }

    /// Sends a request, and adds the request and its response to the history.
    fn perform(&mut self, group: String, request: KeyRequest) {
        let call = self.clock.now();
        let response = match self.send(&group, &request) {
            Some(ReplicaCommandOutcome::Done(reply)) => Some(to_response(&request, reply)),
            Some(ReplicaCommandOutcome::Refused(ControlRefusal::Mismatch { modified })) => {
                Some(KeyResponse { revision: modified, ..KeyResponse::default() })
            }
            Some(ReplicaCommandOutcome::Refused(refusal)) => {
                panic!("group {group} refused {request:?}: {refusal}")
            }
            // The request changed nothing and returned nothing, so it is not added to the history.
            Some(ReplicaCommandOutcome::NotDone) | None => return,
            Some(ReplicaCommandOutcome::Unknown) => {
                self.unknown += 1;
                None
            }
        };
        let response = response.map(|response| (self.clock.now(), response));
        let operation = Operation { client: self.id, group, request, call, response };
        self.update_known(&operation);
        self.history.push(operation);
    }

    /// Sends a request. Returns `None` if a read failed.
    fn send(&mut self, group: &str, request: &KeyRequest) -> Option<ReplicaCommandOutcome> {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|index| key(group, index)).collect();
        let read = |replica_client: &mut ReplicaClient, start: &[u8]| {
            let found = replica_client.read(start, &prefix_end(start))?;
            Some(ReplicaCommandOutcome::Done(dunlin_replica::protocol::read_reply(found)))
        };
        let command = match request {
            KeyRequest::Get(at) => return read(&mut self.replica_client, &keys[*at]),
            KeyRequest::Range => {
                return read(&mut self.replica_client, format!("{group}/").as_bytes());
            }
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

    fn update_known(&mut self, operation: &Operation) {
        let Some((_, response)) = &operation.response else { return };
        if let Some(revision) = operation.revision() {
            self.progress.count_change();
            operation.writes().iter().for_each(|(at, value)| {
                self.known.1[*at] = if value.is_some() { revision } else { 0 };
            });
        }
        match &operation.request {
            KeyRequest::Cas(at, ..) if !response.done => self.known.1[*at] = response.revision,
            KeyRequest::Get(at) => self.known.1[*at] = response.items[0].1,
            _ => {}
        }
    }
}

fn to_response(request: &KeyRequest, reply: ControlReply) -> KeyResponse {
    match (request, reply) {
        (KeyRequest::Get(at), reply) => {
            KeyResponse { items: items(&[*at], &[read_result(reply)]), ..KeyResponse::default() }
        }
        (KeyRequest::Range, reply) => {
            KeyResponse { items: items(&[0, 1, 2], &[read_result(reply)]), ..KeyResponse::default() }
        }
        (_, ControlReply::Changed { revision, keys }) => {
            KeyResponse { revision, done: keys > 0, items: vec![] }
        }
        (KeyRequest::Move(at, other, ..), ControlReply::Transaction { revision, succeeded, results }) => {
            let found: Vec<FoundKeys> = results.into_iter().filter_map(found_keys).collect();
            let items = if succeeded { vec![] } else { items(&[*at, *other], &found) };
            KeyResponse { revision, done: succeeded, items }
        }
        (request, reply) => panic!("unexpected reply to {request:?}: {reply:?}"),
    }
}

fn found_keys(outcome: OperationOutcome) -> Option<FoundKeys> {
    match outcome {
        OperationOutcome::Found { found } => Some(found),
        OperationOutcome::Changed { .. } => None,
    }
}

fn read_result(reply: ControlReply) -> FoundKeys {
    match reply {
        ControlReply::Transaction { results, .. } => {
            results.into_iter().find_map(found_keys).unwrap_or_default()
        }
        _ => FoundKeys::default(),
    }
}

/// Converts the result of a read to the value and revision of each of these keys.
fn items(keys: &[usize], found: &[FoundKeys]) -> Vec<KeyState> {
    let pairs = found.iter().flat_map(|found| &found.items);
    let states: HashMap<Option<u8>, KeyState> = pairs
        .map(|pair| {
            let value = String::from_utf8_lossy(&pair.item.value).into_owned();
            (pair.key.last().copied(), (value, pair.item.modified))
        })
        .collect();
    keys.iter().map(|key| states.get(&Some(b'0' + *key as u8)).cloned().unwrap_or_default()).collect()
}

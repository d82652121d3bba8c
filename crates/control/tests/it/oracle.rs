//! Applies random commands to the control state and to a simple model, and compares the two.

use std::collections::BTreeMap;

use super::snapshots::{blocks, restore};
use super::*;

/// Random bytes that select a command and its arguments.
#[derive(Debug, Clone, Copy)]
pub struct RandomCommand(pub [u8; 6]);

const KEYS: [&[u8]; 6] = [b"a", b"ab", b"b", b"c/1", b"c/2", b"d"];
const VALUES: [&[u8]; 4] = [b"", b"1", b"22", b"a longer value"];
const NAMES: [&[u8]; 2] = [b"gate", b"hall"];

impl RandomCommand {
    fn key(&self, at: usize) -> &'static [u8] {
        KEYS[usize::from(self.0[at]) % KEYS.len()]
    }

    fn value(&self) -> &'static [u8] {
        VALUES[usize::from(self.0[3]) % VALUES.len()]
    }

    /// Returns 0 for no lease, or a lease number from 1 to 7. A lease with this number need not exist.
    fn lease(&self) -> u64 {
        u64::from(self.0[2] % 8)
    }

    fn operation(&self, at: usize) -> KeyOperation<'static> {
        let (key, start, end) = (self.key(at), self.key(at), self.key(5));
        match self.0[at] / 8 % 5 {
            0 => KeyOperation::Put { key, value: self.value(), lease: self.lease() },
            1 => KeyOperation::Delete { key },
            2 => KeyOperation::DeleteRange { start, end },
            3 => KeyOperation::Get { key },
            _ => KeyOperation::Range { start, end, limit: u32::from(self.0[5] % 3) },
        }
    }

    fn command(&self, revision: u64) -> ControlCommand<'static> {
        let (key, value, lease) = (self.key(1), self.value(), self.lease());
        let name = NAMES[usize::from(self.0[1]) % NAMES.len()];
        let expect = (revision + 2).saturating_sub(u64::from(self.0[4] % 8));
        let (is, target) = match self.0[4] % 4 {
            0 => (Comparison::Equal, ComparedProperty::Modified { revision: expect }),
            1 => (Comparison::Greater, ComparedProperty::Version { version: 1 }),
            2 => (Comparison::NotEqual, ComparedProperty::Value { value }),
            _ => (Comparison::Less, ComparedProperty::Lease { lease }),
        };
        match self.0[0] % 16 {
            0..=2 => ControlCommand::Put { key, value, lease },
            3 => ControlCommand::PutIf { key, value, lease, expect },
            4 => ControlCommand::Delete { key },
            5 => ControlCommand::DeleteIf { key, expect },
            6 => ControlCommand::DeleteRange { start: key, end: self.key(2) },
            7 => ControlCommand::Transaction {
                compare: vec![Compare { key, is, target }],
                then: vec![self.operation(1), self.operation(2), self.operation(3)],
                otherwise: vec![self.operation(4)],
            },
            8 | 9 => ControlCommand::Grant { ttl_ms: u64::from(self.0[4]) * 8 },
            10 => ControlCommand::KeepAlive { leases: vec![lease, lease + 1] },
            11 => ControlCommand::Revoke { lease },
            12 | 13 => ControlCommand::Acquire { name, lease, value, wait: !self.0[4].is_multiple_of(4) },
            14 => ControlCommand::Release { name, lease },
            _ => ControlCommand::Proclaim { name, lease, value },
        }
    }
}

/// Applies all commands to the state and to the model, and compares them after each command.
pub fn compare_with_oracle(random_commands: &[RandomCommand]) {
    let limits = ControlStateLimits {
        leases_max: 5,
        waiters_max: 2,
        state_bytes_max: 700,
        ..ControlStateLimits::default()
    };
    let mut state = ControlState::new(limits);
    let mut oracle = Oracle { limits, ..Oracle::default() };
    let mut watched: BTreeMap<Vec<u8>, KeyItem> = BTreeMap::new();
    for random_command in random_commands {
        let mut effects = ControlEffects::default();
        let before = (state.revision(), blocks(&state));
        let now_ms = state.now_ms() + u64::from(random_command.0[5]);
        if random_command.0[4] % 5 == 0 {
            state.advance(now_ms, &mut effects);
            oracle.advance(now_ms);
        } else {
            let command = random_command.command(state.revision());
            let (reply, expected) = (state.apply(&command, &mut effects), oracle.apply(&command));
            assert_eq!(reply, expected, "{command:?}");
            if reply.is_err() {
                assert_eq!((state.revision(), blocks(&state)), before, "{command:?} left a trace");
                assert_eq!(effects, ControlEffects::default());
            }
        }
        for (change, revision) in effects.changes.iter().zip(before.0 + 1..) {
            assert_eq!(change.revision, revision);
            watch(&mut watched, change);
        }
        oracle.assert_equal_to(&state);
        let actual: Vec<_> =
            state.range(b"", b"", 0).items.into_iter().map(|p| (p.key.to_vec(), p.item)).collect();
        assert_eq!(actual, watched.clone().into_iter().collect::<Vec<_>>(), "a watch sees the same");
        let again = restore(&blocks(&state)).unwrap();
        assert_eq!((blocks(&again), again.bytes()), (blocks(&state), state.bytes()));
    }
}

fn watch(watched: &mut BTreeMap<Vec<u8>, KeyItem>, change: &Change) {
    let mut event_count = 0;
    for event in KeyEvents::new(&change.bytes).unwrap() {
        event_count += 1;
        match event.unwrap() {
            KeyEvent::Put { key, item } => {
                assert_eq!(item.modified, change.revision);
                watched.insert(key.to_vec(), item);
            }
            KeyEvent::Deleted { key } => assert!(watched.remove(key).is_some()),
        }
    }
    assert!(event_count > 0);
}

/// A simple model of the control state. A lock is a holder and a list of waiting leases, a lease is an end time, and
/// every lookup is a scan.
#[derive(Debug, Clone, Default)]
struct Oracle {
    limits: ControlStateLimits,
    keys: BTreeMap<Vec<u8>, KeyItem>,
    /// For each lease, its time to live and its end time, ms.
    leases: BTreeMap<u64, (u64, u64)>,
    /// The name of the lock, the lease and the value of each waiting lease, in order of arrival.
    waiting: Vec<(Vec<u8>, u64, Vec<u8>)>,
    revision: u64,
    now_ms: u64,
    lease_last: u64,
}

fn lock_key(name: &[u8]) -> Vec<u8> {
    [LOCKS, name].concat()
}

impl Oracle {
    fn bytes(&self) -> u64 {
        let keys = self.keys.iter().map(|(key, item)| key.len() + item.value.len() + 96);
        let waiting = self.waiting.iter().map(|(name, _, value)| name.len() + value.len() + 96);
        keys.chain(waiting).sum::<usize>() as u64
    }

    fn assert_equal_to(&self, state: &ControlState) {
        assert_eq!(
            (state.revision(), state.now_ms(), state.bytes()),
            (self.revision, self.now_ms, self.bytes())
        );
        let leases: Vec<_> = state.leases().map(|(lease, info)| (lease, info.keys, info.waits)).collect();
        let key_count = |lease| self.keys.values().filter(|item| item.lease == lease).count();
        let wait_count = |lease| self.waiting.iter().filter(|waiting| waiting.1 == lease).count();
        let expected: Vec<_> =
            self.leases.keys().map(|&lease| (lease, key_count(lease), wait_count(lease))).collect();
        assert_eq!(leases, expected);
        assert_eq!(state.next_lease_end_ms(), self.leases.values().map(|lease| lease.1).min());
        let mut holders: Vec<_> = self.keys.keys().filter(|key| key.starts_with(LOCKS)).collect();
        holders.dedup();
        assert!(
            self.waiting.iter().all(|(name, ..)| holders.contains(&&lock_key(name))),
            "nobody waits for a free lock"
        );
    }

    fn put(&mut self, key: &[u8], value: &[u8], lease: u64, revision: u64) {
        let before = self.keys.get(key);
        let (created, version) = before.map_or((revision, 0), |item| (item.created, item.version));
        let item = KeyItem {
            value: value.into(),
            created,
            modified: revision,
            version: version + 1,
            lease,
            tenant: None,
        };
        self.keys.insert(key.to_vec(), item);
    }

    fn delete(&mut self, key: &[u8], revision: u64) -> bool {
        let existed = self.keys.remove(key).is_some();
        if let Some(name) = key.strip_prefix(LOCKS)
            && existed
            && let Some(at) = self.waiting.iter().position(|waiting| waiting.0 == name)
        {
            let (name, lease, value) = self.waiting.remove(at);
            self.put(&lock_key(&name), &value, lease, revision);
        }
        existed
    }

    fn end_lease(&mut self, lease: u64) -> u64 {
        self.leases.remove(&lease);
        self.waiting.retain(|waiting| waiting.1 != lease);
        let keys: Vec<_> =
            self.keys.iter().filter(|(_, item)| item.lease == lease).map(|(key, _)| key.clone()).collect();
        let passed_locks = keys.iter().filter(|key| {
            key.strip_prefix(LOCKS).is_some_and(|name| self.waiting.iter().any(|waiting| waiting.0 == name))
        });
        let changes = keys.len() + passed_locks.count();
        let revision = self.revision + 1;
        keys.iter().for_each(|key| {
            self.delete(key, revision);
        });
        self.revision += u64::from(changes > 0);
        changes as u64
    }

    fn advance(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let mut ended: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, times)| times.1 <= now_ms)
            .map(|(lease, times)| (times.1, *lease))
            .collect();
        ended.sort_unstable();
        ended.iter().for_each(|&(_, lease)| {
            self.end_lease(lease);
        });
    }

    fn apply(&mut self, command: &ControlCommand<'_>) -> Result<ControlReply, ControlRefusal> {
        let mut next = self.clone();
        let reply = next.apply_changes(command)?;
        *self = next;
        Ok(reply)
    }

    fn range(&self, start: &[u8], end: &[u8]) -> Vec<Vec<u8>> {
        let keys = self.keys.keys().filter(|key| &key[..] >= start && (end.is_empty() || &key[..] < end));
        keys.cloned().collect()
    }

    fn check_put(&self, key: &[u8], value: &[u8], lease: u64) -> Result<u64, ControlRefusal> {
        if lease > 0 && !self.leases.contains_key(&lease) {
            return Err(ControlRefusal::NoLease { lease });
        }
        let before = self.keys.get(key).map_or(0, |item| key.len() + item.value.len() + 96);
        Ok((key.len() + value.len() + 96).saturating_sub(before) as u64)
    }

    fn check_room(&self, growth: u64) -> Result<(), ControlRefusal> {
        let (bytes, bytes_max) = (self.bytes() + growth, self.limits.state_bytes_max);
        if growth > 0 && bytes > bytes_max {
            Err(ControlRefusal::NoRoom { bytes, bytes_max })
        } else {
            Ok(())
        }
    }

    /// Returns the reply to a command that changed `keys` keys. If any key changed, a new revision begins.
    fn changed_reply(&mut self, keys: u64) -> Result<ControlReply, ControlRefusal> {
        self.revision += u64::from(keys > 0);
        Ok(ControlReply::Changed { revision: self.revision, keys })
    }

    fn check_revision(&self, key: &[u8], expect: u64) -> Result<(), ControlRefusal> {
        let modified = self.keys.get(key).map_or(0, |item| item.modified);
        if modified == expect { Ok(()) } else { Err(ControlRefusal::Mismatch { modified }) }
    }

    fn apply_changes(&mut self, command: &ControlCommand<'_>) -> Result<ControlReply, ControlRefusal> {
        let revision = self.revision + 1;
        match *command {
            ControlCommand::Put { key, value, lease } => {
                let growth = self.check_put(key, value, lease)?;
                self.check_room(growth)?;
                self.put(key, value, lease, revision);
                self.changed_reply(1)
            }
            ControlCommand::PutIf { key, value, lease, expect } => {
                self.check_revision(key, expect)?;
                self.apply_changes(&ControlCommand::Put { key, value, lease })
            }
            ControlCommand::Delete { key } => {
                let existed = self.delete(key, revision);
                self.changed_reply(existed.into())
            }
            ControlCommand::DeleteIf { key, expect } => {
                self.check_revision(key, expect)?;
                self.apply_changes(&ControlCommand::Delete { key })
            }
            ControlCommand::DeleteRange { start, end } => {
                if end <= start {
                    return Err(ControlRefusal::EmptyRange);
                }
                let keys = self.range(start, end);
                keys.iter().for_each(|key| {
                    self.delete(key, revision);
                });
                self.changed_reply(keys.len() as u64)
            }
            ControlCommand::Transaction { ref compare, ref then, ref otherwise }
            | ControlCommand::System { ref compare, ref then, ref otherwise } => {
                let succeeded = compare.iter().all(|compare| self.holds(compare));
                self.transact(if succeeded { then } else { otherwise }, succeeded)
            }
            ControlCommand::Grant { ttl_ms: 0 } => {
                Err(ControlRefusal::LeaseTtl { ttl_ms_max: self.limits.lease_ttl_ms_max })
            }
            ControlCommand::Grant { .. } if self.leases.len() as u64 == self.limits.leases_max => {
                Err(ControlRefusal::TooManyLeases { count_max: self.limits.leases_max })
            }
            ControlCommand::Grant { ttl_ms } => {
                self.lease_last += 1;
                self.leases.insert(self.lease_last, (ttl_ms, self.now_ms + ttl_ms));
                Ok(ControlReply::Granted { lease: self.lease_last, ttl_ms })
            }
            ControlCommand::KeepAlive { ref leases } => {
                let ended = leases.iter().filter(|lease| !self.leases.contains_key(lease)).copied().collect();
                for lease in leases {
                    if let Some((ttl_ms, end_ms)) = self.leases.get_mut(lease) {
                        *end_ms = self.now_ms + *ttl_ms;
                    }
                }
                Ok(ControlReply::KeptAlive { ended })
            }
            ControlCommand::Revoke { lease } => {
                self.check_put(b"", b"", if lease == 0 { u64::MAX } else { lease })
                    .map_err(|_| ControlRefusal::NoLease { lease })?;
                let keys = self.end_lease(lease);
                Ok(ControlReply::Changed { revision: self.revision, keys })
            }
            ControlCommand::Acquire { name, lease, value, wait } => self.acquire(name, lease, value, wait),
            ControlCommand::Release { name, lease } => {
                let held =
                    self.keys.get(&lock_key(name)).is_some_and(|item| item.lease == lease && lease > 0);
                let at = self.waiting.iter().position(|waiting| waiting.0 == name && waiting.1 == lease);
                if held {
                    self.delete(&lock_key(name), revision);
                    self.revision = revision;
                } else {
                    self.waiting.remove(at.ok_or(ControlRefusal::NotHeld { lease })?);
                }
                Ok(ControlReply::Done)
            }
            ControlCommand::Proclaim { name, lease, value } => {
                let token = self
                    .keys
                    .get(&lock_key(name))
                    .filter(|item| item.lease == lease)
                    .map(|item| item.created);
                let token = token.ok_or(ControlRefusal::NotHeld { lease })?;
                let growth = self.check_put(&lock_key(name), value, lease)?;
                self.check_room(growth)?;
                self.put(&lock_key(name), value, lease, revision);
                self.revision = revision;
                Ok(ControlReply::Held { token })
            }
            ControlCommand::Enlist { .. }
            | ControlCommand::Place { .. }
            | ControlCommand::Move { .. }
            | ControlCommand::Remove { .. } => {
                unreachable!("topics are played with in `places`")
            }
            ControlCommand::Limit { limits } => {
                self.limits = limits;
                Ok(ControlReply::Done)
            }
            // This command changes no key, and the replies compared here do not show the epoch.
            ControlCommand::Begin { .. } => Ok(ControlReply::Done),
            ControlCommand::BeginRestored { .. } => unreachable!("random commands contain no restore"),
            ControlCommand::ByUser { .. } | ControlCommand::OfTenant { .. } => {
                unreachable!("users' leases are tried in `leases`")
            }
        }
    }

    fn acquire(
        &mut self,
        name: &[u8],
        lease: u64,
        value: &[u8],
        wait: bool,
    ) -> Result<ControlReply, ControlRefusal> {
        if !self.leases.contains_key(&lease) {
            return Err(ControlRefusal::NoLease { lease });
        }
        let Some(item) = self.keys.get(&lock_key(name)) else {
            let growth = self.check_put(&lock_key(name), value, lease)?;
            self.check_room(growth)?;
            self.revision += 1;
            self.put(&lock_key(name), value, lease, self.revision);
            return Ok(ControlReply::Held { token: self.revision });
        };
        let (holder, token) = (item.lease, item.created);
        let queue: Vec<u64> = self.waiting.iter().filter(|w| w.0 == name).map(|w| w.1).collect();
        if holder == lease {
            return Ok(ControlReply::Held { token });
        }
        if let Some(before) = queue.iter().position(|waiting| *waiting == lease) {
            return Ok(ControlReply::Waiting { before: before as u64 });
        }
        if !wait {
            return Err(ControlRefusal::Held { holder, token });
        }
        let count_max = u64::from(self.limits.waiters_max);
        if queue.len() as u64 >= count_max {
            return Err(ControlRefusal::TooManyWaiters { count_max });
        }
        self.check_room((name.len() + value.len() + 96) as u64)?;
        self.waiting.push((name.to_vec(), lease, value.to_vec()));
        Ok(ControlReply::Waiting { before: queue.len() as u64 })
    }

    fn holds(&self, compare: &Compare<'_>) -> bool {
        let item = self.keys.get(compare.key);
        match (compare.is, compare.target) {
            (Comparison::Equal, ComparedProperty::Modified { revision }) => {
                item.map_or(0, |item| item.modified) == revision
            }
            (Comparison::Greater, ComparedProperty::Version { version }) => {
                item.map_or(0, |item| item.version) > version
            }
            (Comparison::NotEqual, ComparedProperty::Value { value }) => {
                item.is_none_or(|item| *item.value != *value)
            }
            (Comparison::Less, ComparedProperty::Lease { lease }) => {
                item.map_or(0, |item| item.lease) < lease
            }
            other => panic!("{other:?} is not played"),
        }
    }

    fn transact(
        &mut self,
        operations: &[KeyOperation<'_>],
        succeeded: bool,
    ) -> Result<ControlReply, ControlRefusal> {
        let mut growth = 0;
        for operation in operations {
            match *operation {
                KeyOperation::Put { key, value, lease } => growth += self.check_put(key, value, lease)?,
                KeyOperation::DeleteRange { start, end } | KeyOperation::Range { start, end, .. }
                    if end <= start =>
                {
                    return Err(ControlRefusal::EmptyRange);
                }
                _ => {}
            }
        }
        self.check_room(growth)?;
        let (revision, mut results, mut changed) = (self.revision + 1, Vec::new(), 0);
        for operation in operations {
            let (keys, limit) = match *operation {
                KeyOperation::Put { key, value, lease } => {
                    self.put(key, value, lease, revision);
                    (Err(1), 0)
                }
                KeyOperation::Delete { key } => (Err(u64::from(self.delete(key, revision))), 0),
                KeyOperation::DeleteRange { start, end } => {
                    let keys = self.range(start, end);
                    (Err(keys.iter().filter(|key| self.delete(key, revision)).count() as u64), 0)
                }
                KeyOperation::Get { key } => (Ok(self.range(key, &[key, b"\0"].concat())), 9),
                KeyOperation::Range { start, end, limit } => {
                    (Ok(self.range(start, end)), if limit == 0 { 9 } else { limit as usize })
                }
            };
            results.push(match keys {
                Err(keys) => {
                    changed += keys;
                    OperationOutcome::Changed { keys }
                }
                Ok(keys) => {
                    let pair = |key: &Vec<u8>| FoundKey { key: key[..].into(), item: self.keys[key].clone() };
                    let items = keys.iter().take(limit).map(pair).collect();
                    OperationOutcome::Found { found: FoundKeys { items, more: keys.len() > limit } }
                }
            });
        }
        self.revision += u64::from(changed > 0);
        Ok(ControlReply::Transaction { revision: self.revision, succeeded, results })
    }
}

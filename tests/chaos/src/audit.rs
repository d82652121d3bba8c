//! Checks the histories of all clients for faults that the linearizability checker does not find.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use dunlin_control::{KeyEvent, KeyEvents};

use crate::history::{Operation, key};
use crate::locks::LockHistory;
use crate::watches::WatchTrace;

/// Checks two rules for the revisions of changes. No two changes may have the same revision. If a change was requested
/// after another change was acknowledged, the requested change must have the higher revision. Returns the number of
/// changes whose revisions are known.
pub fn check_revisions(operations: &[Operation]) -> Result<u64> {
    let known = operations.iter().filter_map(|op| Some((op, op.response.as_ref()?.0, op.revision()?)));
    let changes: Vec<(&Operation, u64, u64)> = known.collect();
    let mut by_revision: BTreeMap<u64, &Operation> = BTreeMap::new();
    for &(op, _, revision) in &changes {
        if let Some(other) = by_revision.insert(revision, op) {
            bail!("two changes have revision {revision}: {other:?} and {op:?}");
        }
    }
    let (mut by_call, mut by_end) = (changes.clone(), changes.clone());
    by_call.sort_by_key(|(op, ..)| op.call);
    by_end.sort_by_key(|(_, end, _)| *end);
    let (mut ended, mut newest) = (by_end.iter().peekable(), None::<&(&Operation, u64, u64)>);
    for change in &by_call {
        while let Some(ended_change) = ended.next_if(|(_, end, _)| *end < change.0.call) {
            newest = newest.filter(|newest| newest.2 > ended_change.2).or(Some(ended_change));
        }
        if let Some(newest) = newest.filter(|newest| newest.2 > change.2) {
            bail!(
                "a command received revision {}, but revision {} was acknowledged before: {change:?}, {newest:?}",
                change.2,
                newest.2
            );
        }
    }
    Ok(changes.len() as u64)
}

/// Checks that a lock has at most one holder at a time. Each token must belong to only one lease, and the holding times
/// of a lock must not overlap. After a write with a token, no write with a lower token may succeed. Returns the number
/// of holding times.
pub fn check_locks(histories: &[LockHistory]) -> Result<u64> {
    let mut held: Vec<_> = histories.iter().flat_map(|history| &history.held).collect();
    held.sort_by_key(|held| (held.lock, held.from));
    let mut tokens = BTreeMap::new();
    for held in &held {
        if let Some(other) = tokens.insert((held.lock, held.token), held)
            && other.lease != held.lease
        {
            bail!("two leases have the same token: {other:?} and {held:?}");
        }
    }
    for (at, first) in held.iter().enumerate() {
        let later =
            held[at + 1..].iter().take_while(|next| next.lock == first.lock && next.from < first.until);
        if let Some(second) = later.clone().find(|next| next.lease != first.lease) {
            bail!("two clients held a lock at the same time: {first:?} and {second:?}");
        }
    }
    let mut written: Vec<_> = histories.iter().flat_map(|history| &history.guarded).collect();
    written.retain(|guarded| guarded.revision.is_some());
    written.sort_by_key(|guarded| (guarded.lock, guarded.revision));
    for pair in written.windows(2) {
        if pair[0].lock == pair[1].lock && pair[0].token > pair[1].token {
            bail!(
                "a write with an older token followed a write with a newer one: {:?}, then {:?}",
                pair[0],
                pair[1]
            );
        }
    }
    Ok(held.len() as u64)
}

/// Checks the watches of keys. Each watch must receive every revision in order, except for compacted revisions. All
/// watches must receive the same change for a revision. For an acknowledged command, this must be the change that the
/// command made. Returns the total number of revisions that the watches received.
pub fn check_watches(watched: &[WatchTrace], operations: &[Operation]) -> Result<u64> {
    let mut all: BTreeMap<u64, &[u8]> = BTreeMap::new();
    for watcher in watched {
        let mut next = 1;
        for change in &watcher.changes {
            if let Some((_, last)) = watcher.compacted.iter().find(|(first, _)| *first == next) {
                next = last + 1;
            }
            if change.revision != next {
                bail!("a watcher received revision {}, expected {next}", change.revision);
            }
            next += 1;
            if let Some(other) = all.insert(change.revision, &change.bytes)
                && other != change.bytes
            {
                bail!("two watchers received different changes of revision {}", change.revision);
            }
        }
    }
    for operation in operations {
        if let Some(bytes) = operation.revision().and_then(|revision| all.get(&revision)) {
            check_changes(bytes, operation)?;
        }
    }
    Ok(all.len() as u64)
}

fn check_changes(bytes: &[u8], operation: &Operation) -> Result<()> {
    let received: Vec<(Vec<u8>, Option<Vec<u8>>)> = KeyEvents::new(bytes)?
        .map(|event| {
            Ok(match event? {
                KeyEvent::Put { key, item } => (key.to_vec(), Some(item.value.to_vec())),
                KeyEvent::Deleted { key } => (key.to_vec(), None),
            })
        })
        .collect::<Result<_>>()?;
    let write = |(at, value): (usize, Option<&str>)| {
        (key(&operation.group, at), value.map(|value| value.as_bytes().to_vec()))
    };
    let written: Vec<_> = operation.writes().into_iter().map(write).collect();
    if received != written {
        bail!("watchers received {received:?} for {operation:?}, which wrote {written:?}");
    }
    Ok(())
}

/// Returns the number of operations that were in progress when one of the `faults` began or ended.
pub fn count_struck(operations: &[Operation], faults: &[(u64, String)]) -> u64 {
    let was_in_progress = |op: &&Operation| {
        let end = op.response.as_ref().map_or(u64::MAX, |(end, _)| *end);
        faults.iter().any(|(at, _)| (op.call..end).contains(at))
    };
    operations.iter().filter(was_in_progress).count() as u64
}

#[cfg(test)]
mod tests;

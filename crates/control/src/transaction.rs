//! Runs transactions. The comparisons of a transaction decide which of two lists of operations runs.

use std::cmp::Ordering;

use crate::command::{Compare, ComparedProperty, Comparison, KeyOperation};
use crate::effects::ControlEffects;
use crate::error::ControlRefusal;
use crate::item::KeyItem;
use crate::limits::ControlStateLimits;
use crate::reply::{ControlReply, FoundKey, FoundKeys, OperationOutcome};
use crate::revision_builder::RevisionBuilder;
use crate::room::Growth;
use crate::state::{CommandSource, ControlState, check_range};

impl ControlState {
    pub(crate) fn check_operations(&self, count: usize) -> Result<(), ControlRefusal> {
        let (count, count_max) = (count as u64, u64::from(self.limits.operations_max));
        if count > count_max { Err(ControlRefusal::TooManyOperations { count, count_max }) } else { Ok(()) }
    }

    pub(crate) fn transact(
        &mut self,
        source: CommandSource,
        compare: &[Compare<'_>],
        then: &[KeyOperation<'_>],
        otherwise: &[KeyOperation<'_>],
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        self.check_operations(compare.len() + then.len() + otherwise.len())?;
        let succeeded = compare.iter().all(|compare| compare.holds(self.get(compare.key)));
        let operations = if succeeded { then } else { otherwise };
        self.check_each_operation(source, operations)?;
        let bytes_max = self.limits.range_bytes_max;
        let reads = |operation: &KeyOperation<'_>| {
            matches!(operation, KeyOperation::Get { .. } | KeyOperation::Range { .. })
        };
        let entry_bytes_max = ControlStateLimits::ENTRY_READ_BYTES_MAX;
        if operations.iter().any(reads) && effects.read_bytes + bytes_max > entry_bytes_max {
            return Err(ControlRefusal::TooManyReads { bytes_max: entry_bytes_max });
        }
        let mut bytes_left = bytes_max;
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        let results = operations
            .iter()
            .map(|operation| revision_builder.run_operation(operation, &mut bytes_left))
            .collect();
        let revision = revision_builder.end();
        effects.read_bytes += bytes_max - bytes_left;
        Ok(ControlReply::Transaction { revision, succeeded, results })
    }

    fn check_each_operation(
        &self,
        source: CommandSource,
        operations: &[KeyOperation<'_>],
    ) -> Result<(), ControlRefusal> {
        let mut growth = Growth::default();
        for operation in operations {
            match *operation {
                KeyOperation::Put { key, value, lease } => {
                    self.check_put(source, key, value, lease)?;
                    growth += self.growth(key, value);
                }
                KeyOperation::Delete { key } => self.check_writable(source, key)?,
                KeyOperation::DeleteRange { start, end } | KeyOperation::Range { start, end, .. } => {
                    check_range(start, end)?;
                }
                KeyOperation::Get { key } => self.check_key(key)?,
            }
        }
        self.check_room(source, growth)
    }
}

impl RevisionBuilder<'_> {
    /// Runs an operation. `bytes_left` is the number of bytes that may still be read.
    fn run_operation(&mut self, operation: &KeyOperation<'_>, bytes_left: &mut u64) -> OperationOutcome {
        match *operation {
            KeyOperation::Put { key, value, lease } => {
                self.put(key, value, lease);
                OperationOutcome::Changed { keys: 1 }
            }
            KeyOperation::Delete { key } => OperationOutcome::Changed { keys: u64::from(self.delete(key)) },
            KeyOperation::DeleteRange { start, end } => {
                OperationOutcome::Changed { keys: self.delete_range(start, end) }
            }
            KeyOperation::Get { key } => {
                let pair = self.state.keys.get_key_value(key);
                let pair = pair.map(|(key, item)| FoundKey { key: key.clone(), item: item.clone() });
                OperationOutcome::Found { found: limit_to_bytes(pair, bytes_left) }
            }
            KeyOperation::Range { start, end, limit } => {
                let found = self.state.range_within(start, end, limit, *bytes_left, 0);
                *bytes_left -= found.items.iter().map(|pair| pair.item.bytes(&pair.key)).sum::<u64>();
                OperationOutcome::Found { found }
            }
        }
    }
}

/// Returns the key. If the key takes more than `bytes_left` bytes, returns no key, and sets `more` in the result.
fn limit_to_bytes(pair: Option<FoundKey>, bytes_left: &mut u64) -> FoundKeys {
    let Some(pair) = pair else { return FoundKeys::default() };
    match bytes_left.checked_sub(pair.item.bytes(&pair.key)) {
        Some(after) => {
            *bytes_left = after;
            FoundKeys { items: vec![pair], more: false }
        }
        None => FoundKeys { items: Vec::new(), more: true },
    }
}

impl Compare<'_> {
    fn holds(&self, item: Option<&KeyItem>) -> bool {
        let number = |of: fn(&KeyItem) -> u64| item.map_or(0, of);
        let ordering = match self.target {
            ComparedProperty::Version { version } => number(|item| item.version).cmp(&version),
            ComparedProperty::Created { revision } => number(|item| item.created).cmp(&revision),
            ComparedProperty::Modified { revision } => number(|item| item.modified).cmp(&revision),
            ComparedProperty::Lease { lease } => number(|item| item.lease).cmp(&lease),
            ComparedProperty::Value { value } => match item {
                Some(item) => (*item.value).cmp(value),
                None => return self.is == Comparison::NotEqual,
            },
        };
        match self.is {
            Comparison::Equal => ordering == Ordering::Equal,
            Comparison::NotEqual => ordering != Ordering::Equal,
            Comparison::Less => ordering == Ordering::Less,
            Comparison::Greater => ordering == Ordering::Greater,
        }
    }
}

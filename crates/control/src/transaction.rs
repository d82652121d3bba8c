//! Transactions: comparisons and two lists of operations.

use std::cmp::Ordering;

use crate::command::{Compare, Comparison, Operation, Target};
use crate::effects::Effects;
use crate::error::Refusal;
use crate::item::Item;
use crate::reply::{Found, Outcome, Pair, Reply};
use crate::revision_builder::RevisionBuilder;
use crate::room::Growth;
use crate::state::{CommandSource, State, check_range};

impl State {
    pub(crate) fn check_operations(&self, count: usize) -> Result<(), Refusal> {
        let (count, count_max) = (count as u64, u64::from(self.limits.operations_max));
        if count > count_max { Err(Refusal::TooManyOperations { count, count_max }) } else { Ok(()) }
    }

    pub(crate) fn transact(
        &mut self,
        by: CommandSource,
        compare: &[Compare<'_>],
        then: &[Operation<'_>],
        otherwise: &[Operation<'_>],
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        self.check_operations(compare.len() + then.len() + otherwise.len())?;
        let succeeded = compare.iter().all(|compare| compare.holds(self.get(compare.key)));
        let operations = if succeeded { then } else { otherwise };
        self.check_each(by, operations)?;
        let mut left = self.limits.range_bytes_max;
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        let results =
            operations.iter().map(|operation| revision_builder.operate(operation, &mut left)).collect();
        Ok(Reply::Transaction { revision: revision_builder.end(), succeeded, results })
    }

    fn check_each(&self, by: CommandSource, operations: &[Operation<'_>]) -> Result<(), Refusal> {
        let mut growth = Growth::default();
        for operation in operations {
            match *operation {
                Operation::Put { key, value, lease } => {
                    self.check_put(by, key, value, lease)?;
                    growth += self.growth(key, value);
                }
                Operation::Delete { key } => self.check_own(by, key)?,
                Operation::DeleteRange { start, end } | Operation::Range { start, end, .. } => {
                    check_range(start, end)?;
                }
                Operation::Get { key } => self.check_key(key)?,
            }
        }
        self.check_room(by, growth)
    }
}

impl RevisionBuilder<'_> {
    /// Runs an operation. `left` is the number of bytes that may still be read.
    fn operate(&mut self, operation: &Operation<'_>, left: &mut u64) -> Outcome {
        match *operation {
            Operation::Put { key, value, lease } => {
                self.put(key, value, lease);
                Outcome::Changed { keys: 1 }
            }
            Operation::Delete { key } => Outcome::Changed { keys: u64::from(self.delete(key)) },
            Operation::DeleteRange { start, end } => Outcome::Changed { keys: self.delete_range(start, end) },
            Operation::Get { key } => {
                let pair = self.state.keys.get_key_value(key);
                let pair = pair.map(|(key, item)| Pair { key: key.clone(), item: item.clone() });
                Outcome::Found { found: within(pair, left) }
            }
            Operation::Range { start, end, limit } => {
                let found = self.state.range_within(start, end, limit, *left, 0);
                *left -= found.items.iter().map(|pair| pair.item.bytes(&pair.key)).sum::<u64>();
                Outcome::Found { found }
            }
        }
    }
}

/// The key, or `more` if it exceeds the bytes left.
fn within(pair: Option<Pair>, left: &mut u64) -> Found {
    let Some(pair) = pair else { return Found::default() };
    match left.checked_sub(pair.item.bytes(&pair.key)) {
        Some(after) => {
            *left = after;
            Found { items: vec![pair], more: false }
        }
        None => Found { items: Vec::new(), more: true },
    }
}

impl Compare<'_> {
    fn holds(&self, item: Option<&Item>) -> bool {
        let number = |of: fn(&Item) -> u64| item.map_or(0, of);
        let ordering = match self.target {
            Target::Version { version } => number(|item| item.version).cmp(&version),
            Target::Created { revision } => number(|item| item.created).cmp(&revision),
            Target::Modified { revision } => number(|item| item.modified).cmp(&revision),
            Target::Lease { lease } => number(|item| item.lease).cmp(&lease),
            Target::Value { value } => match item {
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

//! Transactions on keys. A transaction has comparisons and two lists of operations. The cluster carries out one of the
//! lists in one revision; the comparisons decide which one.

use dunlin_control::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlReply, KeyOperation, OperationOutcome,
};

use super::{Kv, KvEntry, KvError};

/// A transaction on keys: comparisons, the operations to run if all comparisons hold, and the operations to run
/// otherwise.
#[derive(Debug, Clone, Default)]
pub struct Transaction<'a> {
    compare: Vec<Compare<'a>>,
    then: Vec<KeyOperation<'a>>,
    otherwise: Vec<KeyOperation<'a>>,
}

/// The result of a transaction: whether the comparisons held, and the result of each operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionResult {
    /// The revision of the changes; the cluster's last revision if nothing changed.
    pub revision: u64,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The result of each operation: either the number of changed keys, or the keys that it read and whether there are
    /// more.
    pub results: Vec<Result<u64, (Vec<KvEntry>, bool)>>,
}

impl<'a> Transaction<'a> {
    /// An empty transaction.
    pub fn new() -> Transaction<'a> {
        Transaction::default()
    }

    /// Adds a comparison: `target` is the property of `key` and the value with which it is compared.
    pub fn compare(mut self, key: &'a [u8], is: Comparison, target: ComparedProperty<'a>) -> Transaction<'a> {
        self.compare.push(Compare { key, is, target });
        self
    }

    /// Adds the comparison that the key's last write had the number `revision`, or that the key does not exist if
    /// `revision` is 0.
    pub fn if_modified_at(self, key: &'a [u8], revision: u64) -> Transaction<'a> {
        self.compare(key, Comparison::Equal, ComparedProperty::Modified { revision })
    }

    /// Writes a key if all comparisons hold.
    pub fn put(self, key: &'a [u8], value: &'a [u8]) -> Transaction<'a> {
        self.then(KeyOperation::Put { key, value, lease: 0 })
    }

    /// Deletes a key if all comparisons hold.
    pub fn delete(self, key: &'a [u8]) -> Transaction<'a> {
        self.then(KeyOperation::Delete { key })
    }

    /// Adds an operation for the case that all comparisons hold.
    pub fn then(mut self, operation: KeyOperation<'a>) -> Transaction<'a> {
        self.then.push(operation);
        self
    }

    /// Adds an operation for the case that a comparison fails.
    pub fn otherwise(mut self, operation: KeyOperation<'a>) -> Transaction<'a> {
        self.otherwise.push(operation);
        self
    }

    /// The command that carries out the transaction.
    pub fn command(&self) -> ControlCommand<'a> {
        let (compare, then) = (self.compare.clone(), self.then.clone());
        ControlCommand::Transaction { compare, then, otherwise: self.otherwise.clone() }
    }
}

impl Kv {
    /// Carries out a transaction.
    pub fn transact(&self, transaction: &Transaction<'_>) -> Result<TransactionResult, KvError> {
        let ControlReply::Transaction { revision, succeeded, results } =
            self.command(&transaction.command())?
        else {
            return Err(KvError::unexpected_response());
        };
        let results = results.into_iter().map(|outcome| match outcome {
            OperationOutcome::Changed { keys } => Ok(keys),
            OperationOutcome::Found { found } => {
                Err((found.items.into_iter().map(KvEntry::from).collect(), found.more))
            }
        });
        Ok(TransactionResult { revision, succeeded, results: results.collect() })
    }
}

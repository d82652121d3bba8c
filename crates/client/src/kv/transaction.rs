//! Transactions on keys. A transaction has comparisons and two lists of operations. The cluster carries out one of the
//! two lists, in one revision. The comparisons decide which list.

use dunlin_control::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlReply, KeyOperation, OperationOutcome,
};

use super::{Kv, KvEntry, KvError};

/// A transaction on keys: comparisons, the operations to carry out if all comparisons hold, and those to carry out
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
    /// The revision of the changes. If nothing changed, the last revision of the cluster.
    pub revision: u64,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The result of each operation. `Ok` contains the number of keys that a write has changed. `Err` is not an error:
    /// it contains the keys that a read has returned, and whether there are more.
    pub results: Vec<Result<u64, (Vec<KvEntry>, bool)>>,
}

impl<'a> Transaction<'a> {
    /// Creates an empty transaction.
    pub fn new() -> Transaction<'a> {
        Transaction::default()
    }

    /// Adds a comparison. `target` names a property of `key` and the value with which the property is compared; `is`
    /// says how.
    pub fn compare(mut self, key: &'a [u8], is: Comparison, target: ComparedProperty<'a>) -> Transaction<'a> {
        self.compare.push(Compare { key, is, target });
        self
    }

    /// Adds the comparison that the last write of the key was in `revision`. If `revision` is 0, the key must not
    /// exist.
    pub fn if_modified_at(self, key: &'a [u8], revision: u64) -> Transaction<'a> {
        self.compare(key, Comparison::Equal, ComparedProperty::Modified { revision })
    }

    /// Adds the operation to write a key if all comparisons hold.
    pub fn put(self, key: &'a [u8], value: &'a [u8]) -> Transaction<'a> {
        self.then(KeyOperation::Put { key, value, lease: 0 })
    }

    /// Adds the operation to delete a key if all comparisons hold.
    pub fn delete(self, key: &'a [u8]) -> Transaction<'a> {
        self.then(KeyOperation::Delete { key })
    }

    /// Adds an operation for the case that all comparisons hold.
    pub fn then(mut self, operation: KeyOperation<'a>) -> Transaction<'a> {
        self.then.push(operation);
        self
    }

    /// Adds an operation for the case that not all comparisons hold.
    pub fn otherwise(mut self, operation: KeyOperation<'a>) -> Transaction<'a> {
        self.otherwise.push(operation);
        self
    }

    /// Returns the command that carries out the transaction.
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

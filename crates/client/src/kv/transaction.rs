//! Transactions: if all that is compared is so, this, else that; in one revision.

use dunlin_control::{Command, Compare, Is, Operation, Outcome, Reply, Target};

use super::{Entry, Kv, KvError};

/// What is to be done in one revision.
#[derive(Debug, Clone, Default)]
pub struct Transaction<'a> {
    compare: Vec<Compare<'a>>,
    then: Vec<Operation<'a>>,
    otherwise: Vec<Operation<'a>>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transacted {
    /// The revision; the last there was where nothing was changed.
    pub revision: u64,
    /// All that was compared was so.
    pub succeeded: bool,
    /// What came of each operation: keys changed, or what was read and whether there is more.
    pub results: Vec<Result<u64, (Vec<Entry>, bool)>>,
}

impl<'a> Transaction<'a> {
    /// One that does nothing.
    pub fn new() -> Transaction<'a> {
        Transaction::default()
    }

    /// What has to be so of a key.
    pub fn compare(mut self, key: &'a [u8], is: Is, target: Target<'a>) -> Transaction<'a> {
        self.compare.push(Compare { key, is, target });
        self
    }

    /// The key was last written by this revision; 0 for one that is not there.
    pub fn if_modified_at(self, key: &'a [u8], revision: u64) -> Transaction<'a> {
        self.compare(key, Is::Equal, Target::Modified { revision })
    }

    /// Writes a key, if all is so.
    pub fn put(self, key: &'a [u8], value: &'a [u8]) -> Transaction<'a> {
        self.then(Operation::Put { key, value, lease: 0 })
    }

    /// Deletes a key, if all is so.
    pub fn delete(self, key: &'a [u8]) -> Transaction<'a> {
        self.then(Operation::Delete { key })
    }

    /// Does this, if all is so.
    pub fn then(mut self, operation: Operation<'a>) -> Transaction<'a> {
        self.then.push(operation);
        self
    }

    /// Does this, if it is not.
    pub fn otherwise(mut self, operation: Operation<'a>) -> Transaction<'a> {
        self.otherwise.push(operation);
        self
    }

    /// As the cluster takes it.
    pub fn command(&self) -> Command<'a> {
        let (compare, then) = (self.compare.clone(), self.then.clone());
        Command::Transaction { compare, then, otherwise: self.otherwise.clone() }
    }
}

impl Kv {
    /// Makes a transaction.
    pub fn transact(&self, transaction: &Transaction<'_>) -> Result<Transacted, KvError> {
        let Reply::Transaction { revision, succeeded, results } = self.command(&transaction.command())?
        else {
            return Err(KvError::odd());
        };
        let results = results.into_iter().map(|outcome| match outcome {
            Outcome::Changed { keys } => Ok(keys),
            Outcome::Found { found } => Err((found.items.into_iter().map(Entry::from).collect(), found.more)),
        });
        Ok(Transacted { revision, succeeded, results: results.collect() })
    }
}

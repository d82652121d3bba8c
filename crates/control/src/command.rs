//! What can be asked of a [`State`](crate::State) that changes it.

use crate::error::DecodeError;
use crate::layout::{choice, decode, encode, layout};
use crate::limits::Limits;
use crate::place::Wanted;

choice! {
    /// One change, whole or refused. Keys and values are any bytes, a key at least one; the end of a range is not part of it,
    /// and empty when there is none; lease 0 is none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Command<'a> {
        /// Writes a key.
        Put { /// The key.
            key: &'a [u8], /// Its value.
            value: &'a [u8], /// It goes when this lease ends.
            lease: u64 } = 1,
        /// Writes a key if it was last written by revision `expect`, 0 for a key that is not there.
        PutIf { /// The key.
            key: &'a [u8], /// Its value.
            value: &'a [u8], /// It goes when this lease ends.
            lease: u64, /// The revision.
            expect: u64 } = 2,
        /// Deletes a key, if it is there.
        Delete { /// The key.
            key: &'a [u8] } = 3,
        /// Deletes a key if it was last written by revision `expect`.
        DeleteIf { /// The key.
            key: &'a [u8], /// The revision.
            expect: u64 } = 4,
        /// Deletes up to `range_keys_max` keys.
        DeleteRange { /// The first.
            start: &'a [u8], /// Before this.
            end: &'a [u8] } = 5,
        /// `then` where all that is compared is so, else `otherwise`, in one revision.
        Transaction { /// All of it has to be so.
            compare: Vec<Compare<'a>>, /// Done if it is.
            then: Vec<Operation<'a>>, /// Done if it is not.
            otherwise: Vec<Operation<'a>> } = 6,
        /// A lease that ends `ttl_ms` after it was last kept alive.
        Grant { /// Its time to live.
            ttl_ms: u64 } = 7,
        /// These leases live on.
        KeepAlive { /// Which.
            leases: Vec<u64> } = 8,
        /// The lease ends now.
        Revoke { /// Which.
            lease: u64 } = 9,
        /// Takes a lock under a lease, or waits for it. Who holds it, or waits, is told so again.
        Acquire { /// Its name.
            name: &'a [u8], /// The holder.
            lease: u64, /// What others see of the holder: of an elected one, how to reach it.
            value: &'a [u8], /// Otherwise it is refused where another holds it.
            wait: bool } = 10,
        /// Gives a lock to who waits for it longest, or stops waiting for it.
        Release { /// Its name.
            name: &'a [u8], /// The holder, or who waits.
            lease: u64 } = 11,
        /// Changes what others see of a lock's holder.
        Proclaim { /// Its name.
            name: &'a [u8], /// The holder.
            lease: u64, /// What others see.
            value: &'a [u8] } = 12,
        /// Other limits; what is there already stays.
        Limit { /// The limits.
            limits: Limits } = 13,
        /// Begins an epoch of revisions, later than the one there is: what was seen of the one before may not have been.
        Begin { /// The epoch.
            epoch: u32 } = 14,
        /// A transaction of the system's, which may write its own keys, locks apart. For nodes among themselves: no door lets it in.
        System { /// All of it has to be so.
            compare: Vec<Compare<'a>>, /// Done if it is.
            then: Vec<Operation<'a>>, /// Done if it is not.
            otherwise: Vec<Operation<'a>> } = 15,
        /// A node takes part as long as its lease lasts.
        Enlist { /// Its number.
            node: u64, /// Its lease.
            lease: u64, /// What others see of it.
            value: &'a [u8] } = 20,
        /// Sees to it that a topic has a living owner; makes it where there is none.
        Place { /// The topic.
            wanted: Wanted<'a> } = 21,
        /// A node that takes part becomes the owner of a topic; who owns it already begins a later epoch with it.
        Move { /// Its name.
            topic: &'a [u8], /// The node.
            node: u64, /// The lowest epoch that it may begin.
            epoch: u32 } = 22,
        /// There is no such topic any more.
        Remove { /// Its name.
            topic: &'a [u8] } = 23,
        /// A client's command, bound to the client's user: leases that it grants are the user's, and it uses no others.
        ByUser { /// The user's name; empty where nodes have no users.
            user: &'a [u8], /// It may use the leases of all users; those of nodes are for nobody.
            all_leases: bool, /// The bytes of the command, which is none of this kind.
            command: &'a [u8] } = 24,
        /// A client's command, bound to the tenant of its user: what it writes counts towards the tenant's share.
        OfTenant { /// The tenant's name.
            tenant: &'a [u8], /// The bytes of the command, which may be bound to a user.
            command: &'a [u8] } = 25,
    }
}

layout! {
    /// One thing that a transaction depends on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Compare<'a> {
        /// The key.
        pub key: &'a [u8],
        /// How it is to be.
        pub is: Is,
        /// What of it, and what it is held against.
        pub target: Target<'a>,
    }
}

choice! {
    /// How two things compare.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Is {
        /// The same.
        Equal = 1,
        /// Not the same.
        NotEqual = 2,
        /// Less than what it is held against; of values, by their bytes.
        Less = 3,
        /// Greater than that.
        Greater = 4,
    }
}

choice! {
    /// What of a key is compared. Of a key that is not there all numbers are 0, and its value equals none.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Target<'a> {
        /// How often it was written.
        Version { /// Held against this.
            version: u64 } = 1,
        /// The revision that created it. Of a lock's key it is the token.
        Created { /// Held against this.
            revision: u64 } = 2,
        /// The revision that last wrote it.
        Modified { /// Held against this.
            revision: u64 } = 3,
        /// Its lease.
        Lease { /// Held against this.
            lease: u64 } = 4,
        /// Its value.
        Value { /// Held against this.
            value: &'a [u8] } = 5,
    }
}

choice! {
    /// One step of a transaction; it sees what those before it did.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Operation<'a> {
        /// Writes a key.
        Put { /// The key.
            key: &'a [u8], /// Its value.
            value: &'a [u8], /// It goes when this lease ends.
            lease: u64 } = 1,
        /// Deletes a key, if it is there.
        Delete { /// The key.
            key: &'a [u8] } = 2,
        /// Deletes up to `range_keys_max` keys.
        DeleteRange { /// The first.
            start: &'a [u8], /// Before this.
            end: &'a [u8] } = 3,
        /// Reads a key.
        Get { /// The key.
            key: &'a [u8] } = 4,
        /// Reads up to `limit` keys; 0 for as many as may be.
        Range { /// The first.
            start: &'a [u8], /// Before this.
            end: &'a [u8], /// At most so many.
            limit: u32 } = 5,
    }
}

impl<'a> Command<'a> {
    /// Whether it may make the state larger by what a client wants kept. Where disks are full, those are refused first: leases and
    /// locks take little and go by themselves, and what nodes say among themselves has to go on.
    pub fn grows(&self) -> bool {
        match self {
            Command::Put { .. } | Command::PutIf { .. } | Command::Proclaim { .. } => true,
            Command::Transaction { then, otherwise, .. } => {
                then.iter().chain(otherwise).any(|operation| matches!(operation, Operation::Put { .. }))
            }
            Command::ByUser { command, .. } | Command::OfTenant { command, .. } => {
                Command::decode(command).is_ok_and(|command| command.grows())
            }
            _ => false,
        }
    }

    /// The leases that it uses, 0 among them where it uses none for a key.
    pub fn leases(&self) -> Vec<u64> {
        match self {
            Command::Put { lease, .. }
            | Command::PutIf { lease, .. }
            | Command::Revoke { lease }
            | Command::Acquire { lease, .. }
            | Command::Release { lease, .. }
            | Command::Proclaim { lease, .. } => vec![*lease],
            Command::KeepAlive { leases } => leases.clone(),
            Command::Transaction { then, otherwise, .. } => {
                let operations = then.iter().chain(otherwise);
                let lease = |operation: &Operation<'_>| match operation {
                    Operation::Put { lease, .. } => Some(*lease),
                    _ => None,
                };
                operations.filter_map(lease).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether clients may give it; else it is for the cluster's nodes among themselves.
    pub fn is_for_clients(&self) -> bool {
        matches!(
            self,
            Command::Put { .. }
                | Command::PutIf { .. }
                | Command::Delete { .. }
                | Command::DeleteIf { .. }
                | Command::DeleteRange { .. }
                | Command::Transaction { .. }
                | Command::Grant { .. }
                | Command::KeepAlive { .. }
                | Command::Revoke { .. }
                | Command::Acquire { .. }
                | Command::Release { .. }
                | Command::Proclaim { .. }
        )
    }

    /// The command itself, where it is bound to a user or a tenant.
    pub fn unbound(&self) -> Command<'a> {
        match self.without_tenant() {
            // Decoding has looked at it.
            ref bound @ Command::ByUser { command, .. } => decode(command).unwrap_or_else(|_| bound.clone()),
            command => command,
        }
    }

    /// The command without its tenant.
    pub(crate) fn without_tenant(&self) -> Command<'a> {
        match self {
            Command::OfTenant { command, .. } => decode(command).unwrap_or_else(|_| self.clone()),
            _ => self.clone(),
        }
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one; its keys and values lie in `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Command<'a>, DecodeError> {
        let command: Command<'_> = decode(bytes)?;
        let (inner, is_clients) = match command {
            Command::ByUser { command, .. } => (command, decode::<Command<'_>>(command)?.is_for_clients()),
            Command::OfTenant { command, .. } => {
                let inner = Command::decode(command)?;
                (command, inner.is_for_clients() || matches!(inner, Command::ByUser { .. }))
            }
            _ => return Ok(command),
        };
        match is_clients {
            true => Ok(command),
            false => Err(DecodeError::Unknown { what: "command of a client", number: inner[1] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_client_writes_grow_the_state() {
        let put = Operation::Put { key: b"k", value: b"v", lease: 0 };
        let delete = Operation::Delete { key: b"k" };
        let transaction = |then, otherwise| Command::Transaction { compare: vec![], then, otherwise };
        for grows in [
            Command::Put { key: b"k", value: b"v", lease: 0 },
            Command::PutIf { key: b"k", value: b"v", lease: 0, expect: 0 },
            transaction(vec![delete, put], vec![]),
            transaction(vec![], vec![put]),
        ] {
            assert!(grows.grows(), "{grows:?}");
        }
        for does_not in [
            Command::Delete { key: b"k" },
            Command::DeleteRange { start: b"k", end: b"" },
            transaction(vec![delete], vec![Operation::Get { key: b"k" }]),
            Command::Revoke { lease: 1 },
            Command::KeepAlive { leases: vec![1] },
            Command::Release { name: b"l", lease: 1 },
            Command::System { compare: vec![], then: vec![put], otherwise: vec![] },
        ] {
            assert!(!does_not.grows(), "{does_not:?}");
        }
    }
}

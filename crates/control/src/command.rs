//! Defines the commands that change a [`ControlState`](crate::ControlState).

use crate::error::ControlDecodeError;
use crate::layout::{choice, decode, decode_with_lists_up_to, encode, layout};
use crate::limits::ControlStateLimits;
use crate::placement::OwnerRequest;

// Encoded numbers of the commands that may delete several keys.
const DELETE_RANGE: u8 = 5;
const TRANSACTION: u8 = 6;
const REVOKE: u8 = 9;
const SYSTEM: u8 = 15;
// Encoded numbers of the commands that contain another command.
const BY_USER: u8 = 24;
const OF_TENANT: u8 = 25;

choice! {
    /// A command that changes keys, leases, locks or owners of topics; the command is either applied completely or
    /// refused. Keys have at least one byte. A range excludes its `end`; an empty `end` means no end. Lease 0 means no
    /// lease.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ControlCommand<'a> {
        /// Writes a key.
        Put { /// The key.
            key: &'a [u8], /// The key's value.
            value: &'a [u8], /// The lease with which the key ends.
            lease: u64 } = 1,
        /// Writes a key if the key was last written by revision `expect`. If `expect` is 0, the key must not exist.
        PutIf { /// The key.
            key: &'a [u8], /// The key's value.
            value: &'a [u8], /// The lease with which the key ends.
            lease: u64, /// The revision.
            expect: u64 } = 2,
        /// Deletes a key, if it exists.
        Delete { /// The key.
            key: &'a [u8] } = 3,
        /// Deletes a key if the key was last written by revision `expect`.
        DeleteIf { /// The key.
            key: &'a [u8], /// The revision.
            expect: u64 } = 4,
        /// Deletes the keys of a range, but at most the first `range_keys_max` of them.
        DeleteRange { /// The first key.
            start: &'a [u8], /// The end of the range, excluded.
            end: &'a [u8] } = 5,
        /// Runs `then` if all comparisons hold, otherwise `otherwise`. All changes of the transaction belong to one
        /// revision.
        Transaction { /// The comparisons.
            compare: Vec<Compare<'a>>, /// Operations if all comparisons hold.
            then: Vec<KeyOperation<'a>>, /// Operations if a comparison fails.
            otherwise: Vec<KeyOperation<'a>> } = 6,
        /// Grants a lease that ends `ttl_ms` after its last renewal.
        Grant { /// The lease's time to live, ms.
            ttl_ms: u64 } = 7,
        /// Renews leases, so that each lasts for its time to live from now on.
        KeepAlive { /// The leases.
            leases: Vec<u64> } = 8,
        /// Ends a lease.
        Revoke { /// The lease.
            lease: u64 } = 9,
        /// Takes a lock for a lease. If another lease holds the lock and `wait` is set, `lease` joins the lock's queue.
        /// If another lease holds the lock and `wait` is not set, the command is refused. Repeating the command is safe
        /// while the lease holds the lock or waits for it.
        Acquire { /// The lock's name.
            name: &'a [u8], /// The holder.
            lease: u64, /// The holder's value, such as the address of an elected leader.
            value: &'a [u8], /// Whether to wait if another lease holds the lock; otherwise the command is refused.
            wait: bool } = 10,
        /// Releases a lock, which passes to the lease that has waited longest. If `lease` does not hold the lock but
        /// waits for it, `lease` leaves the queue instead.
        Release { /// The lock's name.
            name: &'a [u8], /// The lease that holds the lock or waits.
            lease: u64 } = 11,
        /// Replaces the value that is stored with a lock. The lease must hold the lock.
        Proclaim { /// The lock's name.
            name: &'a [u8], /// The holder.
            lease: u64, /// The new value.
            value: &'a [u8] } = 12,
        /// Replaces the state's limits. Existing keys stay, even if they exceed the new limits.
        Limit { /// The limits.
            limits: ControlStateLimits } = 13,
        /// Begins a later epoch of revisions. Nodes propose this command when revisions of the previous epoch may have
        /// been lost.
        Begin { /// The epoch.
            epoch: u32 } = 14,
        /// Runs a transaction that may also write system keys, except those of locks. Only nodes may propose this
        /// command.
        System { /// The comparisons.
            compare: Vec<Compare<'a>>, /// Operations if all comparisons hold.
            then: Vec<KeyOperation<'a>>, /// Operations if a comparison fails.
            otherwise: Vec<KeyOperation<'a>> } = 15,
        /// Begins a later epoch after a restore from a backup. Adds `skipped` to the last revision and to the last
        /// lease number, because clients may know numbers that the restored state lacks. Fencing tokens are revisions,
        /// so they also grow.
        BeginRestored { /// The epoch.
            epoch: u32, /// How many numbers are skipped.
            skipped: u64 } = 16,
        /// Makes a node a member until the given lease ends.
        Enlist { /// The node's number.
            node: u64, /// The node's lease.
            lease: u64, /// The node's value, which other nodes read.
            value: &'a [u8] } = 20,
        /// Finds the owner of a topic. Creates the topic if it does not exist. If the topic is volatile and its owner
        /// is down, chooses a member as the new owner.
        Place { /// The request.
            request: OwnerRequest<'a> } = 21,
        /// Moves a volatile topic to a member and begins a later epoch of the topic. If the member already owns the
        /// topic, only begins `epoch`, and only if `epoch` is later than the topic's epoch.
        Move { /// The topic's name.
            topic: &'a [u8], /// The node.
            node: u64, /// The lowest epoch that the node may begin.
            epoch: u32 } = 22,
        /// Deletes a topic.
        Remove { /// The topic's name.
            topic: &'a [u8] } = 23,
        /// A client's command together with the name of its user. A lease that the command grants belongs to this user.
        /// The command may not use leases of other users unless `all_leases` is set.
        ByUser { /// The user's name; empty where nodes have no users.
            user: &'a [u8], /// Whether the command may use the leases of all users. It may never use leases of nodes.
            all_leases: bool, /// The encoded command, which is neither `ByUser` nor `OfTenant`.
            command: &'a [u8] } = 24,
        /// A client's command together with the name of its user's tenant. Keys that the command writes and leases that
        /// it grants count towards this tenant's limits.
        OfTenant { /// The tenant's name.
            tenant: &'a [u8], /// The encoded command, which may be `ByUser`.
            command: &'a [u8] } = 25,
    }
}

layout! {
    /// One condition of a transaction: compares a property of a key with an expected value.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Compare<'a> {
        /// The key.
        pub key: &'a [u8],
        /// The operator, such as "equal".
        pub is: Comparison,
        /// The compared property of the key, and the expected value.
        pub target: ComparedProperty<'a>,
    }
}

choice! {
    /// The operator of a comparison in a transaction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Comparison {
        /// The property equals the expected value.
        Equal = 1,
        /// The property differs from the expected value.
        NotEqual = 2,
        /// The property is less than the expected value. A key's value is compared byte by byte.
        Less = 3,
        /// The property is greater than the expected value.
        Greater = 4,
    }
}

choice! {
    /// A property of a key that a transaction compares with an expected value. For a key that does not exist, each
    /// number counts as 0. Of the comparisons with a value, only [`NotEqual`](Comparison::NotEqual) holds for such a
    /// key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ComparedProperty<'a> {
        /// The number of writes since the key was created.
        Version { /// The expected value.
            version: u64 } = 1,
        /// The revision that created the key. For a lock's key, this is the fencing token.
        Created { /// The expected value.
            revision: u64 } = 2,
        /// The revision that last wrote the key.
        Modified { /// The expected value.
            revision: u64 } = 3,
        /// The lease whose end deletes the key; 0 for none.
        Lease { /// The expected value.
            lease: u64 } = 4,
        /// The key's value.
        Value { /// The expected value.
            value: &'a [u8] } = 5,
    }
}

choice! {
    /// One operation of a transaction. It sees the changes that earlier operations of the transaction made.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum KeyOperation<'a> {
        /// Writes a key.
        Put { /// The key.
            key: &'a [u8], /// The key's value.
            value: &'a [u8], /// The lease with which the key ends.
            lease: u64 } = 1,
        /// Deletes a key, if it exists.
        Delete { /// The key.
            key: &'a [u8] } = 2,
        /// Deletes the keys of a range, but at most the first `range_keys_max` of them.
        DeleteRange { /// The first key.
            start: &'a [u8], /// The end of the range, excluded.
            end: &'a [u8] } = 3,
        /// Reads a key.
        Get { /// The key.
            key: &'a [u8] } = 4,
        /// Reads the keys of a range, at most `limit`; 0 means the state's limit.
        Range { /// The first key.
            start: &'a [u8], /// The end of the range, excluded.
            end: &'a [u8], /// The maximum number of keys.
            limit: u32 } = 5,
    }
}

impl<'a> ControlCommand<'a> {
    /// Maximum number of items in each list of a client's command. This bound keeps decoding from taking too much
    /// memory. The state itself allows far fewer items: [`operations_max`](ControlStateLimits::operations_max).
    pub const CLIENT_ITEMS_MAX: usize = 64 << 10;

    /// Whether the command can enlarge the clients' stored data. A node whose disk is nearly full refuses such
    /// commands. The node still allows all commands of nodes. It also allows commands on leases and locks, because
    /// leases and locks are small and temporary.
    pub fn grows(&self) -> bool {
        match self {
            ControlCommand::Put { .. } | ControlCommand::PutIf { .. } | ControlCommand::Proclaim { .. } => {
                true
            }
            ControlCommand::Transaction { then, otherwise, .. } => {
                then.iter().chain(otherwise).any(|operation| matches!(operation, KeyOperation::Put { .. }))
            }
            ControlCommand::ByUser { command, .. } | ControlCommand::OfTenant { command, .. } => {
                ControlCommand::decode(command).is_ok_and(|command| command.grows())
            }
            _ => false,
        }
    }

    /// The numbers of the leases that the command uses; 0 for a put without a lease.
    pub fn leases(&self) -> Vec<u64> {
        match self {
            ControlCommand::Put { lease, .. }
            | ControlCommand::PutIf { lease, .. }
            | ControlCommand::Revoke { lease }
            | ControlCommand::Acquire { lease, .. }
            | ControlCommand::Release { lease, .. }
            | ControlCommand::Proclaim { lease, .. } => vec![*lease],
            ControlCommand::KeepAlive { leases } => leases.clone(),
            ControlCommand::Transaction { then, otherwise, .. } => {
                let operations = then.iter().chain(otherwise);
                let lease = |operation: &KeyOperation<'_>| match operation {
                    KeyOperation::Put { lease, .. } => Some(*lease),
                    _ => None,
                };
                operations.filter_map(lease).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether clients may propose the command. Other commands are reserved for the cluster's nodes.
    pub fn is_for_clients(&self) -> bool {
        matches!(
            self,
            ControlCommand::Put { .. }
                | ControlCommand::PutIf { .. }
                | ControlCommand::Delete { .. }
                | ControlCommand::DeleteIf { .. }
                | ControlCommand::DeleteRange { .. }
                | ControlCommand::Transaction { .. }
                | ControlCommand::Grant { .. }
                | ControlCommand::KeepAlive { .. }
                | ControlCommand::Revoke { .. }
                | ControlCommand::Acquire { .. }
                | ControlCommand::Release { .. }
                | ControlCommand::Proclaim { .. }
        )
    }

    /// The client's command without the `OfTenant` and `ByUser` around it; other commands are returned unchanged.
    pub fn unbound(&self) -> ControlCommand<'a> {
        match self.without_tenant() {
            // The inner command is valid, because `ControlCommand::decode` checks it.
            ref bound @ ControlCommand::ByUser { command, .. } => {
                decode(command).unwrap_or_else(|_| bound.clone())
            }
            command => command,
        }
    }

    /// The command without the `OfTenant` around it; other commands are returned unchanged.
    pub(crate) fn without_tenant(&self) -> ControlCommand<'a> {
        match self {
            ControlCommand::OfTenant { command, .. } => decode(command).unwrap_or_else(|_| self.clone()),
            _ => self.clone(),
        }
    }

    /// Appends the encoded command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a command that may delete several keys, and leaves out the command's user and tenant. Returns `None` for
    /// any other command. This function runs for every command and must be fast. It therefore returns `None` as soon as
    /// the encoded number of the command shows another variant.
    pub(crate) fn decode_deletion(mut bytes: &'a [u8]) -> Option<ControlCommand<'a>> {
        loop {
            match *bytes.get(1)? {
                DELETE_RANGE | TRANSACTION | REVOKE | SYSTEM => return decode(bytes).ok(),
                BY_USER | OF_TENANT => match decode(bytes).ok()? {
                    ControlCommand::ByUser { command, .. } | ControlCommand::OfTenant { command, .. } => {
                        bytes = command;
                    }
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    /// Decodes a command that a client sent. If the command contains another command, the inner one stays encoded.
    /// Refuses lists with more than [`CLIENT_ITEMS_MAX`](ControlCommand::CLIENT_ITEMS_MAX) items, because a decoded
    /// operation takes up to ten times the memory of its encoding.
    pub fn decode_from_client(bytes: &'a [u8]) -> Result<ControlCommand<'a>, ControlDecodeError> {
        decode_with_lists_up_to(ControlCommand::CLIENT_ITEMS_MAX, bytes)
    }

    /// Decodes a command; its keys and values borrow from `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<ControlCommand<'a>, ControlDecodeError> {
        let command: ControlCommand<'_> = decode(bytes)?;
        let (inner, is_clients) = match command {
            ControlCommand::ByUser { command, .. } => {
                (command, decode::<ControlCommand<'_>>(command)?.is_for_clients())
            }
            ControlCommand::OfTenant { command, .. } => {
                // Decodes one level and checks it before going deeper: a client may nest so many levels that recursion
                // would overflow the stack.
                match decode::<ControlCommand<'_>>(command)? {
                    ControlCommand::ByUser { .. } => {
                        ControlCommand::decode(command).map(|_by_user| (command, true))?
                    }
                    inner => (command, inner.is_for_clients()),
                }
            }
            _ => return Ok(command),
        };
        match is_clients {
            true => Ok(command),
            false => Err(ControlDecodeError::Unknown { what: "command of a client", number: inner[1] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_commands_grow_the_state_only_if_they_put_a_key() {
        let put = KeyOperation::Put { key: b"k", value: b"v", lease: 0 };
        let delete = KeyOperation::Delete { key: b"k" };
        let transaction = |then, otherwise| ControlCommand::Transaction { compare: vec![], then, otherwise };
        for grows in [
            ControlCommand::Put { key: b"k", value: b"v", lease: 0 },
            ControlCommand::PutIf { key: b"k", value: b"v", lease: 0, expect: 0 },
            transaction(vec![delete, put], vec![]),
            transaction(vec![], vec![put]),
        ] {
            assert!(grows.grows(), "{grows:?}");
        }
        for does_not in [
            ControlCommand::Delete { key: b"k" },
            ControlCommand::DeleteRange { start: b"k", end: b"" },
            transaction(vec![delete], vec![KeyOperation::Get { key: b"k" }]),
            ControlCommand::Revoke { lease: 1 },
            ControlCommand::KeepAlive { leases: vec![1] },
            ControlCommand::Release { name: b"l", lease: 1 },
            ControlCommand::System { compare: vec![], then: vec![put], otherwise: vec![] },
        ] {
            assert!(!does_not.grows(), "{does_not:?}");
        }
    }

    #[test]
    fn encoded_deletion_of_several_keys_is_recognized() {
        let lists = || (vec![], vec![KeyOperation::DeleteRange { start: b"a", end: b"" }], vec![]);
        let (compare, then, otherwise) = lists();
        let transaction = ControlCommand::Transaction { compare, then, otherwise };
        let (compare, then, otherwise) = lists();
        let system = ControlCommand::System { compare, then, otherwise };
        let range = ControlCommand::DeleteRange { start: b"a", end: b"" };
        let encoded = |command: &ControlCommand<'_>| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            bytes
        };
        for deletion in [range, transaction, ControlCommand::Revoke { lease: 1 }, system] {
            let plain = encoded(&deletion);
            let by_user = encoded(&ControlCommand::ByUser { user: b"u", all_leases: false, command: &plain });
            let of_tenant = encoded(&ControlCommand::OfTenant { tenant: b"t", command: &by_user });
            for bytes in [&plain, &by_user, &of_tenant] {
                assert_eq!(ControlCommand::decode_deletion(bytes).as_ref(), Some(&deletion));
            }
        }
        let put = encoded(&ControlCommand::Put { key: b"k", value: b"v", lease: 0 });
        let of_tenant = encoded(&ControlCommand::OfTenant { tenant: b"t", command: &put });
        assert_eq!([&put[..], &of_tenant, b""].map(ControlCommand::decode_deletion), [None, None, None]);
    }
}

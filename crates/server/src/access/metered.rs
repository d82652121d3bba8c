//! Which commands count as published records at a user's publish rate, for every protocol.

use dunlin::state::ControlCommand;

/// A command that may count as published records.
pub(crate) trait MeteredCommand {
    /// Number of records as which the command counts. The publish rate never refuses a command that counts as 0.
    fn published_records(&self) -> u64;
}

impl MeteredCommand for ControlCommand<'_> {
    /// A renewal of leases counts as 0: otherwise a lease, with its keys and locks, could end while its owner works.
    fn published_records(&self) -> u64 {
        match self {
            ControlCommand::KeepAlive { .. } => 0,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_of_leases_do_not_count_as_published() {
        let put = ControlCommand::Put { key: b"k", value: b"v", lease: 0 };
        let acquire = ControlCommand::Acquire { name: b"l", lease: 1, value: b"", wait: true };
        for counted in [put, acquire, ControlCommand::Grant { ttl_ms: 1 }] {
            assert_eq!(counted.published_records(), 1, "{counted:?}");
        }
        assert_eq!(ControlCommand::KeepAlive { leases: vec![1, 2] }.published_records(), 0);
    }
}

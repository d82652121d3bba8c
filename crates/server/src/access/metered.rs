//! Defines, for all protocols, how many records each command counts as. The user's publish rate limits these records.

use dunlin::scheduler::{NewTask, TaskCommand};
use dunlin::state::ControlCommand;

/// A command that may use up a user's publish rate, as published records do.
pub(crate) trait MeteredCommand {
    /// The number of records that the command counts as. With 0, the publish rate does not limit the command.
    fn published_records(&self) -> u64;
}

impl MeteredCommand for ControlCommand<'_> {
    /// Renewals of leases count as 0: a refused renewal could end a lease, with its keys and locks, while its holder
    /// still works. Moving a topic counts as 0 because it is an operator's request and stores no data.
    fn published_records(&self) -> u64 {
        match self {
            ControlCommand::KeepAlive { .. } | ControlCommand::Move { .. } => 0,
            _ => 1,
        }
    }
}

impl MeteredCommand for TaskCommand<'_> {
    /// Each submitted task counts as a record. Commands that change existing tasks, schedules, tenants or workers count
    /// as 0.
    fn published_records(&self) -> u64 {
        match self {
            TaskCommand::Submit { tasks, .. } => tasks.published_records(),
            _ => 0,
        }
    }
}

/// Several tasks in one request.
impl MeteredCommand for Vec<NewTask<'_>> {
    fn published_records(&self) -> u64 {
        self.len().max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_renewals_do_not_count_towards_the_publish_rate() {
        let put = ControlCommand::Put { key: b"k", value: b"v", lease: 0 };
        let acquire = ControlCommand::Acquire { name: b"l", lease: 1, value: b"", wait: true };
        for counted in [put, acquire, ControlCommand::Grant { ttl_ms: 1 }] {
            assert_eq!(counted.published_records(), 1, "{counted:?}");
        }
        assert_eq!(ControlCommand::KeepAlive { leases: vec![1, 2] }.published_records(), 0);
    }

    #[test]
    fn only_submitted_tasks_count_as_published_records() {
        let tasks = vec![NewTask::new(b"k", b""); 3];
        assert_eq!(TaskCommand::Submit { tenant: b"t", tasks }.published_records(), 3);
        let redrive = TaskCommand::Redrive { tenant: b"t", count: 9 };
        for free in [TaskCommand::Cancel { task: 1 }, TaskCommand::Retry { task: 1 }, redrive] {
            assert_eq!(free.published_records(), 0, "{free:?}");
        }
    }
}

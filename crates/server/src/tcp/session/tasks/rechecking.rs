//! Workers that may not do the tasks that they are attached for any more, because the users have changed.

use dunlin::raft::Commands;
use dunlin::scheduler::Command;
use dunlin::{Action, Refused, TopicError};

use super::super::Session;

impl Session {
    /// Ends the workers that are no longer allowed: what they hold goes to others, and their client is told why.
    pub(in crate::tcp::session) fn recheck_workers(&mut self) {
        let rule = self.node.task_rule();
        let mut commands = Commands::default();
        let attached = &mut self.tasking.attached;
        for (worker, ended) in
            attached.extract_if(|_, worker| !rule.serves(&worker.tenants)).collect::<Vec<_>>()
        {
            self.tasking.revoked.insert(worker);
            commands.push_with(|out| Command::Leave { worker }.encode(out));
            let error = TopicError::Forbidden { action: Action::Tasks, subject: "as a worker".to_owned() };
            self.refuse_tasks(ended.request, &Refused::from(&error));
        }
        if commands.is_empty() {
            return;
        }
        if let Some(tasks) = self.tasking.scheduler.upgrade() {
            // Where it cannot be done, the end of their leases does it: they cannot be kept alive any more.
            tokio::spawn(async move { tasks.propose_known(commands).await });
        }
    }
}

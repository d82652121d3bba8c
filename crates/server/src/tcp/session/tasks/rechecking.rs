//! Detaches a client's workers after its user has lost the permission for the workers' tenants.

use dunlin::raft::CommandBatch;
use dunlin::scheduler::TaskCommand;
use dunlin::{Action, Refused, TopicError};

use super::super::Session;

impl Session {
    /// Detaches workers that the user may no longer run. Their tasks go to other workers, and the client receives the
    /// reason.
    pub(in crate::tcp::session) fn recheck_workers(&mut self) {
        let rule = self.node.task_rule();
        let mut commands = CommandBatch::default();
        let attached = &mut self.task_requests.attached;
        for (worker, ended) in
            attached.extract_if(|_, worker| !rule.serves(&worker.tenants)).collect::<Vec<_>>()
        {
            self.task_requests.revoked.insert(worker);
            commands.push_with(|out| TaskCommand::Leave { worker }.encode(out));
            let error = TopicError::Forbidden { action: Action::Tasks, subject: "as a worker".to_owned() };
            self.refuse_tasks(ended.request, &Refused::from(&error));
        }
        if commands.is_empty() {
            return;
        }
        if let Some(tasks) = self.task_requests.scheduler.upgrade() {
            // If this fails, nobody renews the workers' leases, which then end.
            tokio::spawn(async move { tasks.propose_decoded(commands).await });
        }
    }
}

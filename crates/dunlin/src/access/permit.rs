//! Checks commands from clients, and adds the user's name to them, before they are sent to the cluster.
//!
//! When the cluster applies a command, it refuses the command if the command uses another user's lease. A task that
//! publishes a record contains the name of the user that submitted the task. When the task publishes, this user's
//! permission is checked again.
//!
//! Invariants:
//! - Listeners send the cluster only commands that this module has checked.
//! - Only this module adds a user's name to a command. It refuses a client's command that already contains a user's
//!   name.

use std::sync::Arc;

use dunlin_control::{
    ControlCommand, ControlQuery, ControlQueryResult, ControlReply, ControlState, NOT_SHOWN,
};
use dunlin_raft::CommandBatch;
use dunlin_tasks::{Destination, NewTask, PUBLISH, TaskCommand};
use dunlin_topic::Subject;

use super::{Action, TaskRule, User};
use crate::control::{Consistency, ControlGroup};
use crate::error::TopicError;
use crate::node::Node;
use crate::refusal::Refused;

impl Node {
    /// Adds a command about keys, leases or locks to `permitted`. Returns an error if the user lacks the permission for
    /// the command. `bytes` is the command's encoding.
    pub fn permit(
        &self,
        command: &ControlCommand<'_>,
        bytes: &[u8],
        permitted: &mut CommandBatch,
    ) -> Result<(), TopicError> {
        self.check_command(command)?;
        permitted.push(self.bound(command, bytes).as_deref().unwrap_or(bytes));
        Ok(())
    }

    /// Checks the permission for a command about keys, leases or locks, and proposes the command to the cluster.
    pub async fn execute(&self, command: &ControlCommand<'_>) -> Result<ControlReply, Refused> {
        let (control, bytes) = self.permitted(command).await?;
        control.execute_encoded(&bytes).await.map_err(|error| Refused::from(&error))
    }

    /// Checks the permission for the command. Returns the handle to the cluster and the bytes to propose.
    pub(super) async fn permitted(
        &self,
        command: &ControlCommand<'_>,
    ) -> Result<(Arc<ControlGroup>, Vec<u8>), Refused> {
        self.check_command(command).map_err(|error| Refused::from(&error))?;
        let control = self.control_async().await.map_err(|error| Refused::from(&error))?;
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        Ok((control, self.bound(command, &bytes).unwrap_or(bytes)))
    }

    /// Checks the permission for a query of keys, leases or locks, and answers the query.
    pub async fn query_keys(
        &self,
        consistency: Consistency,
        query: &ControlQuery<'_>,
    ) -> Result<ControlQueryResult, Refused> {
        self.may_query(query).map_err(|error| Refused::from(&error))?;
        let control = self.control_async().await.map_err(|error| Refused::from(&error))?;
        let found = control.read(consistency, |state| self.query_state(state, query)).await;
        found.map_err(|error| Refused::from(&error))?
    }

    /// Answers a query from `state` if the user's current permissions allow the query. Shows other users' leases only
    /// to a user that may read all keys. Shows totals over all tenants only to a user that may read all keys or the
    /// metrics of the whole node.
    pub fn query_state(
        &self,
        state: &ControlState,
        query: &ControlQuery<'_>,
    ) -> Result<ControlQueryResult, Refused> {
        self.may_query(query).map_err(|error| Refused::from(&error))?;
        let result = match (query, self.user()) {
            (ControlQuery::Lease { lease }, Some(user))
                if !may_read_all_keys(user) && state.lease_owner(*lease) != Some(user.name().as_bytes()) =>
            {
                Ok(ControlQueryResult::Leases { leases: Vec::new(), more: false })
            }
            (ControlQuery::Status, Some(user))
                if !may_read_all_keys(user) && self.may_survey_node().is_err() =>
            {
                let mut result = state.answer(query);
                if let Ok(ControlQueryResult::Status { keys, bytes, leases, .. }) = &mut result {
                    [*keys, *bytes, *leases] = [NOT_SHOWN; 3];
                }
                result
            }
            _ => state.answer(query),
        };
        result.map_err(|refusal| Refused::from(&refusal))
    }

    pub(super) fn check_command(&self, command: &ControlCommand<'_>) -> Result<(), TopicError> {
        let forbidden = |(action, subject)| TopicError::Forbidden { action, subject };
        if !command.is_for_clients() {
            return Err(forbidden((Action::WriteKeys, "the cluster".to_owned())));
        }
        let Some(user) = self.user() else { return Ok(()) };
        user.permissions().keys.command(command).map_err(forbidden)
    }

    /// Adds the user's name to a command that creates or uses a lease. Adds the user's tenant to a command that makes
    /// the state larger, requests a lock or creates a lease. Returns the new bytes, or `None` if nothing has to be
    /// added.
    fn bound(&self, command: &ControlCommand<'_>, bytes: &[u8]) -> Option<Vec<u8>> {
        let encoded = |command: ControlCommand<'_>| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            bytes
        };
        let by_user = self.bound_to_user(command, bytes).map(encoded);
        let is_counted = command.grows()
            || matches!(command, ControlCommand::Acquire { .. } | ControlCommand::Grant { .. });
        match self.user().filter(|_| is_counted).map(|user| user.permissions()) {
            Some(permissions) if !permissions.tasks.tenant.is_empty() => {
                let tenant = permissions.tasks.tenant.as_bytes();
                Some(encoded(ControlCommand::OfTenant {
                    tenant,
                    command: by_user.as_deref().unwrap_or(bytes),
                }))
            }
            _ => by_user,
        }
    }

    /// Returns the command with the user's name added, or `None` if the command neither creates nor uses a lease.
    fn bound_to_user<'c>(
        &'c self,
        command: &ControlCommand<'_>,
        bytes: &'c [u8],
    ) -> Option<ControlCommand<'c>> {
        let (user, all_leases) = match self.user() {
            Some(user) => (user.name().as_bytes(), may_write_all_keys(user)),
            None => (&b""[..], true),
        };
        let grants = matches!(command, ControlCommand::Grant { .. });
        let is_bound = grants || command.leases().iter().any(|lease| *lease > 0);
        is_bound.then_some(ControlCommand::ByUser { user, all_leases, command: bytes })
    }

    /// Adds a command about tasks to `permitted`. Returns an error if the user lacks the permission for the command.
    /// `rule` is the result of [`Node::task_rule`]; `bytes` is the command's encoding, if the caller has it.
    pub fn permit_task(
        &self,
        rule: &TaskRule,
        command: &TaskCommand<'_>,
        bytes: Option<&[u8]>,
        permitted: &mut CommandBatch,
    ) -> Result<(), TopicError> {
        let allowed = rule.command(command, &|task| self.tenant_of_task(task));
        allowed.map_err(|subject| TopicError::Forbidden { action: Action::Tasks, subject })?;
        let destinations = match command {
            TaskCommand::Submit { tasks, .. } => tasks.iter().map(|task| self.destination(task)).collect(),
            TaskCommand::Schedule { task, .. } => vec![self.destination(task)],
            _ => Vec::new(),
        };
        let destinations = destinations.into_iter().collect::<Result<Vec<_>, _>>()?;
        let is_bound = destinations.iter().any(Option::is_some);
        match (bound(command, &destinations).filter(|_| is_bound), bytes) {
            (Some(bound), _) => permitted.push_with(|out| bound.encode(out)),
            (None, Some(bytes)) => permitted.push(bytes),
            (None, None) => permitted.push_with(|out| command.encode(out)),
        }
        Ok(())
    }

    /// Checks the permission for a command about tasks, and proposes the command to the cluster.
    pub async fn execute_task_command(
        &self,
        command: &TaskCommand<'_>,
    ) -> Result<dunlin_tasks::CommandReply, Refused> {
        let mut permitted = CommandBatch::default();
        let allowed = self.permit_task(&self.task_rule(), command, None, &mut permitted);
        allowed.map_err(|error| Refused::from(&error))?;
        let tasks = self.tasks_async().await.map_err(|error| Refused::from(&error))?;
        let responses = tasks.propose_decoded(permitted).await;
        responses
            .and_then(|responses| crate::tasks::decode_reply(&responses))
            .map_err(|error| Refused::from_task_error(command, &error))
    }

    /// For a task that publishes on a node with users, returns the task's subject and user, encoded together. Returns
    /// `None` for other tasks, and on a node without users. Returns an error if the user may not publish to the
    /// subject.
    fn destination(&self, task: &NewTask<'_>) -> Result<Option<Vec<u8>>, TopicError> {
        // A task publishes only if its kind is `PUBLISH` and it has a subject. The cluster refuses a task whose kind
        // and subject do not fit together.
        if task.kind != PUBLISH || task.subject.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(task.subject);
        let subject = Subject::parse(&text)?;
        if subject.is_system() {
            return Err(TopicError::Reserved(subject.as_str().to_owned()));
        }
        self.may_publish(subject)?;
        let user = self.user().map(|user| user.name().as_bytes());
        Ok(user.map(|user| Destination { subject: task.subject, user: Some(user) }.bytes()))
    }
}

/// Whether the user may read every key, and thus see every user's leases.
fn may_read_all_keys(user: &Arc<dyn User>) -> bool {
    user.permissions().keys.may_read(b"", b"")
}

/// Whether the user may write every key, and thus use every user's leases.
fn may_write_all_keys(user: &Arc<dyn User>) -> bool {
    user.permissions().keys.may_write(b"", b"")
}

/// Returns the command with `destinations` added to its tasks, one for each task. Returns `None` for a command without
/// tasks.
fn bound<'c>(command: &TaskCommand<'c>, destinations: &'c [Option<Vec<u8>>]) -> Option<TaskCommand<'c>> {
    let with = |(task, destination): (&NewTask<'c>, &'c Option<Vec<u8>>)| match destination {
        Some(subject) => NewTask { subject, ..task.clone() },
        None => task.clone(),
    };
    match command {
        TaskCommand::Submit { tenant, tasks } => {
            Some(TaskCommand::Submit { tenant, tasks: tasks.iter().zip(destinations).map(with).collect() })
        }
        TaskCommand::Schedule { tenant, name, cron, task } => {
            let task = with((task, destinations.first()?));
            Some(TaskCommand::Schedule { tenant, name, cron, task })
        }
        _ => None,
    }
}

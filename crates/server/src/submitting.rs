//! Submits tasks for those listeners that handle each request in its own async task.
//!
//! If a request names no tenant, its tasks belong to the user's tenant. With `auto_create`, a tenant that does not
//! exist is created.

use dunlin::raft::CommandBatch;
use dunlin::scheduler::{
    CommandReply, ExcessValues, NewTask, SubmittedTask, TaskCommand, TaskCommandOutcome, TaskRefusal,
    no_tenant,
};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused, TaskRule};

/// The result of a request to submit tasks.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// The submitted tasks, in the order of the request.
    pub(crate) tasks: Vec<SubmittedTask>,
    /// How long the client should wait before it submits more tasks, ms. The time is above 0 only if many tasks wait.
    pub(crate) slow_down_ms: u32,
}

/// Submits all of the tasks. If the user may not submit one of them, fails and submits none.
pub(crate) async fn submit(
    node: &Node,
    rule: &TaskRule,
    tenant: &str,
    tasks: Vec<NewTask<'_>>,
) -> Result<Submitted, Refused> {
    let tenant = if tenant.is_empty() { rule.tenant.as_bytes() } else { tenant.as_bytes() };
    let command = TaskCommand::Submit { tenant, tasks };
    let scheduler = node.tasks_async().await.map_err(|error| Refused::from(&error))?;
    let mut commands = CommandBatch::default();
    if node.config().auto_create && !tenant.is_empty() {
        commands.push_with(|out| TaskCommand::EnsureTenant { tenant }.encode(out));
    }
    node.permit_task(rule, &command, None, &mut commands).map_err(|error| Refused::from(&error))?;
    let outcomes = scheduler.propose(commands).await.map_err(|error| Refused::from(&error))?;
    match outcomes.into_iter().last() {
        Some(TaskCommandOutcome::Done { reply: CommandReply::Submitted { tasks, slow_down_ms } }) => {
            Ok(Submitted { tasks, slow_down_ms })
        }
        Some(TaskCommandOutcome::Refused { refusal: TaskRefusal::NoTenant }) => {
            Err(Refused::new(ErrorCode::TenantUnknown, no_tenant(tenant)))
        }
        Some(TaskCommandOutcome::Refused { refusal }) => {
            Err(Refused::from_task_refusal(&refusal, ExcessValues::of(&command).as_deref()))
        }
        _ => Err(unexpected_reply()),
    }
}

/// The refusal for a client if the cluster's reply does not fit the request.
pub(crate) fn unexpected_reply() -> Refused {
    Refused::new(
        ErrorCode::Internal,
        "the cluster's reply does not fit the request; update all nodes to the same version",
    )
}

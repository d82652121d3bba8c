//! Tasks as doors submit them that answer each request by itself.
//!
//! Where no tenant is named they are the user's own tenant's; where topics come into being by being used, so do tenants.

use dunlin::raft::Commands;
use dunlin::scheduler::{Answered, Command, NewTask, Refusal, Reply, Taken, no_tenant};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused, TaskRule};

/// What came of tasks that were submitted together.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// In the order in which they came.
    pub(crate) tasks: Vec<Taken>,
    /// Much waits already: submit so much more slowly.
    pub(crate) slow_down_ms: u32,
}

/// Has the cluster take tasks in, all or none, of whoever may submit them.
pub(crate) async fn submit(
    node: &Node,
    rule: &TaskRule,
    tenant: &str,
    tasks: Vec<NewTask<'_>>,
) -> Result<Submitted, Refused> {
    let tenant = if tenant.is_empty() { rule.tenant.as_bytes() } else { tenant.as_bytes() };
    let command = Command::Submit { tenant, tasks };
    let scheduler = node.tasks_async().await.map_err(|error| Refused::from(&error))?;
    let mut commands = Commands::default();
    if node.config().auto_create && !tenant.is_empty() {
        commands.push_with(|out| Command::Found { tenant }.encode(out));
    }
    node.permit_task(rule, &command, None, &mut commands).map_err(|error| Refused::from(&error))?;
    let answers = scheduler.propose(commands).await.map_err(|error| Refused::from(&error))?;
    match answers.into_iter().last() {
        Some(Answered::Done { reply: Reply::Submitted { tasks, slow_down_ms } }) => {
            Ok(Submitted { tasks, slow_down_ms })
        }
        Some(Answered::Refused { refusal: Refusal::NoTenant }) => {
            Err(Refused::new(ErrorCode::TenantUnknown, no_tenant(tenant)))
        }
        Some(Answered::Refused { refusal }) => Err(Refused::from(&refusal)),
        _ => Err(odd()),
    }
}

/// What was not expected of the cluster.
pub(crate) fn odd() -> Refused {
    Refused::new(ErrorCode::Internal, "the cluster answered something else than was asked")
}

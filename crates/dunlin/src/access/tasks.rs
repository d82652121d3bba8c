//! Permissions for tasks.
//!
//! `submit` allows a user to submit and manage tasks of the user's own tenant. `work` lets the user's workers run
//! tasks, of all tenants or of named ones. `manage` allows everything, for any tenant.

use std::collections::BTreeSet;
use std::fmt;

use dunlin_tasks::{TaskCommand, TaskQuery};

/// A user's permissions for tasks: to submit, run and manage them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskRule {
    /// The user's tenant.
    pub tenant: String,
    /// Whether the user may submit, see, cancel, retry and discard tasks of the user's tenant.
    pub submit: bool,
    /// The tenants whose tasks the user's workers may run.
    pub work: WorkScope,
    /// Whether the user may do everything for any tenant, including changes of shares and quotas.
    pub manage: bool,
}

/// The tenants whose tasks a worker may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WorkScope {
    /// The worker may run no tasks.
    #[default]
    None,
    /// The worker may run only these tenants' tasks.
    Of(BTreeSet<String>),
    /// The worker may run all tenants' tasks.
    All,
}

impl WorkScope {
    /// Whether the worker may run tasks of at least one tenant.
    pub fn is_any(&self) -> bool {
        *self != WorkScope::None
    }

    fn includes(&self, tenant: &[u8]) -> bool {
        match self {
            WorkScope::None => false,
            WorkScope::Of(tenants) => tenants.iter().any(|allowed| allowed.as_bytes() == tenant),
            WorkScope::All => true,
        }
    }
}

/// A function that returns the tenant of a task, or `None` if the task does not exist.
type TenantOf<'f> = &'f dyn Fn(u64) -> Option<Vec<u8>>;

impl TaskRule {
    /// A rule that allows everything.
    pub fn all(tenant: &str) -> TaskRule {
        TaskRule { tenant: tenant.to_owned(), submit: true, work: WorkScope::All, manage: true }
    }

    fn owns(&self, tenant: &[u8]) -> bool {
        self.manage || self.submit && tenant == self.tenant.as_bytes()
    }

    fn owns_task(&self, task: u64, tenant_of: TenantOf<'_>) -> bool {
        self.manage || tenant_of(task).is_some_and(|tenant| self.owns(&tenant))
    }

    /// Returns the tenants whose tasks a worker receives if it requests the tasks of the tenants `requested`. Returns
    /// `None` if the user lacks the permission for one of the requested tenants. An empty list means all tenants, in
    /// the argument and in the result.
    pub fn serve(&self, requested: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
        match &self.work {
            WorkScope::Of(tenants) if requested.is_empty() && !self.manage => {
                Some(tenants.iter().map(|tenant| tenant.clone().into_bytes()).collect())
            }
            _ => self.serves(&requested).then_some(requested),
        }
    }

    /// Whether a worker of this user may run the tasks of all these tenants. An empty list means all tenants.
    pub fn serves(&self, tenants: &[Vec<u8>]) -> bool {
        match &self.work {
            _ if self.manage => true,
            WorkScope::All => true,
            work => !tenants.is_empty() && tenants.iter().all(|tenant| work.includes(tenant)),
        }
    }

    /// Whether the user's workers may run tasks of named tenants only. The caller must then check which tenants each
    /// worker requests.
    pub fn is_bounded(&self) -> bool {
        !self.manage && matches!(self.work, WorkScope::Of(_))
    }

    /// Checks the permission for a command; the error names the command.
    pub fn command(&self, command: &TaskCommand<'_>, tenant_of: TenantOf<'_>) -> Result<(), String> {
        let allowed = match *command {
            TaskCommand::Submit { tenant, .. }
            | TaskCommand::Redrive { tenant, .. }
            | TaskCommand::RedriveSafe { tenant, .. }
            | TaskCommand::Discard { tenant, .. }
            | TaskCommand::Schedule { tenant, .. }
            | TaskCommand::Unschedule { tenant, .. }
            | TaskCommand::EnsureTenant { tenant } => self.owns(tenant),
            TaskCommand::Cancel { task } | TaskCommand::Retry { task } => self.owns_task(task, tenant_of),
            TaskCommand::Pull { .. }
            | TaskCommand::Slots { .. }
            | TaskCommand::Renew { .. }
            | TaskCommand::Complete { .. }
            | TaskCommand::Fail { .. }
            | TaskCommand::Progress { .. }
            | TaskCommand::Extend { .. }
            | TaskCommand::Drain { .. }
            | TaskCommand::Leave { .. }
            | TaskCommand::Join { .. } => self.work.is_any() || self.manage,
            TaskCommand::Tenant { .. } => self.manage,
            // Clients may not send these commands. Only nodes send them, to each other.
            TaskCommand::Published { .. }
            | TaskCommand::Unpublished { .. }
            | TaskCommand::Clock { .. }
            | TaskCommand::BeginRestored { .. }
            | TaskCommand::Limit { .. }
            | TaskCommand::Enlist { .. } => false,
        };
        if allowed { Ok(()) } else { Err(display_command(command)) }
    }

    /// Checks the permission for a query; the error names the task or the kind of data.
    pub fn query(&self, query: &TaskQuery<'_>, tenant_of: TenantOf<'_>) -> Result<(), String> {
        let (allowed, what) = match *query {
            TaskQuery::Get { task } | TaskQuery::Why { task } => {
                let is_permitted_tenant = || {
                    tenant_of(task).is_some_and(|tenant| self.owns(&tenant) || self.work.includes(&tenant))
                };
                (
                    self.manage || self.work == WorkScope::All || is_permitted_tenant(),
                    format!("task {task:x}"),
                )
            }
            TaskQuery::List { ref filter, .. } => {
                (self.owns(filter.tenant), "tasks of other tenants".to_owned())
            }
            TaskQuery::Queues { tenant } | TaskQuery::Tenants { tenant } => {
                (self.owns(tenant), "tasks of other tenants".to_owned())
            }
            TaskQuery::Workers | TaskQuery::Signals | TaskQuery::Status => {
                (self.manage || self.work == WorkScope::All, "workers".to_owned())
            }
        };
        if allowed { Ok(()) } else { Err(what) }
    }

    /// Whether the rule allows anything.
    pub fn is_any(&self) -> bool {
        self.submit || self.work.is_any() || self.manage
    }

    /// The tenant whose task events the user may read. `Some(None)` means all tenants, `None` means no tenant.
    pub(super) fn readable_tenant(&self) -> Option<Option<String>> {
        match (self.manage, self.submit) {
            (true, _) => Some(None),
            (false, true) => Some(Some(self.tenant.clone())),
            (false, false) => None,
        }
    }
}

/// Writes the rule in the format of the users file.
impl fmt::Display for TaskRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.submit.then(|| "submit".to_owned()));
        match &self.work {
            WorkScope::None => {}
            WorkScope::Of(tenants) => words.extend(tenants.iter().map(|tenant| format!("work:{tenant}"))),
            WorkScope::All => words.push("work".to_owned()),
        }
        words.extend(self.manage.then(|| "manage".to_owned()));
        f.write_str(&words.join(" "))
    }
}

fn display_command(command: &TaskCommand<'_>) -> String {
    match *command {
        TaskCommand::Submit { tenant, .. }
        | TaskCommand::Redrive { tenant, .. }
        | TaskCommand::RedriveSafe { tenant, .. }
        | TaskCommand::Discard { tenant, .. }
        | TaskCommand::Schedule { tenant, .. }
        | TaskCommand::Unschedule { tenant, .. }
        | TaskCommand::EnsureTenant { tenant } => format!("of tenant {}", String::from_utf8_lossy(tenant)),
        TaskCommand::Cancel { task } | TaskCommand::Retry { task } => format!("task {task:x}"),
        TaskCommand::Tenant { .. } => "shares and quotas".to_owned(),
        TaskCommand::Published { .. }
        | TaskCommand::Unpublished { .. }
        | TaskCommand::Clock { .. }
        | TaskCommand::BeginRestored { .. }
        | TaskCommand::Limit { .. }
        | TaskCommand::Enlist { .. } => "what nodes tell one another".to_owned(),
        _ => "as a worker".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(submit: bool, work: bool, manage: bool) -> TaskRule {
        let work = if work { WorkScope::All } else { WorkScope::None };
        TaskRule { tenant: "acme".to_owned(), submit, work, manage }
    }

    #[test]
    fn submitter_reaches_only_the_tasks_of_its_tenant() {
        let tenant_of = |task| Some(if task == 1 { b"acme".to_vec() } else { b"other".to_vec() });
        let submit = |tenant| TaskCommand::Submit { tenant, tasks: vec![] };
        let user = rule(true, false, false);
        assert!(user.command(&submit(b"acme"), &tenant_of).is_ok());
        assert!(user.command(&submit(b"other"), &tenant_of).is_err());
        assert!(user.command(&TaskCommand::Cancel { task: 1 }, &tenant_of).is_ok());
        assert!(user.command(&TaskCommand::Cancel { task: 2 }, &tenant_of).is_err());
        assert!(user.command(&TaskCommand::Renew { workers: vec![] }, &tenant_of).is_err());
        assert!(user.query(&TaskQuery::Get { task: 2 }, &tenant_of).is_err());
        assert!(user.query(&TaskQuery::Tenants { tenant: b"" }, &tenant_of).is_err());
        assert!(user.query(&TaskQuery::Tenants { tenant: b"acme" }, &tenant_of).is_ok());
    }

    #[test]
    fn permission_to_manage_excludes_internal_commands() {
        let tenant_of = |_| None;
        let worker = rule(false, true, false);
        assert!(worker.command(&TaskCommand::Renew { workers: vec![] }, &tenant_of).is_ok());
        assert!(worker.command(&TaskCommand::Submit { tenant: b"acme", tasks: vec![] }, &tenant_of).is_err());
        let manager = rule(false, false, true);
        assert!(manager.command(&TaskCommand::Cancel { task: 9 }, &tenant_of).is_ok());
        assert!(manager.command(&TaskCommand::Clock { unix_ms: 1 }, &tenant_of).is_err());
        assert!(manager.command(&TaskCommand::BeginRestored { unix_ms: 1 }, &tenant_of).is_err());
        let limits = dunlin_tasks::SchedulerLimits { state_bytes_max: u64::MAX, ..Default::default() };
        assert!(manager.command(&TaskCommand::Limit { limits }, &tenant_of).is_err());
        assert!(!rule(false, false, false).is_any());
    }

    #[test]
    fn worker_bound_to_tenants_reaches_only_their_tasks() {
        let tenant_of = |task| Some(if task == 1 { b"acme".to_vec() } else { b"other".to_vec() });
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        let work = WorkScope::Of(["acme".to_owned(), "beta".to_owned()].into());
        let worker = TaskRule { work, ..rule(false, false, false) };
        assert!(worker.is_bounded());
        assert_eq!(worker.to_string(), "work:acme work:beta");
        assert_eq!(worker.serve(vec![]), Some(names(&["acme", "beta"])));
        assert_eq!(worker.serve(names(&["beta"])), Some(names(&["beta"])));
        assert_eq!(worker.serve(names(&["beta", "other"])), None);
        assert!(worker.query(&TaskQuery::Get { task: 1 }, &tenant_of).is_ok());
        assert!(worker.query(&TaskQuery::Why { task: 2 }, &tenant_of).is_err());
        assert!(worker.query(&TaskQuery::Workers, &tenant_of).is_err());
        assert!(worker.command(&TaskCommand::Cancel { task: 1 }, &tenant_of).is_err());
        assert_eq!(rule(false, true, false).serve(names(&["other"])), Some(names(&["other"])));
        assert_eq!(rule(true, false, false).serve(vec![]), None);
    }
}

//! Finds the values of a command for which the scheduler refuses the command, so that the refusal's text can name them.
//!
//! A [`TaskRefusal`] travels between nodes and has no room for a field's name or for all parts of a quota. The node
//! that received the command from the client knows the command's fields, and adds them to the text.

use crate::command::{Label, NewTask, NewWorker, TaskCommand, TenantSettings};
use crate::destination::Destination;
use crate::error::TaskRefusal;
use crate::limits::SchedulerLimits;
use crate::quota::Quota;
use crate::tenant::WEIGHT_MAX;

/// The values in a command that exceed the scheduler's limits or that contradict each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExcessValues {
    /// The field and the length of the first name that is too long. The order is that in which the scheduler checks
    /// names.
    name: Option<(&'static str, u64)>,
    weight: Option<u32>,
    /// The first quota whose parts contradict each other.
    quota: Option<(&'static str, Quota)>,
}

impl ExcessValues {
    /// Finds the values that the default limits do not allow. Returns `None` if there are no such values, as in most
    /// commands.
    pub fn of(command: &TaskCommand<'_>) -> Option<Box<ExcessValues>> {
        let mut excess = ExcessValues::default();
        match command {
            TaskCommand::Tenant { tenant } => excess.check_tenant(tenant),
            TaskCommand::Submit { tenant, tasks } => {
                excess.check_name("tenant", tenant);
                tasks.iter().for_each(|task| excess.check_task(task));
            }
            TaskCommand::Join { worker } | TaskCommand::Enlist { worker, .. } => excess.check_worker(worker),
            TaskCommand::Schedule { tenant, name, cron, task } => {
                excess.check_name("tenant", tenant);
                excess.check_name("schedule", name);
                excess.check_name("cron expression", cron);
                excess.check_task(task);
            }
            TaskCommand::Redrive { tenant, .. }
            | TaskCommand::RedriveSafe { tenant, .. }
            | TaskCommand::Discard { tenant, .. }
            | TaskCommand::Unschedule { tenant, .. }
            | TaskCommand::EnsureTenant { tenant } => excess.check_name("tenant", tenant),
            _ => {}
        }
        (excess != ExcessValues::default()).then(|| Box::new(excess))
    }

    /// The text of the refusal, with the value that was refused. Returns `None` if none of these values is the reason
    /// for the refusal.
    pub fn text(&self, refusal: &TaskRefusal) -> Option<String> {
        match *refusal {
            TaskRefusal::NameTooLong { bytes, bytes_max } => {
                let (field, _) = self.name.filter(|(_, found)| *found == bytes)?;
                Some(format!(
                    "the {field} is too long: name_bytes_max = {bytes_max}, but the size is {bytes}"
                ))
            }
            TaskRefusal::Weight => Some(format!("weight {} is not one of 1 to {WEIGHT_MAX}", self.weight?)),
            TaskRefusal::Quota => {
                let (field, Quota { reserved, soft, hard, burst }) = self.quota?;
                Some(format!(
                    "{refusal}; {field}: reserved {reserved}, soft {soft}, hard {hard}, burst {burst}"
                ))
            }
            _ => None,
        }
    }

    fn check_name(&mut self, field: &'static str, name: &[u8]) {
        let bytes = name.len() as u64;
        if bytes > u64::from(SchedulerLimits::default().name_bytes_max) {
            self.name.get_or_insert((field, bytes));
        }
    }

    fn check_labels(&mut self, fields: [&'static str; 2], labels: &[Label<'_>]) {
        labels.iter().for_each(|label| self.check_name(fields[0], label.key));
        labels.iter().for_each(|label| self.check_name(fields[1], label.value));
    }

    fn check_task(&mut self, task: &NewTask<'_>) {
        self.check_name("queue", task.queue);
        self.check_name("kind", task.kind);
        self.check_name("idempotency key", task.idempotency_key);
        self.check_name("subject", Destination::read(task.subject).subject);
        self.check_labels(["key of a label", "value of a label"], &task.labels);
        self.check_labels(["key of a needed label", "value of a needed label"], &task.needs);
    }

    fn check_worker(&mut self, worker: &NewWorker<'_>) {
        self.check_name("worker's name", worker.name);
        for (field, names) in
            [("kind", &worker.kinds), ("queue", &worker.queues), ("tenant", &worker.tenants)]
        {
            names.iter().for_each(|name| self.check_name(field, name));
        }
        self.check_labels(["key of a label", "value of a label"], &worker.labels);
    }

    fn check_tenant(&mut self, tenant: &TenantSettings<'_>) {
        self.check_name("tenant", tenant.name);
        self.weight = Some(tenant.weight).filter(|weight| !(1..=WEIGHT_MAX).contains(weight));
        let quotas = [
            ("concurrency", tenant.concurrency),
            ("cpu_milli", tenant.cpu_milli),
            ("memory_bytes", tenant.memory_bytes),
        ];
        self.quota = quotas.into_iter().find(|(_, quota)| !quota.is_ordered());
        tenant.limits.iter().for_each(|limit| self.check_name("key of a limit", limit.key));
    }
}

//! Schedules: each schedule submits a task at every time that matches a cron expression, in UTC.
//!
//! If the cluster was stopped or its clock was changed, a single task is submitted for all missed times. No task is
//! submitted for a time for which one was submitted before. If the tenant has no room for a task when a time comes, the
//! schedule skips this time.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Utc};
use croner::parser::{CronParser, Seconds};
use croner::{Cron, CronDateTime};

use crate::command::NewTask;
use crate::effects::TaskEffects;
use crate::error::{Limit, TaskDecodeError, TaskRefusal};
use crate::layout::{Fields, Later, Layout, layout};
use crate::limits::SchedulerLimits;
use crate::reply::CommandReply;
use crate::state::{SCHEDULE, SchedulerState};
use crate::task::NEVER_MS;

layout! {
    /// A schedule that submits a task at each time of a cron expression.
    #[derive(Debug, Clone)]
    pub struct Schedule {
        pub tenant: u32,
        pub name: Arc<[u8]>,
        pub cron: Arc<[u8]>,
        /// The encoded task that the schedule submits.
        pub task: Arc<[u8]>,
        /// Next time of the schedule, in milliseconds since 1970.
        pub next_unix_ms: u64,
        /// Next time of the schedule, on the cluster's clock.
        pub due_ms: u64,
        /// Number of times that the schedule was due.
        pub due_count: u64,
        /// Number of times that the schedule was due but submitted no task, for lack of room.
        pub skipped_count: u64,
    }
}

/// An expression must match a day within this number of years. The longest pause of a useful expression is 40 years,
/// for example from one 29 February that is a Monday to the next one, across the year 2100. Without this bound, the
/// crate `croner` would search up to the year 5000 for a time that does not exist. Such a search would delay the
/// scheduler by milliseconds.
const SEARCH_YEARS: i32 = 50;

/// Counted size of a schedule in addition to its name, expression and task, bytes.
const SCHEDULE_BYTES: u64 = 256;

impl Schedule {
    /// Counted size, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        SCHEDULE_BYTES + (self.name.len() + self.cron.len() + self.task.len()) as u64
    }

    fn new_task(&self) -> Result<NewTask<'_>, TaskDecodeError> {
        let mut fields = Fields { rest: &self.task };
        let mut task = NewTask::read(&mut fields)?;
        if !fields.rest.is_empty() {
            task.read_more(&mut fields)?;
        }
        Ok(task)
    }
}

impl SchedulerState {
    pub(crate) fn schedule(
        &mut self,
        tenant: &[u8],
        name: &[u8],
        cron: &[u8],
        task: &NewTask<'_>,
    ) -> Result<CommandReply, TaskRefusal> {
        let tenant = self.find_tenant(tenant)?;
        self.check_name(name)?;
        self.check_length(cron)?;
        self.check_task(task)?;
        let has_times = (task.not_before_ms, task.deadline_ms) != (0, 0);
        if has_times || !task.after.is_empty() || !task.idempotency_key.is_empty() {
            return Err(TaskRefusal::ScheduledTask);
        }
        let next_unix_ms = next_after(cron, self.unix_ms()).ok_or(TaskRefusal::Cron)?;
        let known = self.schedule_at.get(&(tenant, Arc::from(name))).copied();
        let count = u64::from(self.schedules.len()) + u64::from(known.is_none());
        Limit::Schedules.check(count, u64::from(self.limits.schedules_max))?;
        let own_max = SchedulerLimits::SCHEDULES_OF_TENANT_MAX.into();
        // The tenant's schedules are counted only if all tenants together have more schedules than one tenant may have.
        if count > own_max {
            let first = (tenant, Arc::<[u8]>::default());
            let own = self.schedule_at.range(first..).take_while(|(key, _)| key.0 == tenant).count() as u64;
            Limit::SchedulesOfTenant.check(own + u64::from(known.is_none()), own_max)?;
        }
        let mut bytes = Vec::new();
        task.write(&mut bytes);
        if task.has_later_fields() {
            task.write_more(&mut bytes);
        }
        let (name, cron): (Arc<[u8]>, Arc<[u8]>) = (name.into(), cron.into());
        let (task, due_ms) = (bytes.into(), NEVER_MS);
        let new = Schedule {
            tenant,
            name: name.clone(),
            cron,
            task,
            next_unix_ms,
            due_ms,
            due_count: 0,
            skipped_count: 0,
        };
        let before = known.map_or(0, |at| self.schedules[at].bytes());
        self.check_growth(tenant, new.bytes().saturating_sub(before))?;
        self.count_bytes(tenant, new.bytes(), before, false);
        let at = match known {
            Some(at) => {
                let (due_count, skipped_count) =
                    (self.schedules[at].due_count, self.schedules[at].skipped_count);
                self.set_schedule_due(at, NEVER_MS);
                self.schedules[at] = Schedule { due_count, skipped_count, ..new };
                at
            }
            None => self.schedules.insert(new),
        };
        self.schedule_at.insert((tenant, name), at);
        self.set_next_time(at, next_unix_ms);
        Ok(CommandReply::Done)
    }

    pub(crate) fn unschedule(&mut self, tenant: &[u8], name: &[u8]) -> Result<CommandReply, TaskRefusal> {
        let tenant = self.find_tenant(tenant)?;
        let key = (tenant, Arc::from(name));
        let at = self.schedule_at.remove(&key).ok_or(TaskRefusal::NoSchedule)?;
        self.set_schedule_due(at, NEVER_MS);
        self.count_bytes(tenant, 0, self.schedules[at].bytes(), false);
        self.schedules.remove(at);
        Ok(CommandReply::Done)
    }

    pub(crate) fn fire_schedule_timer(&mut self, at: u32, effects: &mut TaskEffects) {
        self.set_schedule_due(at, NEVER_MS);
        let schedule = self.schedules[at].clone();
        let tenant = self.tenants[schedule.tenant as usize].name.clone();
        let taken = match schedule.new_task() {
            Ok(task) => self.submit(&tenant, &[task], effects).is_ok(),
            Err(_) => false,
        };
        self.schedules[at].due_count += 1;
        self.schedules[at].skipped_count += u64::from(!taken);
        let from_ms = self.unix_ms().max(schedule.next_unix_ms);
        if let Some(next_unix_ms) = next_after(&schedule.cron, from_ms) {
            self.set_next_time(at, next_unix_ms);
        }
    }

    /// Handles a change of the clock. The schedules keep their times of day, so their times on the cluster's clock
    /// change.
    pub(crate) fn set_clock(&mut self, unix_ms: u64) {
        self.unix_offset_ms =
            (i128::from(unix_ms) - i128::from(self.now_ms)).clamp(0, i64::MAX.into()) as i64;
        let all: Vec<_> = self.schedules.iter_from(0).map(|(at, found)| (at, found.next_unix_ms)).collect();
        all.into_iter().for_each(|(at, next_unix_ms)| self.set_next_time(at, next_unix_ms));
    }

    fn set_next_time(&mut self, at: u32, next_unix_ms: u64) {
        self.schedules[at].next_unix_ms = next_unix_ms;
        // The due time is at least one ms from now, so that the loop over due schedules ends.
        let due_ms = next_unix_ms.saturating_sub_signed(self.unix_offset_ms).max(self.now_ms + 1);
        self.set_schedule_due(at, due_ms);
    }

    fn set_schedule_due(&mut self, at: u32, due_ms: u64) {
        let schedule = &mut self.schedules[at];
        if schedule.due_ms != NEVER_MS {
            self.timers.remove(&(schedule.due_ms, SCHEDULE, at));
        }
        if due_ms != NEVER_MS {
            self.timers.insert((due_ms, SCHEDULE, at));
        }
        schedule.due_ms = due_ms;
    }
}

/// The first time after `unix_ms` that matches an expression; `None` if no day within [`SEARCH_YEARS`] matches.
fn next_after(cron: &[u8], unix_ms: u64) -> Option<u64> {
    let cron = str::from_utf8(cron).ok()?;
    let cron: Cron = CronParser::builder().seconds(Seconds::Optional).build().parse(cron).ok()?;
    let from: DateTime<Utc> = DateTime::from_timestamp_millis(i64::try_from(unix_ms).ok()?)?;
    if !has_day(&cron, from) {
        return None;
    }
    let next = cron.find_next_occurrence(&from, false).ok()?;
    u64::try_from(next.timestamp_millis()).ok()
}

/// Whether an expression matches a day within [`SEARCH_YEARS`].
fn has_day(cron: &Cron, from: DateTime<Utc>) -> bool {
    let (pattern, first_weekday) = (&cron.pattern, from.civil_weekday());
    let year_max = from.year().saturating_add(SEARCH_YEARS);
    let days = from.date_naive().iter_days().take_while(|day| day.year() <= year_max);
    days.zip(0..).any(|(day, count)| {
        let (year, month, weekday) = (day.year(), day.month(), first_weekday.shift(count));
        matches!(pattern.month_match(month), Ok(true))
            && matches!(pattern.year_match(year), Ok(true))
            && matches!(pattern.day_match(year, month, day.day(), weekday), Ok(true))
    })
}

//! How a task comes to stand in its lane, and how it leaves it.

use std::sync::Arc;

use crate::effects::{Effects, Happened, Publish};
use crate::group::{self, Group, GroupKey};
use crate::lane::Standing;
use crate::quota::Amounts;
use crate::slab::NONE;
use crate::state::State;
use crate::task::{NEVER_MS, Stage};
use crate::tenant::Limited;

impl State {
    /// Nothing but its time is in the way of a task that is nowhere now.
    pub(crate) fn enter(&mut self, at: u32, effects: &mut Effects) {
        let task = &mut self.tasks[at];
        if task.since_ms > self.now_ms {
            task.stage = Stage::Delayed;
            let due_ms = task.since_ms.min(task.deadline_ms);
            return self.set_due(at, due_ms);
        }
        if task.is_published() {
            return self.give_out(at, effects);
        }
        let due_ms = task.deadline_ms;
        self.set_due(at, due_ms);
        self.admit(at, false);
    }

    /// To where it was, its worker being gone. It keeps its places in groups, unless a limit was lowered since; starting again is a start.
    pub(crate) fn enter_again(&mut self, at: u32) {
        let due_ms = self.tasks[at].deadline_ms;
        self.set_due(at, due_ms);
        let groups = self.groups_of(at);
        if groups.iter().any(|key| self.is_over(key)) {
            self.free_places(at);
            self.admit(at, true);
        } else {
            for key in &groups {
                self.count_on_token(key);
                self.settle_group(key);
            }
            self.make_ready(at, true);
        }
    }

    fn is_over(&self, key: &GroupKey) -> bool {
        let limit = self.limit_of(key);
        let found = self.groups.get(key);
        found.is_some_and(|group| group.places > limit.running_max || !group.has_token(limit, self.now_ms))
    }

    pub(crate) fn limit_of(&self, key: &GroupKey) -> &Limited {
        &self.tenants[key.0 as usize].limits[key.1 as usize]
    }

    /// A task that publishes needs nobody.
    pub(crate) fn give_out(&mut self, at: u32, effects: &mut Effects) {
        let due_ms = self.now_ms + u64::from(self.limits.publish_retry_ms);
        let task = &mut self.tasks[at];
        if task.stage.is_queued() {
            self.tenants[task.tenant as usize].queued -= 1;
            task.started_ms = self.now_ms;
        }
        (task.stage, task.worker) = (Stage::Running, NONE);
        let subject = task.extra.as_ref().and_then(|extra| extra.subject.clone()).unwrap_or_default();
        let payload = task.payload.clone();
        effects.publishes.push(Publish { task: self.tasks.id(at), subject, payload });
        self.tell(at, Happened::Started { worker: 0, token: 0 }, effects);
        self.set_due(at, due_ms);
    }

    /// The groups that a task counts in, by the limits that its tenant has now.
    pub(crate) fn groups_of(&self, at: u32) -> Vec<GroupKey> {
        let task = &self.tasks[at];
        let limits = &self.tenants[task.tenant as usize].limits;
        if limits.is_empty() {
            return Vec::new();
        }
        let class = &self.classes[self.lanes[task.lane as usize].class as usize];
        let value = |key: &[u8]| -> Option<Arc<[u8]>> {
            match key {
                b"tenant" => Some(Arc::default()),
                b"queue" => Some(self.names.get(class.queue).clone()),
                b"kind" => Some(self.names.get(class.kind).clone()),
                _ => {
                    let labels = &task.extra.as_ref()?.labels;
                    labels.iter().find(|label| *label.key == *key).map(|label| label.value.clone())
                }
            }
        };
        let groups = limits.iter().enumerate();
        groups.filter_map(|(at, limit)| Some((task.tenant, at as u32, value(&limit.key)?))).collect()
    }

    fn has_place(&self, key: &GroupKey) -> bool {
        let limit = self.limit_of(key);
        match self.groups.get(key) {
            Some(group) => group.has_place(limit, self.now_ms),
            None => limit.running_max > 0,
        }
    }

    /// Into its lane if each of its groups has a place for it, else to the first that has none.
    pub(crate) fn admit(&mut self, at: u32, is_back: bool) {
        let groups = self.groups_of(at);
        if let Some(full) = groups.iter().position(|key| !self.has_place(key)) {
            let rank = self.tasks[at].rank(self.limits.ageing_ms);
            let task = &mut self.tasks[at];
            task.stage = Stage::Limited;
            task.limited_by = groups[full].1;
            self.group(&groups[full]).waiting.insert((rank, at));
            self.settle_group(&groups[full]);
            return;
        }
        for key in &groups {
            self.group(key).places += 1;
            self.count_on_token(key);
            self.settle_group(key);
        }
        self.make_ready(at, is_back);
    }

    pub(crate) fn group(&mut self, key: &GroupKey) -> &mut Group {
        if !self.groups.contains_key(key) {
            self.bytes += group::bytes(key);
        }
        self.groups.entry(key.clone()).or_default()
    }

    pub(crate) fn count_on_token(&mut self, key: &GroupKey) {
        if self.limit_of(key).rate.is_some() {
            self.group(key).ready += 1;
        }
    }

    /// A task that was ready starts.
    pub(crate) fn spend_tokens(&mut self, at: u32) {
        let now_ms = self.now_ms;
        for key in &self.groups_of(at) {
            if let Some(rate) = self.limit_of(key).rate {
                let group = self.group(key);
                group.ready -= 1;
                group.bucket.spend(&rate, now_ms);
                self.settle_group(key);
            }
        }
    }

    /// A task that was ready will not start.
    fn leave_tokens(&mut self, at: u32) {
        for key in &self.groups_of(at) {
            if self.limit_of(key).rate.is_some() {
                self.group(key).ready -= 1;
            }
        }
    }

    fn make_ready(&mut self, at: u32, is_back: bool) {
        self.tasks[at].stage = Stage::Ready;
        let (tenant_at, lane_at) = (self.tasks[at].tenant, self.tasks[at].lane);
        let virtual_time = self.virtual_time;
        let tenant = self.tenant(tenant_at);
        if tenant.ready == 0 {
            tenant.tag = tenant.tag.max(virtual_time);
        }
        tenant.ready += 1;
        let is_new = tenant.ready == 1;
        let lane = &mut self.lanes[lane_at as usize];
        lane.push(&mut self.tasks, at, is_back);
        self.classes[lane.class as usize].ready += 1;
        if is_new { self.stand(tenant_at) } else { self.stand_lane(lane_at) }
    }

    /// A task leaves its lane, for a worker or for good; its places in groups it keeps.
    pub(crate) fn unready(&mut self, at: u32) {
        let (tenant, lane_at) = (self.tasks[at].tenant, self.tasks[at].lane);
        self.unreserve(at);
        self.tenant(tenant).ready -= 1;
        let lane = &mut self.lanes[lane_at as usize];
        lane.remove(&mut self.tasks, at);
        self.classes[lane.class as usize].ready -= 1;
    }

    /// A task that waits, for whatever, waits no more.
    pub(crate) fn withdraw(&mut self, at: u32) {
        let (stage, tenant, lane) = (self.tasks[at].stage, self.tasks[at].tenant, self.tasks[at].lane);
        match stage {
            Stage::Ready => {
                self.unready(at);
                self.stand_lane(lane);
                self.leave_tokens(at);
                self.free_places(at);
            }
            Stage::Limited => {
                let rank = self.tasks[at].rank(self.limits.ageing_ms);
                let limited_by = self.tasks[at].limited_by;
                if let Some(key) = self.groups_of(at).into_iter().find(|key| key.1 == limited_by) {
                    self.group(&key).waiting.remove(&(rank, at));
                    self.settle_group(&key);
                }
            }
            _ => {}
        }
        self.tenant(tenant).queued -= 1;
        self.set_due(at, NEVER_MS);
    }

    /// Its places in groups go to those who wait for them.
    pub(crate) fn free_places(&mut self, at: u32) {
        let groups = self.groups_of(at);
        for key in &groups {
            self.group(key).places -= 1;
        }
        for key in &groups {
            self.wake_group(key);
        }
    }

    /// Who waits for a place in a group gets it, as far as there are any.
    pub(crate) fn wake_group(&mut self, key: &GroupKey) {
        while self.has_place(key) {
            let next = self.groups.get(key).and_then(|group| group.waiting.get_min().copied());
            let Some((rank, at)) = next else { break };
            self.group(key).waiting.remove(&(rank, at));
            self.admit(at, false);
        }
        self.settle_group(key);
    }

    /// When time changes something of a group, after anything else did; one with nothing to remember is forgotten.
    pub(crate) fn settle_group(&mut self, key: &GroupKey) {
        let limit = self.limit_of(key);
        let Some(group) = self.groups.get(key) else { return };
        let (before_ms, is_empty) = (group.due_ms, group.is_empty(limit, self.now_ms));
        let due_ms = if is_empty { NEVER_MS } else { group.next_due_ms(limit) };
        if before_ms != due_ms {
            self.refills.remove(&(before_ms, key.clone()));
            if due_ms != NEVER_MS {
                self.refills.insert((due_ms, key.clone()));
            }
            self.group(key).due_ms = due_ms;
        }
        if is_empty {
            self.groups.remove(key);
            self.bytes -= group::bytes(key);
        }
    }

    /// Where a tenant's lanes stand, after what it uses, or its tag, has changed.
    pub(crate) fn stand(&mut self, tenant: u32) {
        for at in 0..self.tenants[tenant as usize].lanes.len() {
            let lane = self.tenants[tenant as usize].lanes[at];
            self.stand_lane(lane);
        }
    }

    pub(crate) fn stand_lane(&mut self, lane_at: u32) {
        let lane = &self.lanes[lane_at as usize];
        let first = lane.first(&self.tasks, self.limits.ageing_ms);
        let tenant = &self.tenants[lane.tenant as usize];
        let standing = first.and_then(|(_, at)| {
            let tier = tenant.tier(&self.tasks[at].need())?;
            Some(Standing { tier, tag: tenant.tag })
        });
        if standing == lane.standing {
            return;
        }
        let class_at = lane.class;
        let class = &mut self.classes[class_at as usize];
        let before = std::mem::replace(&mut self.lanes[lane_at as usize].standing, standing);
        if let Some(before) = before {
            class.standing.remove(&(before, lane_at));
        }
        if let Some(standing) = standing {
            class.standing.insert((standing, lane_at));
            if before.is_none_or(|before| standing.tier < before.tier) {
                self.dirty.push(class_at);
            }
        }
    }

    /// Whether so much is left when what is kept for others stays free.
    pub(crate) fn is_spare(&self, tenant: u32, need: &Amounts) -> bool {
        let own = self.tenants[tenant as usize].kept_free();
        (0..3).all(|at| {
            let kept = self.kept[at].saturating_sub(own[at]);
            kept == 0 || need[at] == 0 || self.free[at] >= kept.saturating_add(need[at])
        })
    }
}

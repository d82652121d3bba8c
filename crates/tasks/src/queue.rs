//! Moves tasks into lanes, which are the queues of ready tasks, and out of them.

use std::sync::Arc;

use crate::effects::{TaskEffects, TaskEventKind, TaskPublication};
use crate::group::{GroupKey, RankedTasks, TaskGroup, TaskSort, first_of_each_sort, group_bytes};
use crate::lane::LaneRank;
use crate::quota::Amounts;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{NEVER_MS, TaskStage};
use crate::tenant::StoredKeyLimit;
use crate::worker::WorkerPool;

impl SchedulerState {
    /// Makes a task ready, or publishes its payload. If the task's earliest start is in the future, delays the task
    /// instead.
    pub(crate) fn enqueue(&mut self, at: u32, effects: &mut TaskEffects) {
        let task = &mut self.tasks[at];
        if task.since_ms > self.now_ms {
            task.stage = TaskStage::Delayed;
            let due_ms = task.since_ms.min(task.deadline_ms);
            return self.set_due(at, due_ms);
        }
        if task.is_published() {
            return self.publish_payload(at, effects);
        }
        let due_ms = task.deadline_ms;
        self.set_due(at, due_ms);
        self.admit(at, false);
    }

    /// Makes a task ready again after the loss of its worker. The task keeps its places in the groups of its limits,
    /// unless a limit was lowered in the meantime. The task's next start counts for rates, like any other start.
    pub(crate) fn requeue(&mut self, at: u32) {
        let due_ms = self.tasks[at].deadline_ms;
        self.set_due(at, due_ms);
        let groups = self.groups_of(at);
        if groups.iter().any(|key| self.is_over(key)) {
            self.free_places(at);
            self.admit(at, true);
        } else {
            for key in &groups {
                self.reserve_token(key);
                self.update_group(key);
            }
            self.make_ready(at, true);
        }
    }

    fn is_over(&self, key: &GroupKey) -> bool {
        let limit = self.limit_of(key);
        let found = self.groups.get(key);
        found.is_some_and(|group| group.places > limit.running_max || !group.has_token(limit, self.now_ms))
    }

    pub(crate) fn limit_of(&self, key: &GroupKey) -> &StoredKeyLimit {
        &self.tenants[key.0 as usize].limits[key.1 as usize]
    }

    /// Publishes the payload of a task of kind `publish`, which needs no worker.
    pub(crate) fn publish_payload(&mut self, at: u32, effects: &mut TaskEffects) {
        let due_ms = self.now_ms + u64::from(self.limits.publish_retry_ms);
        let task = &mut self.tasks[at];
        if task.stage.is_queued() {
            self.tenants[task.tenant as usize].queued -= 1;
            task.started_ms = self.now_ms;
        }
        (task.stage, task.worker) = (TaskStage::Running, NONE);
        let subject = task.extra.as_ref().and_then(|extra| extra.subject.clone()).unwrap_or_default();
        let payload = task.payload.clone();
        effects.publishes.push(TaskPublication { task: self.tasks.id(at), subject, payload });
        self.record_event(at, TaskEventKind::Started { worker: 0, token: 0 }, effects);
        self.set_due(at, due_ms);
    }

    /// The groups to which a task belongs under its tenant's present limits.
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

    /// Puts a task into its lane if each of its groups has a place for it. If a group is full, the task takes the place
    /// of a group member that no worker could run, if there is one. Otherwise, the task waits in the first group
    /// without a place.
    pub(crate) fn admit(&mut self, at: u32, to_front: bool) {
        let freed_groups = self.take_places(at, to_front);
        self.wake_groups(freed_groups);
    }

    /// Does the same as [`Self::admit`], but does not wake other groups. Returns the groups whose waiting tasks may now
    /// take a place, in the order in which the caller must wake these groups.
    fn take_places(&mut self, at: u32, to_front: bool) -> Vec<GroupKey> {
        let groups = self.groups_of(at);
        let full =
            groups.iter().find(|key| !self.has_place(key) && self.member_to_displace(key, at).is_none());
        if let Some(full) = full {
            self.wait_for_place(at, full);
            return Vec::new();
        }
        let mut freed_groups = Vec::new();
        for key in &groups {
            // This group may have a free place by now: a task that was displaced from an earlier group has given up its
            // places in all groups.
            if !self.has_place(key)
                && let Some(other) = self.member_to_displace(key, at)
            {
                freed_groups.extend(self.displace_member(other, key));
            }
        }
        for key in &groups {
            self.group(key).places += 1;
            self.reserve_token(key);
            self.update_group(key);
        }
        self.make_ready(at, to_front);
        if !groups.is_empty() && !self.is_served(&self.member(at).0) {
            // No worker could run this task. In each of its groups, a waiting task that a worker could run may
            // therefore take its place.
            freed_groups.extend(groups);
        }
        freed_groups
    }

    fn wait_for_place(&mut self, at: u32, key: &GroupKey) {
        let member = self.member(at);
        let task = &mut self.tasks[at];
        (task.stage, task.limited_by) = (TaskStage::Limited, key.1);
        self.group(key).waiting.insert(member);
        self.update_group(key);
    }

    /// Recomputes the ranks of group members after the limits changed.
    pub(crate) fn rebuild_member_ranks(&mut self) {
        let keys: Vec<GroupKey> = self.groups.keys().cloned().collect();
        for key in &keys {
            let group = &self.groups[key];
            let rerank = |members: &RankedTasks| {
                members.iter().map(|(.., at)| self.member(*at)).collect::<RankedTasks>()
            };
            let (waiting, ready_members) = (rerank(&group.waiting), rerank(&group.ready_members));
            let group = self.group(key);
            (group.waiting, group.ready_members) = (waiting, ready_members);
        }
    }

    /// Returns the entry that a task has in each of its groups: the properties that decide which workers can run the
    /// task ([`TaskSort`]), the task's rank, and the task's index.
    pub(crate) fn member(&self, at: u32) -> (TaskSort, i64, u32) {
        let task = &self.tasks[at];
        let [_, cpu_milli, memory_bytes] = task.need();
        ((task.lane, cpu_milli, memory_bytes), task.rank(self.limits.ageing_ms), at)
    }

    /// Whether there is a worker that could run tasks of this sort, at once or after it has finished other tasks.
    pub(crate) fn is_served(&self, (lane, cpu_milli, memory_bytes): &TaskSort) -> bool {
        let lane = &self.lanes[*lane as usize];
        let tenant = &self.tenants[lane.tenant as usize].name;
        let mut pools =
            self.classes[lane.class as usize].pools.iter().map(|&pool| &self.pools[pool as usize]);
        pools.any(|pool| {
            pool.serves.accepts_tenant(tenant) && pool.has_worker_for(&[1, *cpu_milli, *memory_bytes])
        })
    }

    /// The member of a full group that must give its place to the task `to`. No worker could run this member, but a
    /// worker could run `to`.
    fn member_to_displace(&self, key: &GroupKey, to: u32) -> Option<u32> {
        let group = self.groups.get(key)?;
        if !group.has_displaceable_place(self.limit_of(key), self.now_ms)
            || !self.is_served(&self.member(to).0)
        {
            return None;
        }
        first_of_each_sort(&group.ready_members).find(|(sort, ..)| !self.is_served(sort)).map(|(.., at)| at)
    }

    /// Takes the places of a ready task, and lets the task wait for a place in the group `key`. Returns the task's
    /// other groups, each of which now has a free place.
    fn displace_member(&mut self, at: u32, key: &GroupKey) -> Vec<GroupKey> {
        let lane = self.tasks[at].lane;
        self.remove_from_lane(at);
        self.rank_lane(lane);
        self.release_tokens(at);
        let mut groups = self.groups_of(at);
        groups.iter().for_each(|key| self.group(key).places -= 1);
        self.wait_for_place(at, key);
        groups.retain(|other| other != key);
        groups
    }

    pub(crate) fn group(&mut self, key: &GroupKey) -> &mut TaskGroup {
        if !self.groups.contains_key(key) {
            self.count_bytes(key.0, group_bytes(key), 0, false);
        }
        self.groups.entry(key.clone()).or_default()
    }

    pub(crate) fn reserve_token(&mut self, key: &GroupKey) {
        if self.limit_of(key).rate.is_some() {
            self.group(key).ready += 1;
        }
    }

    /// When a ready task starts, takes a token from each of the task's groups whose limit has a rate.
    pub(crate) fn spend_tokens(&mut self, at: u32) {
        let now_ms = self.now_ms;
        for key in &self.groups_of(at) {
            if let Some(rate) = self.limit_of(key).rate {
                let group = self.group(key);
                group.ready -= 1;
                group.bucket.spend(&rate, now_ms);
                self.update_group(key);
            }
        }
    }

    /// Gives back the reserved tokens of a ready task that will not start.
    fn release_tokens(&mut self, at: u32) {
        for key in &self.groups_of(at) {
            if self.limit_of(key).rate.is_some() {
                self.group(key).ready -= 1;
            }
        }
    }

    fn make_ready(&mut self, at: u32, to_front: bool) {
        self.tasks[at].stage = TaskStage::Ready;
        let member = self.member(at);
        for key in &self.groups_of(at) {
            self.group(key).ready_members.insert(member);
        }
        let (tenant_at, lane_at) = (self.tasks[at].tenant, self.tasks[at].lane);
        let virtual_time = self.virtual_time;
        let tenant = self.tenant(tenant_at);
        if tenant.ready == 0 {
            tenant.tag = tenant.tag.max(virtual_time);
        }
        tenant.ready += 1;
        let is_new = tenant.ready == 1;
        let lane = &mut self.lanes[lane_at as usize];
        lane.push(&mut self.tasks, at, to_front);
        self.classes[lane.class as usize].ready += 1;
        if is_new { self.rank_lanes(tenant_at) } else { self.rank_lane(lane_at) }
    }

    /// Removes a task from its lane, because a worker receives the task or the task ends. The task keeps its places in
    /// groups.
    pub(crate) fn remove_from_lane(&mut self, at: u32) {
        let (tenant, lane_at) = (self.tasks[at].tenant, self.tasks[at].lane);
        self.unreserve(at);
        let member = self.member(at);
        for key in &self.groups_of(at) {
            self.group(key).ready_members.remove(&member);
        }
        self.tenant(tenant).ready -= 1;
        let lane = &mut self.lanes[lane_at as usize];
        lane.remove(&mut self.tasks, at);
        self.classes[lane.class as usize].ready -= 1;
    }

    /// Removes a waiting task from the lane, list or timer in which it waits.
    pub(crate) fn withdraw(&mut self, at: u32) {
        let (stage, tenant, lane) = (self.tasks[at].stage, self.tasks[at].tenant, self.tasks[at].lane);
        match stage {
            TaskStage::Ready => {
                self.remove_from_lane(at);
                self.rank_lane(lane);
                self.release_tokens(at);
                self.free_places(at);
            }
            TaskStage::Limited => {
                let (member, limited_by) = (self.member(at), self.tasks[at].limited_by);
                if let Some(key) = self.groups_of(at).into_iter().find(|key| key.1 == limited_by) {
                    self.group(&key).waiting.remove(&member);
                    self.update_group(&key);
                }
            }
            _ => {}
        }
        self.tenant(tenant).queued -= 1;
        self.set_due(at, NEVER_MS);
    }

    /// Gives a task's places in groups to waiting tasks.
    pub(crate) fn free_places(&mut self, at: u32) {
        let groups = self.groups_of(at);
        for key in &groups {
            self.group(key).places -= 1;
        }
        for key in &groups {
            self.wake_group(key);
        }
    }

    /// Assigns free places of a group to waiting tasks, first to those that a worker could run.
    pub(crate) fn wake_group(&mut self, key: &GroupKey) {
        self.wake_groups(vec![key.clone()]);
    }

    /// Wakes groups one after another: admits their waiting tasks while there are places. If an admitted task frees
    /// places in other groups, these groups are woken before the next task of the first group is admitted. A stack is
    /// used instead of recursion, which would be as deep as the number of free places.
    fn wake_groups(&mut self, mut groups: Vec<GroupKey>) {
        groups.reverse();
        while let Some(key) = groups.last().cloned() {
            match self.admit_next(&key) {
                Some(freed_groups) => groups.extend(freed_groups.into_iter().rev()),
                None => {
                    groups.pop();
                    self.update_group(&key);
                }
            }
        }
    }

    /// Gives a place in a group to the group's next waiting task. Returns the groups whose waiting tasks may take a
    /// place after that. Returns `None` if no task waits or no place is free.
    fn admit_next(&mut self, key: &GroupKey) -> Option<Vec<GroupKey>> {
        let (member, is_served) = self.next_waiting(key)?;
        let has_place = self.has_place(key) || is_served && self.member_to_displace(key, member.2).is_some();
        if !has_place {
            return None;
        }
        self.group(key).waiting.remove(&member);
        Some(self.take_places(member.2, false))
    }

    /// Returns the waiting task that gets the next place in a [`TaskGroup`], and whether a worker could run this task.
    fn next_waiting(&self, key: &GroupKey) -> Option<((TaskSort, i64, u32), bool)> {
        let all = first_of_each_sort(&self.groups.get(key)?.waiting)
            .map(|member| (member, self.is_served(&member.0)));
        all.min_by_key(|((_, rank, at), is_served)| (!is_served, *rank, *at))
    }

    /// Must be called after the set of workers has changed. Gives places in groups to waiting tasks: a waiting task
    /// that a worker can now run may take the place of a ready task that no worker can run. Takes time proportional to
    /// the number of groups.
    pub(crate) fn recheck_served_groups(&mut self) {
        let contested = self
            .groups
            .iter()
            .filter(|(_, group)| !group.waiting.is_empty() && !group.ready_members.is_empty());
        let keys: Vec<GroupKey> = contested.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.wake_group(key));
    }

    /// Whether, for every class that the pool serves, there is another worker that could run the tasks of this class.
    /// This worker must have at least the given capacity, and its pool must serve at least the same tenants.
    pub(crate) fn has_substitute_worker(&self, pool: u32, capacity: &[u64; 2]) -> bool {
        let own_pool = &self.pools[pool as usize];
        let is_as_good = |other: &WorkerPool| {
            let tenants = &other.serves.tenants;
            let is_for_all = tenants.is_empty()
                || !own_pool.serves.tenants.is_empty() && own_pool.serves.tenants.is_subset(tenants);
            is_for_all && other.has_worker_as_large(capacity)
        };
        own_pool.classes.iter().all(|&class| {
            let mut pools = self.classes[class as usize].pools.iter();
            pools.any(|&other| is_as_good(&self.pools[other as usize]))
        })
    }

    /// Updates the time at which a group next changes without a command. If the group can be forgotten, removes it.
    pub(crate) fn update_group(&mut self, key: &GroupKey) {
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
            self.count_bytes(key.0, 0, group_bytes(key), false);
        }
    }

    /// Updates the ranks of a tenant's lanes after the tenant's use of resources or its tag has changed.
    pub(crate) fn rank_lanes(&mut self, tenant: u32) {
        for at in 0..self.tenants[tenant as usize].lanes.len() {
            let lane = self.tenants[tenant as usize].lanes[at];
            self.rank_lane(lane);
        }
    }

    pub(crate) fn rank_lane(&mut self, lane_at: u32) {
        let lane = &self.lanes[lane_at as usize];
        let first = lane.first(&self.tasks, self.limits.ageing_ms);
        let tenant = &self.tenants[lane.tenant as usize];
        let rank = first.and_then(|(_, at)| {
            let tier = tenant.tier(&self.tasks[at].need())?;
            Some(LaneRank { tier, tag: tenant.tag })
        });
        if rank == lane.rank {
            return;
        }
        let class_at = lane.class;
        let class = &mut self.classes[class_at as usize];
        let before = std::mem::replace(&mut self.lanes[lane_at as usize].rank, rank);
        if let Some(before) = before {
            class.ranked_lanes.remove(&(before, lane_at));
        }
        if let Some(rank) = rank {
            class.ranked_lanes.insert((rank, lane_at));
            if before.is_none_or(|before| rank.tier < before.tier) {
                self.dirty.push(class_at);
            }
        }
    }

    /// Whether the capacity `need` is free in addition to the capacity that is kept free for other tenants.
    pub(crate) fn is_spare(&self, tenant: u32, need: &Amounts) -> bool {
        let own = self.tenants[tenant as usize].unused_reserve();
        (0..3).all(|at| {
            let reserve = self.unused_reserve[at].saturating_sub(own[at]);
            reserve == 0 || need[at] == 0 || self.free[at] >= reserve.saturating_add(need[at])
        })
    }
}

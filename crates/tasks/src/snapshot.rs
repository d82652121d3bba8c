//! A state as blocks of bytes, and back.
//!
//! Slots are written as they are, free ones too, so that ids go on as they would have. What follows from others is not
//! written: who stands where, who is idle, timers, groups, keys. Bytes that name what is not there are refused.

use std::sync::Arc;

use crate::ahead::Ahead;
use crate::error::DecodeError;
use crate::group::{self, Group, GroupKey};
use crate::lane::{Class, Lane};
use crate::layout::{Fields, Later, Layout, Whole, layout};
use crate::limits::Limits;
use crate::quota::Amounts;
use crate::rate::Bucket;
use crate::retry::Retry;
use crate::schedule::Schedule;
use crate::shard::shard_of_id;
use crate::slab::{NONE, Slot};
use crate::state::{SCHEDULE, State, TASK, WORKER};
use crate::task::{Labelled, List, NEVER_MS, Stage, Task};
use crate::tenant::Tenant;
use crate::worker::{Pool, Serves, Worker};

/// A block is written when it has come to so much.
const BLOCK_BYTES: usize = 64 << 10;

/// Of a state in which workers have tasks at hand, or labels, or tenants, or tasks need labels; else it is the other, as it was before there were such.
const HEAD_AHEAD: u8 = 0;
const HEAD: u8 = 1;
const NAMES: u8 = 2;
const TENANTS: u8 = 3;
const CLASSES: u8 = 4;
const LANES: u8 = 5;
const POOLS: u8 = 6;
const POLICIES: u8 = 7;
const TASKS: u8 = 8;
const WORKERS: u8 = 9;
const SCHEDULES: u8 = 10;
const RESERVED: u8 = 11;
const BUCKETS: u8 = 12;
const AHEAD: u8 = 13;
const NEEDS: u8 = 14;
const TRAITS: u8 = 15;
const ENLISTED: u8 = 30;

layout! {
    /// What there is one of.
    #[derive(Debug, Clone)]
    pub struct Head {
        pub limits: Limits,
        pub now_ms: u64,
        pub unix_offset_ms: i64,
        pub virtual_time: u64,
        pub token: u64,
        pub is_held_back: bool,
        pub finished: List,
        /// The first free task, worker and schedule.
        pub free: [u32; 3],
        /// How many there are of each kind of block that follows.
        pub counts: [u32; 11],
    }
}

layout! {
    pub struct ClassEntry {
        pub queue: u32,
        pub kind: u32,
    }
}

layout! {
    pub struct PoolEntry {
        pub kinds: Vec<u32>,
        pub queues: Vec<u32>,
    }
}

layout! {
    pub struct ReservedEntry {
        pub worker: u32,
        pub task: u64,
    }
}

layout! {
    pub struct BucketEntry {
        pub tenant: u32,
        pub limit: u32,
        pub value: Arc<[u8]>,
        pub bucket: Bucket,
    }
}

layout! {
    #[derive(Debug, Clone)]
    pub struct HeadAhead {
        pub head: Head,
        /// Workers that have, or may have, tasks at hand.
        pub ahead: u32,
    } later {
        /// Classes whose tasks need labels.
        pub needs: u32,
        /// Pools that have labels, or are for some tenants.
        pub traits: u32,
    }
}

layout! {
    pub struct NeedsEntry {
        pub class: u32,
        pub needs: Vec<Labelled>,
    }
}

layout! {
    pub struct TraitsEntry {
        pub pool: u32,
        pub labels: Vec<Labelled>,
        pub tenants: Vec<Arc<[u8]>>,
    }
}

layout! {
    pub struct AheadEntry {
        pub worker: u32,
        pub ahead: Ahead,
    }
}

layout! {
    pub struct EnlistedEntry {
        pub worker: u32,
        pub id: u64,
    }
}

/// A state as it was at one moment, while the state goes on.
#[derive(Debug, Clone)]
pub struct Frozen(State);

impl State {
    /// What it is now, at no cost.
    pub fn freeze(&self) -> Frozen {
        Frozen(self.clone())
    }
}

impl Frozen {
    /// Gives its blocks, one after another, until `take` refuses one.
    pub fn write<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let state = &self.0;
        let (needs, traits) = (needs(state).count() as u32, traits(state).count() as u32);
        let head = HeadAhead { head: self.head(), ahead: state.ahead.len() as u32, needs, traits };
        match (head.says_more(), head.ahead) {
            (true, _) => write_all(HEAD_AHEAD, std::iter::once(Whole(head)), &mut take)?,
            (false, 0) => write_all(HEAD, std::iter::once(head.head), &mut take)?,
            (false, _) => write_all(HEAD_AHEAD, std::iter::once(head), &mut take)?,
        }
        write_all(NAMES, state.names.iter().cloned(), &mut take)?;
        write_each(TENANTS, state.tenants.iter(), &mut take)?;
        let classes = state.classes.iter();
        let classes = classes.map(|&Class { queue, kind, .. }| ClassEntry { queue, kind });
        write_all(CLASSES, classes, &mut take)?;
        write_each(LANES, state.lanes.iter(), &mut take)?;
        let pools = state.pools.iter().map(|pool| PoolEntry {
            kinds: pool.serves.kinds.iter().copied().collect(),
            queues: pool.serves.queues.iter().copied().collect(),
        });
        write_all(POOLS, pools, &mut take)?;
        write_each(POLICIES, state.policies.iter(), &mut take)?;
        write_each(TASKS, state.tasks.slots().0, &mut take)?;
        write_each(WORKERS, state.workers.slots().0, &mut take)?;
        write_each(SCHEDULES, state.schedules.slots().0, &mut take)?;
        let reserved = state.reserved.iter().map(|(&worker, &task)| ReservedEntry { worker, task });
        write_all(RESERVED, reserved, &mut take)?;
        write_all(BUCKETS, buckets(state), &mut take)?;
        let ahead = state.ahead.iter().map(|(&worker, &ahead)| AheadEntry { worker, ahead });
        write_all(AHEAD, ahead, &mut take)?;
        write_all(NEEDS, self::needs(state), &mut take)?;
        write_all(TRAITS, self::traits(state), &mut take)?;
        // All, so that none can be missing.
        let workers = state.workers.iter_from(0).filter(|_| state.shard > 0);
        let enlisted = workers.map(|(at, _)| EnlistedEntry { worker: at, id: state.worker_id(at) });
        write_all(ENLISTED, enlisted, &mut take)
    }

    fn head(&self) -> Head {
        let state = &self.0;
        Head {
            limits: state.limits,
            now_ms: state.now_ms,
            unix_offset_ms: state.unix_offset_ms,
            virtual_time: state.virtual_time,
            token: state.token,
            is_held_back: state.is_held_back,
            finished: state.finished,
            free: [state.tasks.slots().1, state.workers.slots().1, state.schedules.slots().1],
            counts: counts(state),
        }
    }
}

/// Of the classes whose tasks need labels.
fn needs(state: &State) -> impl Iterator<Item = NeedsEntry> {
    let classes = state.classes.iter().enumerate().filter(|(_, class)| !class.needs.is_empty());
    classes.map(|(at, class)| NeedsEntry { class: at as u32, needs: class.needs.to_vec() })
}

/// Of the pools that have labels, or are for some tenants.
fn traits(state: &State) -> impl Iterator<Item = TraitsEntry> {
    let pools = state.pools.iter().enumerate();
    let some =
        pools.filter(|(_, Pool { serves, .. })| !serves.labels.is_empty() || !serves.tenants.is_empty());
    some.map(|(at, Pool { serves, .. })| TraitsEntry {
        pool: at as u32,
        labels: serves.labels.iter().cloned().collect(),
        tenants: serves.tenants.iter().cloned().collect(),
    })
}

/// Of the groups from which something is missing.
fn buckets(state: &State) -> impl Iterator<Item = BucketEntry> {
    let missing = state.groups.iter().filter(|(_, group)| group.bucket.missing > 0);
    missing.map(|((tenant, limit, value), group)| BucketEntry {
        tenant: *tenant,
        limit: *limit,
        value: value.clone(),
        bucket: group.bucket,
    })
}

fn counts(state: &State) -> [u32; 11] {
    [
        state.names.len() as u32,
        state.tenants.len() as u32,
        state.classes.len() as u32,
        state.lanes.len() as u32,
        state.pools.len() as u32,
        state.policies.len() as u32,
        state.tasks.slots_len(),
        state.workers.slots_len(),
        state.schedules.slots_len(),
        state.reserved.len() as u32,
        buckets(state).count() as u32,
    ]
}

fn write_all<'l, T: Layout<'l>, E>(
    kind: u8,
    entries: impl Iterator<Item = T>,
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let start = [crate::VERSION, kind];
    let mut block = start.to_vec();
    for entry in entries {
        entry.write(&mut block);
        if block.len() >= BLOCK_BYTES {
            take(&block)?;
            block.truncate(start.len());
        }
    }
    if block.len() > start.len() { take(&block) } else { Ok(()) }
}

/// [`write_all`] of what is only lent.
fn write_each<'s, 'l, T: Layout<'l> + 's, E>(
    kind: u8,
    entries: impl Iterator<Item = &'s T>,
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    write_all(kind, entries.map(Lent), take)
}

struct Lent<'s, T>(&'s T);

impl<'l, T: Layout<'l>> Layout<'l> for Lent<'_, T> {
    fn read(_: &mut Fields<'l>) -> Result<Self, DecodeError> {
        Err(DecodeError::Inconsistent("what is only lent"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// A state that is made again, block by block.
#[derive(Debug, Default)]
pub struct Restoring {
    head: Option<HeadAhead>,
    last: u8,
    state: State,
}

impl Restoring {
    /// One of a cluster's shard of this number.
    pub fn of_shard(shard: u8) -> Restoring {
        Restoring { state: State::of_shard(Limits::default(), shard), ..Restoring::default() }
    }

    /// Takes the next block in.
    pub fn take(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        let mut fields = Fields { rest: block };
        let (version, kind) = (u8::read(&mut fields)?, u8::read(&mut fields)?);
        if version != crate::VERSION {
            return Err(DecodeError::Version(version));
        }
        if kind < self.last || matches!(kind, HEAD | HEAD_AHEAD) != self.head.is_none() {
            return Err(DecodeError::Order("blocks"));
        }
        self.last = kind;
        while !fields.rest.is_empty() {
            self.take_one(kind, &mut fields)?;
        }
        Ok(())
    }

    fn take_one(&mut self, kind: u8, fields: &mut Fields<'_>) -> Result<(), DecodeError> {
        let state = &mut self.state;
        match kind {
            HEAD | HEAD_AHEAD if self.head.is_some() => return Err(DecodeError::Trailing(fields.rest.len())),
            HEAD => {
                let head = Head::read(fields)?;
                self.head = Some(HeadAhead { head, ahead: 0, needs: 0, traits: 0 });
            }
            HEAD_AHEAD => {
                let head = self.head.insert(HeadAhead::read(fields)?);
                if !fields.rest.is_empty() {
                    head.read_more(fields)?;
                }
            }
            NAMES => {
                let before = state.names.len();
                state.names.insert(<&[u8]>::read(fields)?);
                if state.names.len() == before {
                    return Err(DecodeError::Inconsistent("names"));
                }
            }
            TENANTS => state.tenants.push_back(Tenant::read(fields)?),
            CLASSES => {
                let ClassEntry { queue, kind } = ClassEntry::read(fields)?;
                state.classes.push_back(Class::new(queue, kind, Arc::default()));
            }
            LANES => state.lanes.push_back(Lane::read(fields)?),
            POOLS => {
                let PoolEntry { kinds, queues } = PoolEntry::read(fields)?;
                let (kinds, queues) = (kinds.into_iter().collect(), queues.into_iter().collect());
                state.pools.push_back(Pool::new(Arc::new(Serves { kinds, queues, ..Serves::default() })));
            }
            POLICIES => state.policies.push_back(Retry::read(fields)?),
            TASKS => state.tasks.push_slot(Slot::<Task>::read(fields)?),
            WORKERS => state.workers.push_slot(Slot::<Worker>::read(fields)?),
            SCHEDULES => state.schedules.push_slot(Slot::<Schedule>::read(fields)?),
            RESERVED => {
                let ReservedEntry { worker, task } = ReservedEntry::read(fields)?;
                check(state.reserved.insert(worker, task).is_none(), "reservations")?;
            }
            BUCKETS => {
                let BucketEntry { tenant, limit, value, bucket } = BucketEntry::read(fields)?;
                let group = Group { bucket, ..Group::default() };
                check(state.groups.insert((tenant, limit, value), group).is_none(), "rates")?;
            }
            AHEAD => {
                let AheadEntry { worker, ahead } = AheadEntry::read(fields)?;
                check(state.ahead.insert(worker, ahead).is_none(), "workers")?;
            }
            NEEDS => {
                let NeedsEntry { class, needs } = NeedsEntry::read(fields)?;
                let found = state.classes.get_mut(class as usize).filter(|class| class.needs.is_empty());
                let found = found.ok_or(DecodeError::Inconsistent("classes"))?;
                check(!needs.is_empty() && needs.is_sorted_by(|a, b| a < b), "classes")?;
                found.needs = needs.into();
                state.demands += 1;
            }
            TRAITS => self.take_traits(TraitsEntry::read(fields)?)?,
            ENLISTED => {
                let EnlistedEntry { worker, id } = EnlistedEntry::read(fields)?;
                check(state.enlisted.insert(worker, id), "workers of other shards")?;
            }
            number => return Err(DecodeError::Unknown { what: "kind of block", number }),
        }
        Ok(())
    }

    fn take_traits(&mut self, entry: TraitsEntry) -> Result<(), DecodeError> {
        let TraitsEntry { pool, labels, tenants } = entry;
        let found = self.state.pools.get_mut(pool as usize).ok_or(DecodeError::Inconsistent("pools"))?;
        let serves = Arc::make_mut(&mut found.serves);
        let is_new = serves.labels.is_empty() && serves.tenants.is_empty();
        check(is_new && (!labels.is_empty() || !tenants.is_empty()), "pools")?;
        let (labels_len, tenants_len) = (labels.len(), tenants.len());
        (serves.labels, serves.tenants) = (labels.into_iter().collect(), tenants.into_iter().collect());
        check((serves.labels.len(), serves.tenants.len()) == (labels_len, tenants_len), "pools")
    }

    /// The state, if all of it has come.
    pub fn end(self) -> Result<State, DecodeError> {
        let HeadAhead { head, ahead, needs, traits } = self.head.ok_or(DecodeError::Short)?;
        let mut state = self.state;
        let is_all = state.demands == needs && self::traits(&state).count() == traits as usize;
        if counts(&state) != head.counts || state.ahead.len() != ahead as usize || !is_all {
            return Err(DecodeError::Short);
        }
        state.limits = head.limits;
        (state.now_ms, state.unix_offset_ms) = (head.now_ms, head.unix_offset_ms);
        (state.virtual_time, state.token) = (head.virtual_time, head.token);
        (state.is_held_back, state.finished) = (head.is_held_back, head.finished);
        let [tasks, workers, schedules] = head.free;
        let chained = state.tasks.set_free(tasks)
            && state.workers.set_free(workers)
            && state.schedules.set_free(schedules);
        check(chained, "free slots")?;
        state.check_references()?;
        state.check_lists()?;
        state.name_again()?;
        state.match_again();
        state.stand_again()?;
        state.time_again();
        state.count_again()?;
        Ok(state)
    }
}

fn check(is_so: bool, what: &'static str) -> Result<(), DecodeError> {
    if is_so { Ok(()) } else { Err(DecodeError::Inconsistent(what)) }
}

impl State {
    /// All that is named by number is there.
    fn check_references(&self) -> Result<(), DecodeError> {
        let is = |at: u32, len: usize| (at as usize) < len;
        let (names, tenants, lanes) = (self.names.len(), self.tenants.len(), self.lanes.len());
        for class in self.classes.iter() {
            check(is(class.queue, names) && is(class.kind, names), "classes")?;
        }
        for pool in self.pools.iter() {
            check(pool.serves.kinds.iter().chain(&pool.serves.queues).all(|&name| is(name, names)), "pools")?;
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            check(is(lane.tenant, tenants) && is(lane.class, self.classes.len()), "lanes")?;
            check(self.tenants[lane.tenant as usize].lanes.contains(&(at as u32)), "lanes")?;
        }
        for (at, tenant) in self.tenants.iter().enumerate() {
            check((1..=crate::tenant::WEIGHT_MAX).contains(&tenant.weight), "tenants")?;
            check(tenant.limits.iter().filter_map(|limit| limit.rate).all(|rate| rate.is_one()), "tenants")?;
            let own = |&lane: &u32| is(lane, lanes) && self.lanes[lane as usize].tenant as usize == at;
            check(tenant.lanes.iter().all(own), "tenants")?;
        }
        for (_, worker) in self.workers.iter_from(0) {
            check(is(worker.pool, self.pools.len()), "workers")?;
        }
        for (_, task) in self.tasks.iter_from(0) {
            let is_known = is(task.tenant, tenants)
                && is(task.lane, lanes)
                && self.lanes[task.lane as usize].tenant == task.tenant
                && usize::from(task.policy) < self.policies.len()
                && task.priority <= crate::PRIORITY_MAX
                && task.since_ms.checked_add(1).is_some()
                && (task.limited_by as usize) <= self.tenants[task.tenant as usize].limits.len();
            check(is_known, "tasks")?;
            let is_held = task.stage.is_held() && task.worker != NONE;
            check(!is_held || self.workers.has(task.worker), "tasks")?;
        }
        for (key, group) in &self.groups {
            let limit = self.tenants.get(key.0 as usize).and_then(|tenant| tenant.limits.get(key.1 as usize));
            let rate = limit.and_then(|limit| limit.rate);
            check(rate.is_some_and(|rate| group.bucket.is_of(&rate, self.now_ms)), "rates")?;
        }
        for (&worker, &task) in &self.reserved {
            let is_ready = self.tasks.find(task).is_some_and(|at| self.tasks[at].stage == Stage::Ready);
            check(is_ready && self.workers.has(worker), "reservations")?;
        }
        for (&worker, ahead) in &self.ahead {
            let is_so = self.workers.has(worker)
                && (ahead.most > 0 || ahead.given > 0)
                && (ahead.given == 0 || self.workers[worker].credit == 0)
                && !self.workers[worker].is_draining;
            check(is_so, "workers")?;
        }
        for (worker, id) in self.enlisted.iter() {
            let is_so =
                self.workers.has(worker) && (shard_of_id(id) != self.shard || self.workers.id(worker) == id);
            check(is_so, "workers of other shards")?;
        }
        let enlisted = if self.shard == 0 { 0 } else { self.workers.len() };
        check(self.enlisted.len() == enlisted, "workers of other shards")?;
        let schedules = self.schedules.iter_from(0);
        check(schedules.into_iter().all(|(_, found)| is(found.tenant, tenants)), "schedules")
    }

    /// Each task is in the list that its stage says, once.
    fn check_lists(&self) -> Result<(), DecodeError> {
        let mut seen = vec![false; self.tasks.slots_len() as usize];
        let lanes = self.lanes.iter().enumerate();
        for (at, lane) in lanes {
            for (priority, level) in lane.levels.iter().enumerate() {
                let fits = |task: &Task| {
                    task.stage == Stage::Ready
                        && task.lane as usize == at
                        && usize::from(task.priority) == priority
                };
                self.check_list(level, &mut seen, fits)?;
            }
            check(
                lane.levels.iter().map(|level| u64::from(level.len)).sum::<u64>() == u64::from(lane.len),
                "lanes",
            )?;
        }
        for (at, worker) in self.workers.iter_from(0) {
            self.check_list(&worker.held, &mut seen, |task| task.stage.is_held() && task.worker == at)?;
        }
        for (at, tenant) in self.tenants.iter().enumerate() {
            let fits = |task: &Task| task.stage == Stage::Dead && task.tenant as usize == at;
            self.check_list(&tenant.dead, &mut seen, fits)?;
        }
        let fits = |task: &Task| matches!(task.stage, Stage::Completed | Stage::Cancelled);
        self.check_list(&self.finished, &mut seen, fits)?;
        let is_listed = |task: &Task| match task.stage {
            Stage::Running => task.worker != NONE,
            stage => stage >= Stage::Ready,
        };
        let all = self.tasks.iter_from(0);
        check(all.into_iter().all(|(at, task)| seen[at as usize] == is_listed(task)), "lists")
    }

    fn check_list(
        &self,
        list: &List,
        seen: &mut [bool],
        fits: impl Fn(&Task) -> bool,
    ) -> Result<(), DecodeError> {
        let (mut at, mut prev, mut len) = (list.head, NONE, 0);
        while at != NONE {
            let is_new = self.tasks.has(at) && !std::mem::replace(&mut seen[at as usize], true);
            check(is_new && self.tasks[at].prev == prev && fits(&self.tasks[at]), "lists")?;
            (prev, at, len) = (at, self.tasks[at].next, len + 1);
        }
        check((list.tail, list.len) == (prev, len), "lists")
    }

    /// What is found by name.
    fn name_again(&mut self) -> Result<(), DecodeError> {
        fn fill<K: Ord + Clone>(map: &mut imbl::OrdMap<K, u32>, keys: impl Iterator<Item = K>) -> bool {
            keys.enumerate().all(|(at, key)| map.insert(key, at as u32).is_none())
        }
        let mut names = self.tenants.iter().map(|tenant| tenant.name.clone()).enumerate();
        let unique = names.all(|(at, name)| self.tenant_at.insert(name, at as u32).is_none())
            && fill(
                &mut self.class_at,
                self.classes.iter().map(|class| (class.queue, class.kind, class.needs.clone())),
            )
            && fill(&mut self.lane_at, self.lanes.iter().map(|lane| (lane.tenant, lane.class)))
            && fill(&mut self.pool_at, self.pools.iter().map(|pool| pool.serves.clone()));
        check(unique, "names")?;
        for (at, policy) in self.policies.iter().enumerate() {
            check(self.policy_at.insert(*policy, at as u16).is_none(), "policies")?;
        }
        for (at, found) in self.schedules.iter_from(0) {
            check(self.schedule_at.insert((found.tenant, found.name.clone()), at).is_none(), "schedules")?;
        }
        for (at, task) in self.tasks.iter_from(0) {
            if let Some(key) = task.extra.as_ref().and_then(|extra| extra.idempotency_key.clone()) {
                check(self.keys.insert((task.tenant, key), self.tasks.id(at)).is_none(), "idempotency keys")?;
            }
        }
        Ok(())
    }

    /// Which pools serve which classes.
    fn match_again(&mut self) {
        for (pool_at, pool) in self.pools.iter_mut().enumerate() {
            let mut served = Vec::new();
            for (class_at, class) in self.classes.iter_mut().enumerate() {
                if pool.serves.covers(class) {
                    class.add_pool(pool_at as u32, &pool.serves);
                    served.push(class_at as u32);
                }
            }
            pool.classes = served.into();
        }
    }

    /// Who stands where, who is idle, and what is free.
    fn stand_again(&mut self) -> Result<(), DecodeError> {
        for (at, lane) in self.lanes.iter().enumerate() {
            let class = &mut self.classes[lane.class as usize];
            class.ready += u64::from(lane.len);
            if let Some(standing) = lane.standing {
                check(lane.len > 0, "lanes")?;
                class.standing.insert((standing, at as u32));
            }
        }
        let mut free: Amounts = [0; 3];
        for (at, worker) in self.workers.iter_from(0) {
            check(worker.idle == worker.takes().then_some(worker.held.len), "workers")?;
            let pool = &mut self.pools[worker.pool as usize];
            pool.workers += 1;
            if let Some(idle) = worker.idle {
                pool.idle.insert((idle, at));
            }
            if !worker.is_draining {
                pool.credit += u64::from(worker.credit);
                free[0] += u64::from(worker.credit);
                (0..2).for_each(|part| free[part + 1] += worker.has[part].saturating_sub(worker.used[part]));
            }
        }
        for (&at, ahead) in &self.ahead {
            if let Some(ends_ms) = ahead.place() {
                self.pools[self.workers[at].pool as usize].soon.insert((ends_ms, at));
            }
        }
        self.free = free;
        for tenant in self.tenants.iter() {
            let kept = tenant.kept_free();
            self.kept = std::array::from_fn(|part| self.kept[part].saturating_add(kept[part]));
        }
        Ok(())
    }

    fn time_again(&mut self) {
        let tasks = self.tasks.iter_from(0).map(|(at, task)| (task.due_ms, TASK, at));
        let workers = self.workers.iter_from(0).map(|(at, worker)| (worker.end_ms, WORKER, at));
        let schedules = self.schedules.iter_from(0).map(|(at, found)| (found.due_ms, SCHEDULE, at));
        let all: Vec<_> = tasks.chain(workers).chain(schedules).filter(|timer| timer.0 != NEVER_MS).collect();
        self.timers = all.into_iter().collect();
    }

    /// What tasks are counted by: bytes, groups, and their tenants' and workers' use, which was written too.
    fn count_again(&mut self) -> Result<(), DecodeError> {
        self.bytes += self.groups.keys().map(group::bytes).sum::<u64>();
        let mut used: Vec<([u64; 3], u64, u64)> = vec![Default::default(); self.tenants.len()];
        let mut work: Vec<[u64; 2]> = vec![[0; 2]; self.workers.slots_len() as usize];
        let all: Vec<u32> = self.tasks.iter_from(0).map(|(at, _)| at).collect();
        for at in all {
            let task = &self.tasks[at];
            self.bytes += task.bytes();
            let (stage, need, rank) = (task.stage, task.need(), task.rank(self.limits.ageing_ms));
            let (limited_by, is_held) = (task.limited_by, stage.is_held() && task.worker != NONE);
            let of = &mut used[task.tenant as usize];
            of.1 += u64::from(stage.is_queued());
            of.2 += u64::from(stage == Stage::Ready);
            if is_held {
                (0..3).for_each(|part| of.0[part] = of.0[part].saturating_add(need[part]));
                let work = &mut work[task.worker as usize];
                (0..2).for_each(|part| work[part] = work[part].saturating_add(need[part + 1]));
            }
            if is_held || stage == Stage::Ready {
                for key in self.groups_of(at) {
                    self.group(&key).places += 1;
                    if stage == Stage::Ready {
                        self.count_on_token(&key);
                    }
                }
            }
            if stage == Stage::Limited {
                let key = self.groups_of(at).into_iter().find(|key| key.1 == limited_by);
                let key = key.ok_or(DecodeError::Inconsistent("limits"))?;
                self.group(&key).waiting.insert((rank, at));
            }
        }
        let groups: Vec<GroupKey> = self.groups.keys().cloned().collect();
        groups.iter().for_each(|key| self.settle_group(key));
        for (tenant, (amounts, queued, ready)) in self.tenants.iter().zip(used) {
            let is_so = tenant.used.map(|used| used.now) == amounts
                && (tenant.queued, tenant.ready) == (queued, ready);
            check(is_so, "accounts")?;
        }
        check(
            self.workers.iter_from(0).into_iter().all(|(at, worker)| worker.used == work[at as usize]),
            "workers",
        )
    }
}

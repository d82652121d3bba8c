//! Keeps the ids of entities unique in the world. A process that spawns an entity asks the owners of all other regions
//! whether they have an entity with the same id.
//!
//! ```text
//!  a client spawns:  ask all ── all say no ──► spawn ── ask all again ── all say no ──► tell the client
//!                        └─ one has the id ──► refuse        └─ one has the id ──► remove, refuse
//!  a program spawns:                           spawn ── ask all ── one has the id ──► remove, report
//! ```
//! Invariants:
//! - Of two entities with the same id, the one that was just spawned is removed. If both were just spawned, the one in
//!   the region with the higher number is removed, unless its process asked before the other entity was spawned. The
//!   process whose region has the lower number therefore asks again until the other entity is removed or counts as
//!   unique.
//! - An entity that was handed over since its spawn is not removed. It may have come back, so that the entity in
//!   another region's response is this same entity.
//! - Only the region's newest known owner answers for a region. A former owner may still run it, without a lease.
//! - If a region has no owner, a query waits until the region has one, and spawns by clients are refused meanwhile. If
//!   the process that sent the query becomes the region's owner, this process answers the query itself.
//! - A query without a response is repeated. A response that arrives twice changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dunlin::space::{Behaviour, CommandError, Entity, EntityId, EntityStatus, RegionId, StoreError};

use super::WorldRunner;
use crate::space::error::RunnerRefusal;
use crate::space::frame::{FieldReader, SpaceFrame};
use crate::space::pace::monotonic_ns;

/// Interval at which a query without a response is repeated, ns. It is long, because a response about a million ids
/// takes a while.
const QUERY_REPEAT_NS: u64 = 1_000_000_000;
/// How long a client's spawn waits for the responses of other processes, ns.
const CLIENT_TIMEOUT_NS: u64 = 1_500_000_000;

/// The reason why an entity was not added to a world.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The world accepts no entity with this position, id or state.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// The owners of these regions did not respond.
    #[error(
        "no owner responds for {}, so an entity with this id may already exist there: retry later",
        RegionId::list(.0)
    )]
    NoOwner(Vec<RegionId>),
}

/// The region in which an entity was spawned, and the last tick before the spawn.
type Spawned = (RegionId, u64);
type Reply = Box<dyn FnOnce(Result<Spawned, SpawnError>) + Send>;
/// A function that receives a query's result: the entities with one of the ids, or the regions that did not respond.
type IdCallback<const D: usize, B> =
    Box<dyn FnOnce(&mut WorldRunner<D, B>, Result<Vec<RemoteEntity>, Vec<RegionId>>) + Send>;

/// An entity in another region that has one of the ids in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RemoteEntity {
    id: EntityId,
    region: RegionId,
    /// Whether this entity was spawned so recently that its id was not checked yet.
    is_fresh: bool,
    /// Whether the entity is still being handed over to `region`.
    is_arriving: bool,
}

const FRESH: u8 = 1;
const ARRIVING: u8 = 2;
const OTHER_BYTES: usize = 13;

struct IdQuery<const D: usize, B> {
    ids: Vec<EntityId>,
    /// The regions that have not responded yet.
    remaining: BTreeSet<RegionId>,
    others: Vec<RemoteEntity>,
    sent_ns: u64,
    deadline_ns: Option<u64>,
    callback: IdCallback<D, B>,
}

/// The pending queries for ids, and the spawned entities whose ids are still to be checked.
pub(super) struct IdChecks<const D: usize, B> {
    last: u64,
    queries: BTreeMap<u64, IdQuery<D, B>>,
    /// The entities that were spawned here and for which no query was sent yet.
    unchecked: Vec<EntityId>,
    is_checking: bool,
    /// The spawned entities for which it is undecided whether they are removed, or another entity with the same id in
    /// another region. Their ids are checked again.
    undecided: BTreeSet<EntityId>,
    /// The entities that were spawned for clients and whose ids are now checked a second time. Each has the function
    /// that replies to the client, and the region and the time of the spawn.
    waiting: HashMap<EntityId, (Reply, Spawned)>,
}

impl<const D: usize, B> Default for IdChecks<D, B> {
    fn default() -> IdChecks<D, B> {
        IdChecks {
            last: 0,
            queries: BTreeMap::new(),
            unchecked: Vec::new(),
            is_checking: false,
            undecided: BTreeSet::new(),
            waiting: HashMap::new(),
        }
    }
}

impl<const D: usize, B> IdChecks<D, B> {
    pub(super) fn is_pending(&self) -> bool {
        !self.queries.is_empty() || !self.undecided.is_empty()
    }

    /// Drops the responses to spawns in a region that no longer runs here. The check of their ids does not continue.
    pub(super) fn remove_region(&mut self, region: RegionId) {
        self.waiting.retain(|_, (_, spawned)| spawned.0 != region);
    }
}

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    /// Spawns an entity for a client, after the owners of all regions have responded that its id is free. Calls `reply`
    /// with the result.
    pub fn spawn_for(
        &mut self,
        entity: &Entity<'_, D>,
        reply: impl FnOnce(Result<Spawned, SpawnError>) + Send + 'static,
    ) {
        let no_owner: Vec<RegionId> =
            self.remote_region_ids().filter(|region| self.links.route_to(*region).is_none()).collect();
        if let Some((region, _)) = self.host.find_entity(entity.id) {
            let taken = StoreError::Taken { id: entity.id, region };
            return reply(Err(CommandError::from(taken).into()));
        }
        match self.host.region_for(entity) {
            Err(why) => return reply(Err(CommandError::from(why).into())),
            Ok(_) if !no_owner.is_empty() => return reply(Err(SpawnError::NoOwner(no_owner))),
            Ok(_) => {}
        }
        let (components, entity) = (entity.components.to_vec(), Entity { components: &[], ..*entity });
        let callback = move |runner: &mut WorldRunner<D, B>,
                             others: Result<Vec<RemoteEntity>, Vec<RegionId>>| {
            let entity = Entity { components: &components, ..entity };
            let taken = |other: &RemoteEntity| StoreError::Taken { id: other.id, region: other.region };
            let spawned = match others.map(|others| others.first().map(taken)) {
                Err(regions) => Err(SpawnError::NoOwner(regions)),
                Ok(Some(taken)) => Err(CommandError::from(taken).into()),
                Ok(None) => runner.host.spawn_for_client(&entity, monotonic_ns()).map_err(SpawnError::from),
            };
            match spawned {
                Ok(spawned) => drop(runner.ids.waiting.insert(entity.id, (Box::new(reply), spawned))),
                Err(why) => reply(Err(why)),
            }
        };
        self.query_ids(vec![entity.id], Some(monotonic_ns() + CLIENT_TIMEOUT_NS), Box::new(callback));
    }

    /// Starts to check the ids of entities that were spawned since the last call.
    pub(super) fn check_spawned(&mut self) {
        let spawned = self.host.take_spawned();
        if spawned.is_empty() {
            return;
        }
        self.ids.unchecked.extend(spawned);
        self.query_unchecked_ids();
    }

    /// Sends a query for the unchecked ids, unless an earlier query is pending.
    fn query_unchecked_ids(&mut self) {
        if self.ids.is_checking {
            return;
        }
        let ids = std::mem::take(&mut self.ids.unchecked);
        self.ids.is_checking = !ids.is_empty();
        if self.ids.is_checking {
            let callback = |runner: &mut WorldRunner<D, B>,
                            others: Result<Vec<RemoteEntity>, Vec<RegionId>>| {
                runner.remove_duplicates(&others.unwrap_or_default());
            };
            self.query_ids(ids, None, Box::new(callback));
        }
    }

    /// Removes entities that were spawned here and whose id another region also has. If it is still open which entity
    /// is removed, or the region is being released, marks the id as undecided.
    fn remove_duplicates(&mut self, others: &[RemoteEntity]) {
        for other in others.iter().filter(|other| !other.is_arriving) {
            let own = self.host.find_entity_where(other.id, |region| region != other.region);
            let Some((own, status)) = own.filter(|_| self.host.is_unconfirmed(other.id)) else { continue };
            let is_open = status != EntityStatus::Own || other.is_fresh && other.region > own;
            let (id, region) = (other.id, other.region);
            if is_open || !self.host.remove_duplicate(id, region) {
                self.ids.undecided.insert(id);
                continue;
            }
            self.ids.undecided.remove(&id);
            tracing::warn!(
                "entity {id} of region {} is removed: region {} has an entity with the same id",
                own.0,
                region.0
            );
            if let Some((reply, _)) = self.ids.waiting.remove(&id) {
                reply(Err(CommandError::from(StoreError::Taken { id, region }).into()));
            }
        }
    }

    /// Whether a region runs at this process, and no other process is known to have claimed it since.
    fn is_local(&self, region: RegionId) -> bool {
        let claimed = self.links.route_to(region).map_or(0, |(_, epoch)| epoch);
        self.host.region(region).is_some_and(|ours| claimed <= ours.handover().epoch())
    }

    /// All regions of the world that do not run at this process.
    fn remote_region_ids(&self) -> impl Iterator<Item = RegionId> + '_ {
        let all = self.host.partition().regions().iter().map(|(_, region)| *region);
        all.filter(|region| !self.is_local(*region))
    }

    fn query_ids(&mut self, ids: Vec<EntityId>, deadline_ns: Option<u64>, callback: IdCallback<D, B>) {
        let remaining = self.remote_region_ids().collect();
        self.ids.last += 1;
        let query = IdQuery { ids, remaining, others: Vec::new(), sent_ns: 0, deadline_ns, callback };
        self.ids.queries.insert(self.ids.last, query);
        self.send_query(self.ids.last, monotonic_ns());
        self.finish_if_complete(self.ids.last);
    }

    fn send_query(&mut self, number: u64, now_ns: u64) {
        let Some(query) = self.ids.queries.get_mut(&number) else { return };
        query.sent_ns = now_ns;
        let bytes: Vec<u8> = query.ids.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        let owners = query.remaining.iter().filter_map(|region| self.links.route_to(*region));
        let processes: BTreeSet<u64> = owners.map(|(process, _)| process).collect();
        for process in processes {
            self.links.send(process, &SpaceFrame::IdQuery { number, ids: &bytes });
        }
    }

    /// Answers pending queries for regions that have come to this process since the queries were sent.
    fn answer_local_regions(&mut self) {
        let all = self.host.regions().map(|(region, _)| region);
        let all_local: BTreeSet<RegionId> = all.filter(|region| self.is_local(*region)).collect();
        let (host, mut answered) = (&self.host, Vec::new());
        for (number, query) in &mut self.ids.queries {
            let local: Vec<RegionId> = query.remaining.intersection(&all_local).copied().collect();
            if local.is_empty() {
                continue;
            }
            answered.push(*number);
            for region in local {
                query.remaining.remove(&region);
                let found = query.ids.iter().filter_map(|id| {
                    let (_, status) = host.find_entity_where(*id, |searched| searched == region)?;
                    let is_arriving = status == EntityStatus::Coming;
                    // The entity was not spawned just now: it is part of the state that was taken over.
                    Some(RemoteEntity { id: *id, region, is_fresh: false, is_arriving })
                });
                query.others.extend(found);
            }
        }
        for number in answered {
            self.finish_if_complete(number);
        }
    }

    /// Handles pending queries: answers them for regions that now run here, ends those whose time limit has passed, and
    /// repeats those that have waited long. Checks the undecided ids again.
    pub(super) fn expire_queries(&mut self, now_ns: u64) {
        self.answer_local_regions();
        self.ids.unchecked.extend(std::mem::take(&mut self.ids.undecided));
        self.query_unchecked_ids();
        let is_expired =
            |query: &IdQuery<D, B>| query.deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
        for number in self.query_numbers(is_expired) {
            if let Some(query) = self.ids.queries.remove(&number) {
                (query.callback)(self, Err(query.remaining.into_iter().collect()));
            }
        }
        for number in self.query_numbers(|query| now_ns >= query.sent_ns + QUERY_REPEAT_NS) {
            self.send_query(number, now_ns);
        }
    }

    /// The numbers of the queries that `filter` accepts.
    fn query_numbers(&self, filter: impl Fn(&IdQuery<D, B>) -> bool) -> Vec<u64> {
        let queries = self.ids.queries.iter().filter(|(_, query)| filter(query));
        queries.map(|(number, _)| *number).collect()
    }

    fn finish_if_complete(&mut self, number: u64) {
        if self.ids.queries.get(&number).is_none_or(|query| !query.remaining.is_empty()) {
            return;
        }
        let Some(query) = self.ids.queries.remove(&number) else { return };
        (query.callback)(self, Ok(query.others));
        if query.deadline_ns.is_some() {
            return;
        }
        // The query was about entities that had just been spawned. Those that were neither removed nor left undecided
        // have unique ids.
        let is_unique = |id: &EntityId| !self.ids.undecided.contains(id);
        let unique: Vec<EntityId> = query.ids.into_iter().filter(is_unique).collect();
        for id in unique {
            self.host.confirm_unique(id);
            if let Some((reply, spawned)) = self.ids.waiting.remove(&id) {
                self.respond_when_confirmed(spawned.0, move || reply(Ok(spawned)));
            }
        }
        self.ids.is_checking = false;
        self.query_unchecked_ids();
    }

    /// Responds to another process's query for ids.
    pub(super) fn handle_id_query(
        &mut self,
        process: u64,
        number: u64,
        ids: &[u8],
    ) -> Result<(), RunnerRefusal> {
        let (ids, []) = ids.as_chunks::<8>() else {
            return Err(RunnerRefusal::Frame("invalid ids"));
        };
        let regions: Vec<RegionId> = self.host.regions().map(|(region, _)| region).collect();
        let mut bytes = (regions.len() as u32).to_le_bytes().to_vec();
        bytes.extend(regions.iter().flat_map(|region| region.0.to_le_bytes()));
        for id in ids.iter().map(|id| EntityId(u64::from_le_bytes(*id))) {
            let Some((region, status)) = self.host.find_entity(id) else { continue };
            bytes.extend_from_slice(&id.0.to_le_bytes());
            bytes.extend_from_slice(&region.0.to_le_bytes());
            let fresh = if self.host.is_unconfirmed(id) { FRESH } else { 0 };
            bytes.push(fresh | if status == EntityStatus::Coming { ARRIVING } else { 0 });
        }
        self.links.send(process, &SpaceFrame::IdResponse { number, bytes: &bytes });
        Ok(())
    }

    /// Handles another process's response to a query for ids. Ignores what it says about regions of other owners.
    pub(super) fn handle_id_response(
        &mut self,
        process: u64,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), RunnerRefusal> {
        let mut body = FieldReader(bytes);
        let regions = body.region()?.0 as usize;
        let (regions, []) = body.bytes(regions.saturating_mul(4))?.as_chunks::<4>() else { return Ok(()) };
        let (others, []) = body.0.as_chunks::<OTHER_BYTES>() else {
            return Err(RunnerRefusal::Frame("the list of ids is invalid"));
        };
        let links = &self.links;
        let is_owner = |region: RegionId| links.route_to(region).is_some_and(|(owner, _)| owner == process);
        let Some(query) = self.ids.queries.get_mut(&number) else { return Ok(()) };
        for region in regions.iter().map(|region| RegionId(u32::from_le_bytes(*region))) {
            if is_owner(region) {
                query.remaining.remove(&region);
            }
        }
        for other in others {
            let mut body = FieldReader(other);
            let (id, region) = (EntityId(body.u64()?), body.region()?);
            let [flags] = body.take::<1>()?;
            if !is_owner(region) {
                continue;
            }
            let (is_fresh, is_arriving) = (flags & FRESH != 0, flags & ARRIVING != 0);
            query.others.push(RemoteEntity { id, region, is_fresh, is_arriving });
        }
        self.finish_if_complete(number);
        Ok(())
    }
}

//! Keeps entity ids unique: a process that spawns an entity asks the owners of all other regions whether the id is in
//! use.
//!
//! ```text
//!  a client spawns:  ask all ── all say no ──► spawn ── ask all again ── all say no ──► tell the client
//!                        └─ one has the id ──► refuse        └─ one has the id ──► remove, refuse
//!  a program spawns:                           spawn ── ask all ── one has the id ──► remove, report
//! ```
//! Invariants:
//! - Of two entities with the same id, the one that was just spawned is removed. If both were just spawned, the one in
//!   the region with the higher number is removed.
//! - An entity that was handed over since its spawn is not removed. Such an entity may have returned since, and another
//!   region's response may have been about the same entity.
//! - A query to a region without an owner waits until the region has an owner. A client's spawn is refused during this
//!   time.
//! - A lost query is repeated; a repeated response changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dunlin::space::{Behaviour, CommandError, Entity, EntityId, EntityStatus, RegionId, StoreError};

use super::Runner;
use crate::space::error::RunnerRefusal;
use crate::space::frame::{FieldReader, SpaceFrame};
use crate::space::pace::monotonic_ns;

/// Interval at which a query is repeated, ns. It is long, because a response about a million ids takes a while.
const ASK_AGAIN_NS: u64 = 1_000_000_000;
/// How long the spawn of a client waits for all responses, ns.
const CLIENT_NS: u64 = 1_500_000_000;

/// The reason why an entity was not added to a world.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The entity's position, id or state was refused.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// The owners of these regions did not respond.
    #[error("no process that responds owns {}, so the id may be in use there: retry later", list(.0))]
    NoOwner(Vec<RegionId>),
}

/// The region of a spawned entity, and the last tick before the spawn.
type Spawned = (RegionId, u64);
type Reply = Box<dyn FnOnce(Result<Spawned, SpawnError>) + Send>;
/// A function that receives the entities that have one of the ids, or the regions that did not respond.
type IdCallback<const D: usize, B> =
    Box<dyn FnOnce(&mut Runner<D, B>, Result<Vec<RemoteEntity>, Vec<RegionId>>) + Send>;

/// An entity at another process that has one of the queried ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RemoteEntity {
    id: EntityId,
    region: RegionId,
    /// Whether the entity was also just spawned.
    is_fresh: bool,
    /// Whether the entity is being handed over to that region.
    is_coming: bool,
}

const FRESH: u8 = 1;
const COMING: u8 = 2;
const OTHER_BYTES: usize = 13;

struct IdQuery<const D: usize, B> {
    ids: Vec<EntityId>,
    /// The regions that have not responded yet.
    left: BTreeSet<RegionId>,
    others: Vec<RemoteEntity>,
    asked_ns: u64,
    until_ns: Option<u64>,
    then: IdCallback<D, B>,
}

/// The queries for ids that are pending, and the entities that are still to be checked.
pub(super) struct IdChecks<const D: usize, B> {
    last: u64,
    questions: BTreeMap<u64, IdQuery<D, B>>,
    /// The entities that were spawned here and whose ids were not checked yet.
    next: Vec<EntityId>,
    is_asking: bool,
    /// The clients that wait for the second check of their spawned entity, by entity: where to reply, and the spawn.
    waiting: HashMap<EntityId, (Reply, Spawned)>,
}

impl<const D: usize, B> Default for IdChecks<D, B> {
    fn default() -> IdChecks<D, B> {
        IdChecks {
            last: 0,
            questions: BTreeMap::new(),
            next: Vec::new(),
            is_asking: false,
            waiting: HashMap::new(),
        }
    }
}

impl<const D: usize, B> IdChecks<D, B> {
    pub(super) fn is_pending(&self) -> bool {
        !self.questions.is_empty()
    }
}

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    /// Spawns an entity after all regions have confirmed that its id is free. Sends the result with `reply`.
    pub fn spawn_for(
        &mut self,
        entity: &Entity<'_, D>,
        reply: impl FnOnce(Result<Spawned, SpawnError>) + Send + 'static,
    ) {
        let no_owner: Vec<RegionId> =
            self.elsewhere_all().filter(|region| self.links.whereabouts(*region).is_none()).collect();
        if let Some((region, _)) = self.host.holding(entity.id) {
            let taken = StoreError::Taken { id: entity.id, region };
            return reply(Err(CommandError::from(taken).into()));
        }
        match self.host.place_for(entity) {
            Err(why) => return reply(Err(CommandError::from(why).into())),
            Ok(_) if !no_owner.is_empty() => return reply(Err(SpawnError::NoOwner(no_owner))),
            Ok(_) => {}
        }
        let (components, entity) = (entity.components.to_vec(), Entity { components: &[], ..*entity });
        let then = move |runner: &mut Runner<D, B>, others: Result<Vec<RemoteEntity>, Vec<RegionId>>| {
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
        self.ask(vec![entity.id], Some(monotonic_ns() + CLIENT_NS), Box::new(then));
    }

    /// Checks the ids of entities that were spawned since the last call.
    pub(super) fn check_spawned(&mut self) {
        let spawned = self.host.take_spawned();
        if spawned.is_empty() {
            return;
        }
        self.ids.next.extend(spawned);
        if !self.ids.is_asking {
            self.ask_of_fresh();
        }
    }

    fn ask_of_fresh(&mut self) {
        let ids = std::mem::take(&mut self.ids.next);
        self.ids.is_asking = !ids.is_empty();
        if self.ids.is_asking {
            let then = |runner: &mut Runner<D, B>, others: Result<Vec<RemoteEntity>, Vec<RegionId>>| {
                runner.settle_fresh(&others.unwrap_or_default());
            };
            self.ask(ids, None, Box::new(then));
        }
    }

    /// Removes the entities spawned here whose id is also used in another region.
    fn settle_fresh(&mut self, others: &[RemoteEntity]) {
        for other in others.iter().filter(|other| !other.is_coming) {
            let Some((own, EntityStatus::Own)) = self.host.holding(other.id) else { continue };
            if !self.host.is_unproven(other.id) || other.is_fresh && other.region > own {
                continue;
            }
            let (id, region) = (other.id, other.region);
            self.host.take_back(id, region);
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

    /// All regions that run at other processes, or nowhere.
    fn elsewhere_all(&self) -> impl Iterator<Item = RegionId> + '_ {
        let all = self.host.partition().regions().iter().map(|(_, region)| *region);
        all.filter(|region| self.host.region(*region).is_none())
    }

    fn ask(&mut self, ids: Vec<EntityId>, until_ns: Option<u64>, then: IdCallback<D, B>) {
        let left = self.elsewhere_all().collect();
        self.ids.last += 1;
        let question = IdQuery { ids, left, others: Vec::new(), asked_ns: 0, until_ns, then };
        self.ids.questions.insert(self.ids.last, question);
        self.send_question(self.ids.last, monotonic_ns());
        self.finish_if_answered(self.ids.last);
    }

    fn send_question(&mut self, number: u64, now_ns: u64) {
        let Some(question) = self.ids.questions.get_mut(&number) else { return };
        question.asked_ns = now_ns;
        let bytes: Vec<u8> = question.ids.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        let owners = question.left.iter().filter_map(|region| self.links.whereabouts(*region));
        let processes: BTreeSet<u64> = owners.map(|(process, _)| process).collect();
        for process in processes {
            self.links.send(process, &SpaceFrame::Ids { number, ids: &bytes });
        }
    }

    /// Repeats queries that have no response, and ends those that have timed out.
    pub(super) fn elapse_questions(&mut self, now_ns: u64) {
        let is_over = |question: &IdQuery<D, B>| question.until_ns.is_some_and(|until_ns| now_ns >= until_ns);
        for number in self.questions(is_over) {
            if let Some(question) = self.ids.questions.remove(&number) {
                (question.then)(self, Err(question.left.into_iter().collect()));
            }
        }
        for number in self.questions(|question| now_ns >= question.asked_ns + ASK_AGAIN_NS) {
            self.send_question(number, now_ns);
        }
    }

    /// The numbers of the queries that `is_so` accepts.
    fn questions(&self, is_so: impl Fn(&IdQuery<D, B>) -> bool) -> Vec<u64> {
        let questions = self.ids.questions.iter().filter(|(_, question)| is_so(question));
        questions.map(|(number, _)| *number).collect()
    }

    fn finish_if_answered(&mut self, number: u64) {
        if self.ids.questions.get(&number).is_none_or(|question| !question.left.is_empty()) {
            return;
        }
        let Some(question) = self.ids.questions.remove(&number) else { return };
        (question.then)(self, Ok(question.others));
        if question.until_ns.is_some() {
            return;
        }
        // The query was about entities that were just spawned. The ids of those that remain are unique.
        for id in &question.ids {
            self.host.prove(*id);
            if let Some((reply, spawned)) = self.ids.waiting.remove(id) {
                reply(Ok(spawned));
            }
        }
        self.ask_of_fresh();
    }

    /// Handles another process's query.
    pub(super) fn hear_ids(&mut self, process: u64, number: u64, ids: &[u8]) -> Result<(), RunnerRefusal> {
        let (ids, []) = ids.as_chunks::<8>() else {
            return Err(RunnerRefusal::Frame("invalid ids"));
        };
        let regions: Vec<RegionId> = self.host.regions().map(|(region, _)| region).collect();
        let mut bytes = (regions.len() as u32).to_le_bytes().to_vec();
        bytes.extend(regions.iter().flat_map(|region| region.0.to_le_bytes()));
        for id in ids.iter().map(|id| EntityId(u64::from_le_bytes(*id))) {
            let Some((region, holding)) = self.host.holding(id) else { continue };
            bytes.extend_from_slice(&id.0.to_le_bytes());
            bytes.extend_from_slice(&region.0.to_le_bytes());
            let fresh = if self.host.is_unproven(id) { FRESH } else { 0 };
            bytes.push(fresh | if holding == EntityStatus::Coming { COMING } else { 0 });
        }
        self.links.send(process, &SpaceFrame::Held { number, bytes: &bytes });
        Ok(())
    }

    /// Handles another process's response.
    pub(super) fn hear_held(&mut self, number: u64, bytes: &[u8]) -> Result<(), RunnerRefusal> {
        let mut body = FieldReader(bytes);
        let regions = body.region()?.0 as usize;
        let (regions, []) = body.bytes(regions.saturating_mul(4))?.as_chunks::<4>() else { return Ok(()) };
        let (others, []) = body.0.as_chunks::<OTHER_BYTES>() else {
            return Err(RunnerRefusal::Frame("the list of ids is invalid"));
        };
        let Some(question) = self.ids.questions.get_mut(&number) else { return Ok(()) };
        for region in regions {
            question.left.remove(&RegionId(u32::from_le_bytes(*region)));
        }
        for other in others {
            let mut body = FieldReader(other);
            let (id, region) = (EntityId(body.u64()?), body.region()?);
            let [how] = body.take::<1>()?;
            let (is_fresh, is_coming) = (how & FRESH != 0, how & COMING != 0);
            question.others.push(RemoteEntity { id, region, is_fresh, is_coming });
        }
        self.finish_if_answered(number);
        Ok(())
    }
}

fn list(regions: &[RegionId]) -> String {
    let numbers: Vec<String> = regions.iter().map(|region| region.0.to_string()).collect();
    format!("{} {}", if numbers.len() == 1 { "region" } else { "regions" }, numbers.join(", "))
}

//! Sends requests that change, add or remove an entity to the process that owns the entity's region.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dunlin_space::{Entity, EntityCommand, EntityId, RegionId, WorldRefusal, WorldRequest, WorldResponse};
use dunlin_topic::{PublishError, RequestError, format_duration};

use super::{World, subject};
use crate::backoff::{RandomBackoff, random_seed};
use crate::pending_request::deadline;
use crate::space::world_owners::{RegionOwner, WorldOwnersError};

/// The shortest pause before the client searches again, for example for an entity that is being handed over.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// The limit of the random time by which the pause grows if an owner is missing or busy, ms: at first, and at most.
const GROWTH_MS: (u64, u64) = (20, 500);
/// How long the client waits for the response of one process, before it asks the next one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many times in succession the owners of all regions must respond that they do not have the entity, before the
/// client reports this. An entity can change its region during a round: each process is then asked at a time at which
/// it does not have the entity.
const ROUNDS: u32 = 5;

/// The result of a request to change, add or remove an entity that the region's owner has carried out. If the world has
/// standbys, the region's standby has the change, too. Otherwise, the change can be lost with the owner's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandResult {
    /// The process that has the entity, or had it until the request removed it.
    pub process: u64,
    /// The region in which the entity is, or was until the request removed it.
    pub region: RegionId,
    /// The last tick that the region had completed when the change was made.
    pub tick: u64,
}

/// Why a request to change, add or remove an entity failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No region of the world has the entity.
    #[error("no region of the world has entity {0}")]
    Unknown(EntityId),
    /// No process that responded within the timeout has the entity. The entity may be in a region whose owner did not
    /// respond, or that has no owner at present.
    #[error(
        "entity {id} was not found; it may be in {}, whose owner is missing or does not respond: retry later",
        RegionId::list(.regions)
    )]
    NoOwner {
        /// The entity's id.
        id: EntityId,
        /// The regions for which no process responded.
        regions: Vec<RegionId>,
    },
    /// The entity was not added: no process that responded within the timeout owns the region at the entity's position.
    #[error("entity {id} was not spawned: {}", describe_missing(.regions))]
    NoPlace {
        /// The entity's id.
        id: EntityId,
        /// The regions for which no process responded.
        regions: Vec<RegionId>,
    },
    /// The node refused the request, for example because the user may not send it.
    #[error("the node refused the request: {0}")]
    Refused(String),
    /// A process refused the request because the request is invalid.
    #[error("a process of the world refused the request: {0}")]
    Invalid(String),
    /// The request was not carried out within the timeout, because the entity was being handed over or its process was
    /// overloaded.
    #[error("the request was not carried out within {time}: {1}", time = format_duration(*.0))]
    Busy(Duration, String),
    /// None of the world's processes can be reached.
    #[error("none of the world's processes can be reached: {0}")]
    Disconnected(String),
    /// The response was lost, so the request may have been carried out. It is safe to repeat the request: a change sets
    /// values, and an entity is added or removed only once.
    #[error("the request may have been carried out: {0}; repeating it is safe")]
    Lost(String),
    /// The owners of the world's regions cannot be read.
    #[error(transparent)]
    WorldOwners(#[from] WorldOwnersError),
}

/// The result of one round, in which the client asks each process once.
#[derive(Debug, Default)]
struct QueryRound {
    /// Why the client should ask all processes again, for example because of a handover; `None` if there is no such
    /// reason.
    busy: Option<String>,
    unreachable: Option<String>,
    lost: Option<String>,
    /// The processes that do not have the entity. Each process has the regions and epochs that its response names, or
    /// `None` if the process runs an earlier version of Dunlin, which names no regions.
    absent: BTreeMap<u64, Option<Vec<(RegionId, u64)>>>,
}

impl QueryRound {
    /// Whether the owner of a region has responded that it does not have the entity.
    fn is_absent(&self, region: &RegionOwner) -> bool {
        let Some((process, epoch)) = region.owner else { return false };
        let covers = |regions: &Vec<(RegionId, u64)>| regions.contains(&(region.region, epoch));
        self.absent.get(&process).is_some_and(|regions| regions.as_ref().is_none_or(covers))
    }
}

impl World {
    /// Changes an entity, in whichever region it is. Fails if this takes longer than `timeout`.
    pub fn command<const D: usize>(
        &mut self,
        command: &EntityCommand<'_, D>,
        timeout: Duration,
    ) -> Result<CommandResult, CommandError> {
        let not_found = |regions| entity_error(command.id, regions);
        self.send_to_owner("command", &WorldRequest::EntityCommand(*command), timeout, not_found)
    }

    /// Adds an entity to the region at its position. Fails if this takes longer than `timeout`.
    ///
    /// The owner of this region first checks that no region has an entity with the same id. The entity's generation and
    /// its frozen flag are not sent.
    pub fn spawn<const D: usize>(
        &mut self,
        entity: &Entity<'_, D>,
        timeout: Duration,
    ) -> Result<CommandResult, CommandError> {
        let not_spawned = |regions| CommandError::NoPlace { id: entity.id, regions };
        self.send_to_owner("spawn", &WorldRequest::Spawn(*entity), timeout, not_spawned)
    }

    /// Removes an entity, in whichever region it is. Fails if this takes longer than `timeout`.
    pub fn despawn(&mut self, id: EntityId, timeout: Duration) -> Result<CommandResult, CommandError> {
        let not_found = |regions| entity_error(id, regions);
        self.send_to_owner("spawn", &WorldRequest::<3>::Despawn(id), timeout, not_found)
    }

    /// Sends a request to one process after another, until one has the entity, or owns the region at the entity's
    /// position. `not_found` receives the regions for which no process has responded.
    fn send_to_owner<const D: usize>(
        &mut self,
        endpoint: &str,
        request: &WorldRequest<'_, D>,
        timeout: Duration,
        not_found: impl Fn(Vec<RegionId>) -> CommandError,
    ) -> Result<CommandResult, CommandError> {
        let mut unanswered = None;
        let sent = self.query_processes(endpoint, request, timeout, not_found, &mut unanswered);
        // A process that did not respond may have carried out the request. Another process may then have refused the
        // request because of this change, so the other process's error does not tell the outcome.
        sent.map_err(|error| unanswered.map_or(error, CommandError::Lost))
    }

    /// Does the work of [`send_to_owner`](Self::send_to_owner). If a process may have received the request, but has not
    /// responded, stores the reason in `unanswered`.
    fn query_processes<const D: usize>(
        &mut self,
        endpoint: &str,
        request: &WorldRequest<'_, D>,
        timeout: Duration,
        not_found: impl Fn(Vec<RegionId>) -> CommandError,
        unanswered: &mut Option<String>,
    ) -> Result<CommandResult, CommandError> {
        let (mut bytes, until) = (Vec::new(), deadline(timeout));
        request.encode(&mut bytes);
        // Every position belongs to a region, so a spawn is repeated until the region's owner responds.
        let is_spawn = matches!(request, WorldRequest::Spawn(_));
        let (mut complete_rounds, mut last_error) = (0, None::<CommandError>);
        let mut growth = RandomBackoff::new(GROWTH_MS.0, GROWTH_MS.1, random_seed());
        loop {
            let began = Instant::now();
            let map = self.world_owners_until(until).map_err(|error| match (error, last_error.take()) {
                // The timeout has passed, and the result of the last round tells more.
                (WorldOwnersError::Kv(_), Some(last_error)) => last_error,
                (error, _) => error.into(),
            })?;
            self.requesters.retain(|url, _| map.processes.values().any(|known| known == url));
            let mut round_result = QueryRound::default();
            for (process, url) in &map.processes {
                let endpoint = (*process, endpoint);
                if let Some(done) =
                    self.request(endpoint, url, &bytes, until, &mut round_result, unanswered)?
                {
                    return Ok(done);
                }
            }
            let missing = map.regions_without(|region| round_result.is_absent(region));
            let QueryRound { busy, unreachable, lost, absent } = round_result;
            if let Some(why) = lost {
                return Err(CommandError::Lost(why));
            }
            let checked = map.check();
            let is_complete = busy.is_none() && (checked.is_err() || missing.is_empty() && !is_spawn);
            complete_rounds = if is_complete { complete_rounds + 1 } else { 0 };
            let error = match (busy, checked, unreachable) {
                (Some(why), ..) => CommandError::Busy(timeout, why),
                (None, Err(why), _) => why.into(),
                (None, Ok(()), Some(why)) if absent.is_empty() => CommandError::Disconnected(why),
                _ => not_found(missing),
            };
            // If the time ended during another round, that round's unanswered request would count as lost. Such a round
            // is therefore not begun.
            let spare = until.saturating_duration_since(Instant::now()).saturating_sub(began.elapsed());
            if complete_rounds >= ROUNDS || spare < RETRY_PAUSE {
                return Err(error);
            }
            last_error = Some(error);
            let pause = if is_complete { RETRY_PAUSE } else { RETRY_PAUSE + growth.next_wait() };
            // Leaves time for another round, even if it takes a little longer than this one.
            sleep(pause.min((spare - RETRY_PAUSE).max(RETRY_PAUSE)));
        }
    }

    /// Sends the request to one process. Returns `None` if the process cannot be reached, or if it neither has the
    /// entity nor owns the region at the entity's position.
    fn request(
        &mut self,
        (process, endpoint): (u64, &str),
        url: &str,
        bytes: &[u8],
        until: Instant,
        round_result: &mut QueryRound,
        unanswered: &mut Option<String>,
    ) -> Result<Option<CommandResult>, CommandError> {
        if !self.requesters.contains_key(url) {
            match self.client.connect_to_node(url) {
                Ok(client) => drop(self.requesters.insert(url.to_owned(), client.requester())),
                Err(why) => {
                    round_result.unreachable = Some(why.to_string());
                    return Ok(None);
                }
            }
        }
        let Some(requester) = self.requesters.get_mut(url) else { return Ok(None) };
        let remaining = until.saturating_duration_since(Instant::now()).min(RESPONSE_TIMEOUT);
        let sent_before = requester.sent_requests();
        let reply = match requester.request(&subject(&self.name, process, endpoint), bytes, remaining) {
            Ok(reply) => reply,
            Err(RequestError::Publish(PublishError::Forbidden(why) | PublishError::Refused(why))) => {
                return Err(CommandError::Refused(why));
            }
            // The process has ended, and another one may own its regions now. If the request was sent, the process may
            // have carried it out before it ended, and a standby may have copied the change.
            Err(why @ (RequestError::NoResponder(_) | RequestError::Inbox(_))) => {
                if requester.sent_requests() != sent_before {
                    *unanswered = Some(why.to_string());
                }
                round_result.unreachable = Some(why.to_string());
                return Ok(None);
            }
            Err(why) => {
                round_result.lost = Some(why.to_string());
                unanswered.clone_from(&round_result.lost);
                return Ok(None);
            }
        };
        match WorldResponse::decode(&reply.payload) {
            Ok(WorldResponse::Done { region, tick }) => Ok(Some(CommandResult { process, region, tick })),
            Ok(WorldResponse::Absent { regions }) => {
                round_result.absent.insert(process, Some(regions));
                Ok(None)
            }
            Ok(WorldResponse::Refused { why: WorldRefusal::NotHere, .. }) => {
                round_result.absent.insert(process, None);
                Ok(None)
            }
            Ok(WorldResponse::Refused { why: WorldRefusal::Wrong, text }) => {
                Err(CommandError::Invalid(text.to_owned()))
            }
            Ok(WorldResponse::Refused { text, .. }) => {
                round_result.busy = Some(text.to_owned());
                Ok(None)
            }
            Ok(_) => Err(CommandError::Lost("the process sent an unexpected response".to_owned())),
            Err(why) => Err(CommandError::Lost(why.to_string())),
        }
    }
}

/// The error that no process has the entity, if no process has responded for `regions`.
pub(super) fn entity_error(id: EntityId, regions: Vec<RegionId>) -> CommandError {
    if regions.is_empty() { CommandError::Unknown(id) } else { CommandError::NoOwner { id, regions } }
}

fn describe_missing(regions: &[RegionId]) -> String {
    if regions.is_empty() {
        return "the region is moving to another owner: try again".to_owned();
    }
    format!("no owner responds for {}: try again", RegionId::list(regions))
}

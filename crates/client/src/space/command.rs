//! Sends requests that change, add or remove an entity to the process that owns the entity's region.

use std::thread::sleep;
use std::time::{Duration, Instant};

use dunlin_space::{Entity, EntityCommand, EntityId, RegionId, WorldRefusal, WorldRequest, WorldResponse};
use dunlin_topic::{PublishError, RequestError};

use super::{World, subject};
use crate::pending_request::deadline;
use crate::space::world_owners::{WorldOwners, WorldOwnersError};

/// The pause before the client searches again for an entity that is being handed over.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long the client waits for the response of one process, before it asks the next one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many times the client asks all processes, before it reports that no region has the entity.
const ROUNDS: u32 = 5;

/// The result of a request to change, add or remove an entity that the region's owner has carried out. The change can
/// still be lost if the owner's process dies before the next tick ends.
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
    /// No process has the entity. It may be in a region that has no owner at present.
    #[error(
        "entity {id} was not found; it may be in {}, which no process owns at present: retry when the region has an owner",
        format_regions(.regions)
    )]
    NoOwner {
        /// The entity's id.
        id: EntityId,
        /// The regions without an owner.
        regions: Vec<RegionId>,
    },
    /// The entity was not added: no process that can be reached owns the region at its position.
    #[error("entity {id} was not spawned: no reachable process owns the region of its position; {}", describe_unowned(.regions))]
    NoPlace {
        /// The entity's id.
        id: EntityId,
        /// The regions without an owner.
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
    #[error("the request was not carried out within {0:?}: {1}")]
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
    /// Why the client should ask all processes again, for example because of a handover; `None` if it should not.
    busy: Option<String>,
    unreachable: Option<String>,
    lost: Option<String>,
    answered: bool,
}

impl World {
    /// Changes an entity, in whichever region it is. Fails if this takes longer than `timeout`.
    pub fn command<const D: usize>(
        &mut self,
        command: &EntityCommand<'_, D>,
        timeout: Duration,
    ) -> Result<CommandResult, CommandError> {
        self.send_to_owner("command", &WorldRequest::EntityCommand(*command), timeout, |map| {
            map.entity_error(command.id)
        })
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
        let not_spawned =
            |map: &WorldOwners| CommandError::NoPlace { id: entity.id, regions: map.unowned_regions() };
        self.send_to_owner("spawn", &WorldRequest::Spawn(*entity), timeout, not_spawned)
    }

    /// Removes an entity, in whichever region it is. Fails if this takes longer than `timeout`.
    pub fn despawn(&mut self, id: EntityId, timeout: Duration) -> Result<CommandResult, CommandError> {
        self.send_to_owner("spawn", &WorldRequest::<3>::Despawn(id), timeout, |map| map.entity_error(id))
    }

    /// Sends a request to one process after another, until one has the entity, or owns the region at the entity's
    /// position.
    fn send_to_owner<const D: usize>(
        &mut self,
        endpoint: &str,
        request: &WorldRequest<'_, D>,
        timeout: Duration,
        error_without_owner: impl Fn(&WorldOwners) -> CommandError,
    ) -> Result<CommandResult, CommandError> {
        let mut unanswered = None;
        let sent = self.query_processes(endpoint, request, timeout, error_without_owner, &mut unanswered);
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
        error_without_owner: impl Fn(&WorldOwners) -> CommandError,
        unanswered: &mut Option<String>,
    ) -> Result<CommandResult, CommandError> {
        let (mut bytes, until) = (Vec::new(), deadline(timeout));
        request.encode(&mut bytes);
        let (mut round, mut busy) = (0, None::<String>);
        loop {
            round += 1;
            let map = self.world_owners_until(until).map_err(|error| match (error, &busy) {
                // The timeout has passed while a process was busy, so this is the error to return.
                (WorldOwnersError::Kv(_), Some(why)) => CommandError::Busy(timeout, why.clone()),
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
            let late = Instant::now() + RETRY_PAUSE > until;
            match round_result {
                QueryRound { lost: Some(why), .. } => return Err(CommandError::Lost(why)),
                QueryRound { busy: Some(why), .. } if late => return Err(CommandError::Busy(timeout, why)),
                QueryRound { busy: None, answered, unreachable, .. } if late || round >= ROUNDS => {
                    map.check()?;
                    return Err(match unreachable {
                        Some(why) if !answered => CommandError::Disconnected(why),
                        _ => error_without_owner(&map),
                    });
                }
                _ => {
                    busy = round_result.busy;
                    sleep(RETRY_PAUSE);
                }
            }
        }
    }

    /// Sends the request to one process. Returns `None` if the process neither has the entity nor owns the region at
    /// its position, or cannot be reached.
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
        round_result.answered = true;
        match WorldResponse::decode(&reply.payload) {
            Ok(WorldResponse::Done { region, tick }) => Ok(Some(CommandResult { process, region, tick })),
            Ok(WorldResponse::Refused { why: WorldRefusal::NotHere, .. }) => Ok(None),
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

fn describe_unowned(regions: &[RegionId]) -> String {
    match regions {
        [] => "the region is moving to another owner: try again".to_owned(),
        [_] => format!("{} has no owner now", format_regions(regions)),
        _ => format!("{} have no owner now", format_regions(regions)),
    }
}

fn format_regions(regions: &[RegionId]) -> String {
    let numbers: Vec<String> = regions.iter().map(|region| region.0.to_string()).collect();
    format!("{} {}", if numbers.len() == 1 { "region" } else { "regions" }, numbers.join(", "))
}

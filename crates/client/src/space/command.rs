//! Commands to entities, spawns and despawns: taken to the process whose region it is.

use std::thread::sleep;
use std::time::{Duration, Instant};

use dunlin_space::{Answer, Ask, Command, Denial, Entity, EntityId, RegionId};
use dunlin_topic::{PublishError, RequestError};

use super::{World, subject};
use crate::asked::deadline;
use crate::space::places::{Places, PlacesError};

/// Who is on its way between two regions is looked for again after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A process that does not answer for so long is not waited for while others may have the entity.
const ANSWER: Duration = Duration::from_secs(2);
/// Whom nobody has when all were asked so often is nowhere.
const ROUNDS: u32 = 5;

/// A command, spawn or despawn that was carried out. The region's owner has it; if that process is killed before the next tick is
/// over, the entity may go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commanded {
    /// The process that has, or had, the entity.
    pub process: u64,
    /// The region.
    pub region: RegionId,
    /// The last tick before it.
    pub tick: u64,
}

/// Why a command, spawn or despawn was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No region has it.
    #[error("no region of the world has entity {0}")]
    Unknown(EntityId),
    /// It may be in a region that nobody owns now.
    #[error(
        "no process has entity {id}, and nobody owns {} now: what it holds stands still until somebody does; try again then",
        list(.regions)
    )]
    NoOwner {
        /// Which entity.
        id: EntityId,
        /// The regions without an owner.
        regions: Vec<RegionId>,
    },
    /// No process takes the entity in: nobody owns the region of its place now.
    #[error("entity {id} is not spawned: no process that answers owns the region of its place; {}", without_an_owner(.regions))]
    NoPlace {
        /// Which entity.
        id: EntityId,
        /// The regions without an owner.
        regions: Vec<RegionId>,
    },
    /// It cannot be so, or the user may not do it.
    #[error("refused: {0}")]
    Refused(String),
    /// It is being handed over, or its process has too much to do, and that lasted too long.
    #[error("not done within {0:?}: {1}")]
    Busy(Duration, String),
    /// No process can be reached.
    #[error("none of the world's processes can be reached: {0}")]
    Away(String),
    /// The answer was lost: it may or may not have been done. To ask again does no harm: a command says how an entity is to be, an
    /// entity is spawned once, and is despawned once.
    #[error("outcome unknown: {0}")]
    Lost(String),
    /// It is not known where the world is.
    #[error(transparent)]
    Places(#[from] PlacesError),
}

/// What one round of asking came to.
#[derive(Debug, Default)]
struct Round {
    /// Why it may be otherwise before long.
    busy: Option<String>,
    away: Option<String>,
    lost: Option<String>,
    answered: bool,
}

impl World {
    /// Changes an entity, wherever it is, within so long.
    pub fn command<const D: usize>(
        &mut self,
        command: &Command<'_, D>,
        timeout: Duration,
    ) -> Result<Commanded, CommandError> {
        self.take_to_owner("command", &Ask::Command(*command), timeout, |places| places.nowhere(command.id))
    }

    /// Takes in an entity that is new in the world, within so long: the process that owns the region of its place does it, once no
    /// region of the world has an entity of this id. Its generation and whether it is frozen are not sent.
    pub fn spawn<const D: usize>(
        &mut self,
        entity: &Entity<'_, D>,
        timeout: Duration,
    ) -> Result<Commanded, CommandError> {
        let no_place = |places: &Places| CommandError::NoPlace { id: entity.id, regions: places.free() };
        self.take_to_owner("spawn", &Ask::Spawn(*entity), timeout, no_place)
    }

    /// Takes an entity out of the world, wherever it is, within so long.
    pub fn despawn(&mut self, id: EntityId, timeout: Duration) -> Result<Commanded, CommandError> {
        self.take_to_owner("spawn", &Ask::<3>::Despawn(id), timeout, |places| places.nowhere(id))
    }

    /// Asks the processes in turn until one has the entity or its place.
    fn take_to_owner<const D: usize>(
        &mut self,
        what: &str,
        asked: &Ask<'_, D>,
        timeout: Duration,
        nowhere: impl Fn(&Places) -> CommandError,
    ) -> Result<Commanded, CommandError> {
        let (mut bytes, until) = (Vec::new(), deadline(timeout));
        asked.encode(&mut bytes);
        let mut round = 0;
        loop {
            round += 1;
            let places = self.places()?;
            self.requesters.retain(|url, _| places.processes.values().any(|known| known == url));
            let mut said = Round::default();
            for (process, url) in &places.processes {
                if let Some(done) = self.ask((*process, what), url, &bytes, until, &mut said)? {
                    return Ok(done);
                }
            }
            let late = Instant::now() + LOOK_AGAIN > until;
            match said {
                Round { lost: Some(why), .. } => return Err(CommandError::Lost(why)),
                Round { busy: Some(why), .. } if late => return Err(CommandError::Busy(timeout, why)),
                Round { busy: None, answered, away, .. } if late || round >= ROUNDS => {
                    places.check()?;
                    return Err(match away {
                        Some(why) if !answered => CommandError::Away(why),
                        _ => nowhere(&places),
                    });
                }
                _ => sleep(LOOK_AGAIN),
            }
        }
    }

    /// Asks one process; nothing where it does not have the entity or its place, or not now.
    fn ask(
        &mut self,
        (process, what): (u64, &str),
        url: &str,
        bytes: &[u8],
        until: Instant,
        said: &mut Round,
    ) -> Result<Option<Commanded>, CommandError> {
        if !self.requesters.contains_key(url) {
            match self.client.beside(url) {
                Ok(client) => drop(self.requesters.insert(url.to_owned(), client.requester())),
                Err(why) => {
                    said.away = Some(why.to_string());
                    return Ok(None);
                }
            }
        }
        let Some(requester) = self.requesters.get_mut(url) else { return Ok(None) };
        let left = until.saturating_duration_since(Instant::now()).min(ANSWER);
        let reply = match requester.request(&subject(&self.name, process, what), bytes, left) {
            Ok(reply) => reply,
            Err(RequestError::Publish(PublishError::Forbidden(why) | PublishError::Refused(why))) => {
                return Err(CommandError::Refused(why));
            }
            // A process that is gone took nothing, or took it and is gone with it.
            Err(why @ (RequestError::NoResponder(_) | RequestError::Inbox(_))) => {
                said.away = Some(why.to_string());
                return Ok(None);
            }
            Err(why) => {
                said.lost = Some(why.to_string());
                return Ok(None);
            }
        };
        said.answered = true;
        match Answer::decode(&reply.payload) {
            Ok(Answer::Done { region, tick }) => Ok(Some(Commanded { process, region, tick })),
            Ok(Answer::Refused { why: Denial::NotHere, .. }) => Ok(None),
            Ok(Answer::Refused { why: Denial::Wrong, text }) => Err(CommandError::Refused(text.to_owned())),
            Ok(Answer::Refused { text, .. }) => {
                said.busy = Some(text.to_owned());
                Ok(None)
            }
            Ok(_) => Err(CommandError::Lost("the process answered something else".to_owned())),
            Err(why) => Err(CommandError::Lost(why.to_string())),
        }
    }
}

fn without_an_owner(regions: &[RegionId]) -> String {
    match regions {
        [] => "the region is changing hands: try again".to_owned(),
        [_] => format!("{} has no owner now", list(regions)),
        _ => format!("{} have no owner now", list(regions)),
    }
}

fn list(regions: &[RegionId]) -> String {
    let numbers: Vec<String> = regions.iter().map(|region| region.0.to_string()).collect();
    format!("{} {}", if numbers.len() == 1 { "region" } else { "regions" }, numbers.join(", "))
}

//! The subjects at which a world's process serves clients: watching, commands and spawning.
//!
//! Each process responds at three subjects of its node: `space.WORLD.process.N.watch`, `.command` and `.spawn`. A
//! node's permissions can therefore allow them separately. `crates/space/src/interest/ask.rs` and `answer.rs` define
//! the messages. A viewer is identified by its inbox, and ends when the inbox ends.
//!
//! Limits: `RegionLimits::viewers_max`, `SpaceLimits::orders_max`. One update of a viewer is one record, so the node's
//! limits of records apply.

use std::sync::Arc;

use dunlin::space::{
    Behaviour, CommandError, Denial, RegionId, StepError, StoreError, SurroundingsWatch, VisibilityRule,
    WorldRequest, WorldResponse,
};
use dunlin::topic::{Publish, Publisher, Retention, TopicConfig};
use dunlin::{Node, Request, Responder};

use super::error::SpaceError;
use super::handle::Space;
use super::pace::monotonic_ns;
use super::runner::{Runner, SpawnError};

/// Retention of a subject for requests, bytes. It is small, because requests are handled at once and never read later.
const HISTORY_BYTES: u64 = 1 << 20;

/// The service of one process for clients of a world: watches, commands and spawns. Dropping it ends the service.
#[derive(Debug)]
pub struct SpaceEndpoint {
    _watch: Responder,
    _command: Responder,
    _spawn: Responder,
}

/// The subject at which a world's process accepts viewers.
pub fn watch_subject(world: &str, process: u64) -> String {
    format!("space.{world}.process.{process}.watch")
}

/// The subject at which a world's process accepts commands.
pub fn command_subject(world: &str, process: u64) -> String {
    format!("space.{world}.process.{process}.command")
}

/// The subject at which a world's process spawns and removes entities.
pub fn spawn_subject(world: &str, process: u64) -> String {
    format!("space.{world}.process.{process}.spawn")
}

impl SpaceEndpoint {
    /// Starts serving clients at a process's node. `allowed` limits the entities that any viewer may see.
    pub fn open<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
        node: &Node,
        space: &Arc<Space<D, B>>,
        (world, process): (&str, u64),
        allowed: VisibilityRule,
    ) -> Result<SpaceEndpoint, SpaceError> {
        let watch = {
            let (node, space) = (node.clone(), Arc::clone(space));
            respond(&node.clone(), &watch_subject(world, process), move |asked| {
                hear_viewer(&node, &space, asked, allowed)
            })?
        };
        let command = {
            let (node, space) = (node.clone(), Arc::clone(space));
            respond(&node.clone(), &command_subject(world, process), move |asked| {
                hear_command(&node, &space, asked)
            })?
        };
        let spawn = {
            let (node, space) = (node.clone(), Arc::clone(space));
            respond(&node.clone(), &spawn_subject(world, process), move |asked| {
                hear_spawn(&node, &space, asked)
            })?
        };
        Ok(SpaceEndpoint { _watch: watch, _command: command, _spawn: spawn })
    }
}

fn respond(
    node: &Node,
    subject: &str,
    mut hear: impl FnMut(&Request<'_, '_>) -> Result<(), (Denial, String)> + Send + 'static,
) -> Result<Responder, SpaceError> {
    let failed = |why: String| SpaceError::Endpoint { subject: subject.to_owned(), why };
    let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
    let config = TopicConfig { retention, ..TopicConfig::default() };
    node.create_topic(subject, config, true).map_err(|why| failed(why.to_string()))?;
    let handler = move |mut request: Request<'_, '_>| {
        if let Err((why, text)) = hear(&request) {
            // If the client has disconnected, the reply is lost.
            let _ = request.reply(&bytes_of(&WorldResponse::Refused { why, text: &text })[..]);
        }
    };
    node.respond(subject, handler).map_err(|why| failed(why.to_string()))
}

fn hear_viewer<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    space: &Space<D, B>,
    asked: &Request<'_, '_>,
    allowed: VisibilityRule,
) -> Result<(), (Denial, String)> {
    let Some(inbox) = asked.record().frame.reply().map(str::to_owned) else { return Ok(()) };
    match WorldRequest::<D>::decode(asked.record().payload()).map_err(wrong)? {
        WorldRequest::Watch(_, watch) => {
            let publisher = node.publisher(&inbox).map_err(wrong)?;
            let watch = SurroundingsWatch { allowed, ..watch };
            space.order(move |runner| runner.watch(inbox, watch, publisher)).map_err(busy)
        }
        WorldRequest::Forget(_) => space.order(move |runner| runner.unwatch(&inbox)).map_err(busy),
        WorldRequest::EntityCommand(_) => Err(wrong("send commands to the subject that ends with .command")),
        WorldRequest::Spawn(_) | WorldRequest::Despawn(_) => {
            Err(wrong("send spawns to the subject that ends with .spawn"))
        }
    }
}

fn hear_command<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    space: &Space<D, B>,
    asked: &Request<'_, '_>,
) -> Result<(), (Denial, String)> {
    let bytes = asked.record().payload().to_vec();
    let WorldRequest::EntityCommand(_) = WorldRequest::<D>::decode(&bytes).map_err(wrong)? else {
        return Err(wrong("this subject accepts only commands: watch at the subject that ends with .watch"));
    };
    let answer_to = inbox(node, asked)?;
    let order = move |runner: &mut Runner<D, B>| {
        let Ok(WorldRequest::EntityCommand(command)) = WorldRequest::<D>::decode(&bytes) else { return };
        let done = runner.host_mut().apply_client_command(&command, monotonic_ns());
        answer(answer_to, done.map_err(|why| denied(&why)));
    };
    space.order(order).map_err(busy)
}

fn hear_spawn<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    space: &Space<D, B>,
    asked: &Request<'_, '_>,
) -> Result<(), (Denial, String)> {
    let bytes = asked.record().payload().to_vec();
    let (WorldRequest::Spawn(_) | WorldRequest::Despawn(_)) =
        WorldRequest::<D>::decode(&bytes).map_err(wrong)?
    else {
        return Err(wrong("this subject accepts only spawns and despawns"));
    };
    let answer_to = inbox(node, asked)?;
    let order = move |runner: &mut Runner<D, B>| match WorldRequest::<D>::decode(&bytes) {
        Ok(WorldRequest::Spawn(entity)) => runner.spawn_for(&entity, |done| {
            answer(
                answer_to,
                done.map_err(|why| match &why {
                    SpawnError::Refused(refused) => denied(refused),
                    _ => (Denial::NoOwner, why.to_string()),
                }),
            );
        }),
        Ok(WorldRequest::Despawn(id)) => {
            let done = runner.host_mut().despawn_for_client(id, monotonic_ns());
            answer(answer_to, done.map_err(|why| denied(&why)));
        }
        _ => {}
    };
    space.order(order).map_err(busy)
}

/// A publisher to the client's inbox; `None` if the client wants no response.
fn inbox(node: &Node, asked: &Request<'_, '_>) -> Result<Option<Publisher>, (Denial, String)> {
    asked.record().frame.reply().map(|inbox| node.publisher(inbox)).transpose().map_err(wrong)
}

fn answer(to: Option<Publisher>, done: Result<(RegionId, u64), (Denial, String)>) {
    let answer = match &done {
        Ok((region, tick)) => WorldResponse::Done { region: *region, tick: *tick },
        Err((why, text)) => WorldResponse::Refused { why: *why, text },
    };
    if let Some(mut to) = to {
        // If the client has disconnected, the response is lost.
        let _ = to.publish(&bytes_of(&answer)[..]);
    }
}

fn denied(error: &CommandError) -> (Denial, String) {
    (denial(error), error.to_string())
}

fn denial(error: &CommandError) -> Denial {
    match error {
        CommandError::Store(StoreError::Unknown(_) | StoreError::Elsewhere { .. }) => Denial::NotHere,
        CommandError::Store(StoreError::Leaving(_)) => Denial::Leaving,
        CommandError::Step(StepError::NoAuthority { .. }) => Denial::NoOwner,
        _ => Denial::Wrong,
    }
}

fn wrong(why: impl ToString) -> (Denial, String) {
    (Denial::Wrong, why.to_string())
}

fn busy(why: SpaceError) -> (Denial, String) {
    (Denial::Busy, why.to_string())
}

/// Encodes a response.
pub(super) fn bytes_of(answer: &WorldResponse<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    bytes
}

//! The subjects at which a world's process serves clients: watching, commands and spawning.
//!
//! Each process responds at three subjects of its node: `space.WORLD.process.N.watch`, `.command` and `.spawn`. A
//! node's permissions can therefore allow them separately. `crates/space/src/interest/request.rs` and `response.rs`
//! define the messages. A viewer is identified by its inbox, and ends when the inbox ends.
//!
//! A client chooses the subject of the responses. Only inboxes receive responses, because the process may have wider
//! permissions than the client. The process does not wait for room if the topic of the responses is full.
//!
//! Limits: `RegionLimits::viewers_max`, `SpaceLimits::orders_max`. One update of a viewer is one record, so the node's
//! limits of records apply.

use std::sync::Arc;

use dunlin::space::{
    Behaviour, CommandError, RegionId, StepError, StoreError, SurroundingsWatch, VisibilityRule,
    WorldRefusal, WorldRequest, WorldResponse,
};
use dunlin::topic::{Publish, Publisher, Retention, TopicConfig};
use dunlin::{Node, Request, Responder};

use super::error::SpaceError;
use super::handle::Space;
use super::pace::monotonic_ns;
use super::runner::{SpawnError, WorldRunner};

/// Retention of a subject for requests, bytes. It is small, because requests are handled at once and never read later.
const HISTORY_BYTES: u64 = 1 << 20;

/// The beginning of all inboxes.
const INBOXES: &str = "_INBOX.";

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
            respond(&node.clone(), &watch_subject(world, process), move |request| {
                handle_viewer(&node, &space, request, allowed)
            })?
        };
        let command = {
            let (node, space) = (node.clone(), Arc::clone(space));
            respond(&node.clone(), &command_subject(world, process), move |request| {
                handle_command(&node, &space, request)
            })?
        };
        let spawn = {
            let (node, space) = (node.clone(), Arc::clone(space));
            respond(&node.clone(), &spawn_subject(world, process), move |request| {
                handle_spawn(&node, &space, request)
            })?
        };
        Ok(SpaceEndpoint { _watch: watch, _command: command, _spawn: spawn })
    }
}

fn respond(
    node: &Node,
    subject: &str,
    mut handle: impl FnMut(&Request<'_, '_>) -> Result<(), (WorldRefusal, String)> + Send + 'static,
) -> Result<Responder, SpaceError> {
    let failed = |why: String| SpaceError::Endpoint { subject: subject.to_owned(), why };
    let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
    let config = TopicConfig { retention, ..TopicConfig::default() };
    node.create_topic(subject, config, true).map_err(|why| failed(why.to_string()))?;
    let handler = move |mut request: Request<'_, '_>| {
        if let Err((why, text)) = handle(&request)
            && reply_inbox(&request).is_some()
        {
            // If the client has disconnected, the reply is lost.
            let _ = request.reply(&encode_response(&WorldResponse::Refused { why, text: &text })[..]);
        }
    };
    node.respond(subject, handler).map_err(|why| failed(why.to_string()))
}

fn handle_viewer<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    space: &Space<D, B>,
    request: &Request<'_, '_>,
    allowed: VisibilityRule,
) -> Result<(), (WorldRefusal, String)> {
    let Some(inbox) = reply_inbox(request).map(str::to_owned) else { return Ok(()) };
    match WorldRequest::<D>::decode(request.record().payload()).map_err(invalid)? {
        WorldRequest::Watch(_, watch) => {
            let publisher = node.publisher(&inbox).map_err(invalid)?.without_room_wait(false);
            let watch = SurroundingsWatch { allowed, ..watch };
            space.submit(move |runner| runner.watch(inbox, watch, publisher)).map_err(busy)
        }
        WorldRequest::Unwatch(_) => space.submit(move |runner| runner.unwatch(&inbox)).map_err(busy),
        WorldRequest::EntityCommand(_) => {
            Err(invalid("send commands to the subject that ends with .command"))
        }
        WorldRequest::Spawn(_) | WorldRequest::Despawn(_) => {
            Err(invalid("send spawns to the subject that ends with .spawn"))
        }
    }
}

fn handle_command<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    space: &Space<D, B>,
    request: &Request<'_, '_>,
) -> Result<(), (WorldRefusal, String)> {
    let bytes = request.record().payload().to_vec();
    let WorldRequest::EntityCommand(_) = WorldRequest::<D>::decode(&bytes).map_err(invalid)? else {
        return Err(invalid(
            "this subject accepts only commands: watch at the subject that ends with .watch",
        ));
    };
    let reply_to = inbox(node, request)?;
    let call = move |runner: &mut WorldRunner<D, B>| {
        let Ok(WorldRequest::EntityCommand(command)) = WorldRequest::<D>::decode(&bytes) else { return };
        let result = runner.host_mut().apply_client_command(&command, monotonic_ns());
        send_response(reply_to, result.map_err(|why| refusal(&why)));
    };
    space.submit(call).map_err(busy)
}

fn handle_spawn<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    space: &Space<D, B>,
    request: &Request<'_, '_>,
) -> Result<(), (WorldRefusal, String)> {
    let bytes = request.record().payload().to_vec();
    let (WorldRequest::Spawn(_) | WorldRequest::Despawn(_)) =
        WorldRequest::<D>::decode(&bytes).map_err(invalid)?
    else {
        return Err(invalid("this subject accepts only spawns and despawns"));
    };
    let reply_to = inbox(node, request)?;
    let call = move |runner: &mut WorldRunner<D, B>| match WorldRequest::<D>::decode(&bytes) {
        Ok(WorldRequest::Spawn(entity)) => runner.spawn_for(&entity, |result| {
            send_response(
                reply_to,
                result.map_err(|why| match &why {
                    SpawnError::Refused(refused) => refusal(refused),
                    _ => (WorldRefusal::NoOwner, why.to_string()),
                }),
            );
        }),
        Ok(WorldRequest::Despawn(id)) => {
            let result = runner.host_mut().despawn_for_client(id, monotonic_ns());
            send_response(reply_to, result.map_err(|why| refusal(&why)));
        }
        _ => {}
    };
    space.submit(call).map_err(busy)
}

/// The inbox for responses to a request; `None` if the request has no reply subject, or if this subject is not an
/// inbox.
fn reply_inbox<'r>(request: &'r Request<'_, '_>) -> Option<&'r str> {
    request.record().frame.reply().filter(|reply| reply.starts_with(INBOXES))
}

/// A publisher to the client's inbox; `None` if the request has no inbox for a response.
fn inbox(node: &Node, request: &Request<'_, '_>) -> Result<Option<Publisher>, (WorldRefusal, String)> {
    let Some(inbox) = reply_inbox(request) else { return Ok(None) };
    Ok(Some(node.publisher(inbox).map_err(invalid)?.without_room_wait(false)))
}

fn send_response(to: Option<Publisher>, result: Result<(RegionId, u64), (WorldRefusal, String)>) {
    let response = match &result {
        Ok((region, tick)) => WorldResponse::Done { region: *region, tick: *tick },
        Err((why, text)) => WorldResponse::Refused { why: *why, text },
    };
    if let Some(mut to) = to {
        // If the client has disconnected, the response is lost.
        let _ = to.publish(&encode_response(&response)[..]);
    }
}

fn refusal(error: &CommandError) -> (WorldRefusal, String) {
    (refusal_kind(error), error.to_string())
}

fn refusal_kind(error: &CommandError) -> WorldRefusal {
    match error {
        CommandError::Store(StoreError::Unknown(_) | StoreError::Elsewhere { .. }) => WorldRefusal::NotHere,
        CommandError::Store(StoreError::Leaving(_)) => WorldRefusal::Leaving,
        CommandError::Step(StepError::NoAuthority { .. }) => WorldRefusal::NoOwner,
        _ => WorldRefusal::Wrong,
    }
}

fn invalid(why: impl ToString) -> (WorldRefusal, String) {
    (WorldRefusal::Wrong, why.to_string())
}

fn busy(why: SpaceError) -> (WorldRefusal, String) {
    (WorldRefusal::Busy, why.to_string())
}

/// Encodes a response.
pub(super) fn encode_response(response: &WorldResponse<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    response.encode(&mut bytes);
    bytes
}

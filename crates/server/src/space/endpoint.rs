//! Serves the clients of a world: programs that watch the world, send commands to entities, or spawn entities.
//!
//! Each process of a world responds to requests at three subjects of its node: `space.WORLD.process.N.watch`,
//! `.command` and `.spawn`. Users can therefore have permissions for each of them separately.
//! `crates/space/src/interest/request.rs` and `response.rs` define the messages. A client that watches the world is
//! called a viewer. A viewer is identified by its inbox, and is removed when the inbox ends.
//!
//! The client names the subject for the responses in its request. Responses are sent only to inboxes, because the
//! process may publish to subjects that the client may not use. If an inbox is full, the process does not wait for
//! room. The response to a change is sent when the region's standbys have confirmed the change.
//!
//! If a client deletes the topic of one of the three subjects, requests to this subject have no response until
//! [`SpaceEndpoint::restore`] creates the topic again.
//!
//! Limits: `RegionLimits::viewers_max`, `SpaceLimits::orders_max`. A viewer's update is one record, so the node's
//! limits on records apply.

use std::sync::Arc;

use dunlin::space::{
    Behaviour, CommandError, Host, RegionId, StepError, StoreError, SurroundingsWatch, VisibilityRule,
    WorldRefusal, WorldRequest, WorldResponse,
};
use dunlin::topic::{INBOX_PREFIX, Publish, Publisher, Retention, SubscribeError, TopicConfig};
use dunlin::{Node, Request, Responder, TopicError};

use super::error::SpaceError;
use super::handle::Space;
use super::pace::monotonic_ns;
use super::runner::{SpawnError, WorldRunner};

/// Retention of the topics for requests, bytes. The retention is small, because requests are handled at once and never
/// read again.
const HISTORY_BYTES: u64 = 1 << 20;

/// The service of a world's process for clients. Dropping this ends the service.
#[derive(Debug)]
pub struct SpaceEndpoint {
    services: Vec<SubjectService>,
}

/// Responds to the requests at one subject.
struct SubjectService {
    subject: String,
    responder: Responder,
    /// Starts to respond again after the subject's topic was deleted.
    open: OpenService,
}

/// A function that starts to respond to requests at a subject.
type OpenService = Box<dyn Fn() -> Result<Responder, SpaceError> + Send>;

/// The subject at which a world's process accepts requests to watch its regions.
pub fn watch_subject(world: &str, process: u64) -> String {
    format!("space.{world}.process.{process}.watch")
}

/// The subject at which a world's process accepts commands for entities.
pub fn command_subject(world: &str, process: u64) -> String {
    format!("space.{world}.process.{process}.command")
}

/// The subject at which a world's process accepts requests to spawn and remove entities.
pub fn spawn_subject(world: &str, process: u64) -> String {
    format!("space.{world}.process.{process}.spawn")
}

impl SpaceEndpoint {
    /// Starts to serve clients at this process's node. `allowed` limits which entities viewers may see.
    pub fn open<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
        node: &Node,
        space: &Arc<Space<D, B>>,
        (world, process): (&str, u64),
        allowed: VisibilityRule,
    ) -> Result<SpaceEndpoint, SpaceError> {
        let watch = SubjectService::start(
            node,
            space,
            watch_subject(world, process),
            move |node, space, request| handle_viewer(node, space, request, allowed),
        )?;
        let command = command_subject(world, process);
        let command = SubjectService::start(node, space, command, handle_command::<D, B>)?;
        let spawn = SubjectService::start(node, space, spawn_subject(world, process), handle_spawn::<D, B>)?;
        Ok(SpaceEndpoint { services: vec![watch, command, spawn] })
    }

    /// Starts to respond again at each subject whose topic was deleted.
    pub fn restore(&mut self) -> Result<(), SpaceError> {
        for service in &mut self.services {
            if service.responder.ended() == Some(&SubscribeError::Closed) {
                service.responder = (service.open)()?;
                let subject = &service.subject;
                tracing::warn!("the topic {subject} was deleted; this process responds there again");
            }
        }
        Ok(())
    }
}

impl SubjectService {
    fn start<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
        node: &Node,
        space: &Arc<Space<D, B>>,
        subject: String,
        handle: impl Fn(&Node, &Space<D, B>, &Request<'_, '_>) -> Result<(), (WorldRefusal, String)>
        + Clone
        + Send
        + 'static,
    ) -> Result<SubjectService, SpaceError> {
        let (node, space, name) = (node.clone(), Arc::clone(space), subject.clone());
        let open = move || {
            let (handler_node, space, handle) = (node.clone(), Arc::clone(&space), handle.clone());
            respond(&node, &name, move |request| handle(&handler_node, &space, request))
        };
        Ok(SubjectService { subject, responder: open()?, open: Box::new(open) })
    }
}

impl std::fmt::Debug for SubjectService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("SubjectService");
        debug.field("subject", &self.subject).field("responder", &self.responder).finish_non_exhaustive()
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
    match node.create_topic(subject, config, true) {
        // If the topic exists, an earlier request of a client has created it, with the default retention.
        Ok(_) | Err(TopicError::Exists(_)) => {}
        Err(why) => return Err(failed(why.to_string())),
    }
    let handler = move |mut request: Request<'_, '_>| {
        if let Err((why, text)) = handle(&request) {
            // An error is ignored: a client that has disconnected, or that names no inbox, gets no reply.
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
        respond_to_change(runner, reply_to, result);
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
            respond_to_change(runner, reply_to, result);
        }
        _ => {}
    };
    space.submit(call).map_err(busy)
}

/// The inbox to which a request's responses must be sent; `None` if its reply subject is missing or not an inbox.
fn reply_inbox<'r>(request: &'r Request<'_, '_>) -> Option<&'r str> {
    request.record().frame.reply().filter(|reply| reply.starts_with(INBOX_PREFIX))
}

/// A publisher to the client's inbox; `None` if the request names no inbox.
fn inbox(node: &Node, request: &Request<'_, '_>) -> Result<Option<Publisher>, (WorldRefusal, String)> {
    let Some(inbox) = reply_inbox(request) else { return Ok(None) };
    Ok(Some(node.publisher(inbox).map_err(invalid)?.without_room_wait(false)))
}

/// Responds to a client: after a refusal at once, and after a change when the standbys have confirmed it.
fn respond_to_change<const D: usize, B: Behaviour<D> + Clone>(
    runner: &mut WorldRunner<D, B>,
    to: Option<Publisher>,
    result: Result<(RegionId, u64), CommandError>,
) {
    match result {
        Ok(done) => runner.respond_when_confirmed(done.0, move || send_response(to, Ok(done))),
        Err(why) => send_refusal(to, runner.host(), &why),
    }
}

fn send_response(to: Option<Publisher>, result: Result<(RegionId, u64), (WorldRefusal, String)>) {
    let response = match &result {
        Ok((region, tick)) => WorldResponse::Done { region: *region, tick: *tick },
        Err((why, text)) => WorldResponse::Refused { why: *why, text },
    };
    publish_response(to, &response);
}

/// Refuses a request for an existing entity. If no region that runs here has the entity, the response lists these
/// regions. A region that this process has claimed, but does not run yet, may have the entity, and is not listed.
fn send_refusal<const D: usize, B: Behaviour<D> + Clone>(
    to: Option<Publisher>,
    host: &Host<D, B>,
    why: &CommandError,
) {
    if refusal_kind(why) != WorldRefusal::NotHere {
        return send_response(to, Err(refusal(why)));
    }
    let now_ns = monotonic_ns();
    let valid = host
        .regions()
        .filter(|(_, region)| region.authority().is_some_and(|authority| now_ns < authority.until_ns));
    let regions = valid.map(|(id, region)| (id, region.handover().epoch())).collect();
    publish_response(to, &WorldResponse::Absent { regions });
}

fn publish_response(to: Option<Publisher>, response: &WorldResponse<'_>) {
    if let Some(mut to) = to {
        // An error is ignored, because a client that has disconnected cannot receive the response.
        let _ = to.publish(&encode_response(response)[..]);
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

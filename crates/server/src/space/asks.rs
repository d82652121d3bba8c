//! What clients ask of a world, over the nodes of its processes: `space.WORLD.asks`.
//!
//! Each process does what concerns its own regions: it tells a viewer of its own entities, and obeys a command to one of them. Its reply is a
//! byte and words: 0 it is done, 1 the entity is not here, 2 it is refused.

use std::sync::Arc;

use dunlin::space::{AskRefused, Behaviour, StoreError};
use dunlin::topic::{Publish, Subject, SubscribeError};
use dunlin::{Node, Responder};

use super::handle::Space;
use super::pace::monotonic_ns;

/// It is done.
pub(super) const DONE: u8 = 0;
/// The entity is not here.
pub(super) const NOT_HERE: u8 = 1;
/// It is refused.
const REFUSED: u8 = 2;

/// Where a world's processes are asked.
pub fn asks_subject(world: &str) -> String {
    format!("space.{world}.asks")
}

/// Does what clients ask over this node, between ticks, as long as what is returned is held.
pub fn answer<const D: usize, B: Behaviour<D> + Clone + Send + 'static>(
    node: &Node,
    world: &str,
    space: &Arc<Space<D, B>>,
) -> Result<Responder, SubscribeError> {
    let (space, own) = (Arc::clone(space), node.clone());
    node.respond(&asks_subject(world), move |mut request| {
        let frame = request.record().frame;
        let (asked, reply_to) = (frame.payload().to_vec(), frame.reply().map(str::to_owned));
        let node = own.clone();
        // This is a thread of the door: it does not wait for the tick.
        let ordered = space.order(move |runner| {
            let done = runner.host_mut().ask(&asked, monotonic_ns());
            if let Some(subject) = reply_to {
                reply(&node, &subject, &told(done));
            }
        });
        if let Err(busy) = ordered {
            // Whoever asked may be gone.
            let _ = request.reply(&[&[REFUSED][..], busy.to_string().as_bytes()].concat()[..]);
        }
    })
}

fn told(done: Result<(), AskRefused>) -> Vec<u8> {
    match done {
        Ok(()) => vec![DONE],
        Err(AskRefused::Store(StoreError::Unknown(id))) => {
            [&[NOT_HERE][..], format!("entity {id} is not here").as_bytes()].concat()
        }
        Err(refused) => [&[REFUSED][..], refused.to_string().as_bytes()].concat(),
    }
}

fn reply(node: &Node, subject: &str, told: &[u8]) {
    let Ok(parsed) = Subject::parse(subject) else { return };
    if let Ok(topic) = node.owner(parsed) {
        // Whoever asked may be gone.
        let _ = topic.publisher(subject).publish(told);
    }
}

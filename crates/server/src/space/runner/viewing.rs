//! The viewers of this process's regions: clients that watch the surroundings of entities, and receive updates.

use std::collections::HashMap;

use dunlin::space::{Behaviour, SurroundingsWatch, ViewerId, WorldRefusal, WorldResponse};
use dunlin::topic::{Publish, Publisher};

use super::WorldRunner;
use crate::space::endpoint::encode_response;

/// The viewers, with the inboxes to which their updates are sent.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    numbers: HashMap<String, ViewerId>,
    inboxes: HashMap<ViewerId, (String, Publisher)>,
    last: u64,
    bytes: Vec<u8>,
}

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    /// Adds a viewer. If a viewer with this inbox exists, changes what it watches. The response and the updates are
    /// sent to the inbox with `publisher`. Repeating the call with the same `watch` only repeats the response.
    pub fn watch(&mut self, inbox: String, watch: SurroundingsWatch, mut publisher: Publisher) {
        let Viewers { numbers, last, .. } = &mut self.viewers;
        let viewer = numbers.get(&inbox).copied().unwrap_or(ViewerId(*last + 1));
        let refused = self.host.watch(viewer, watch).err().map(|error| error.to_string());
        let response = match &refused {
            None => WorldResponse::Watching,
            Some(text) => WorldResponse::Refused { why: WorldRefusal::Wrong, text },
        };
        let is_delivered = publisher.publish(&encode_response(&response)[..]).is_ok();
        *last = (*last).max(viewer.0);
        numbers.insert(inbox.clone(), viewer);
        self.viewers.inboxes.insert(viewer, (inbox, publisher));
        if refused.is_some() || !is_delivered {
            self.remove_viewer(viewer);
        }
    }

    /// Removes the viewer with this inbox.
    pub fn unwatch(&mut self, inbox: &str) {
        if let Some(viewer) = self.viewers.numbers.get(inbox).copied() {
            self.remove_viewer(viewer);
        }
    }

    fn remove_viewer(&mut self, viewer: ViewerId) {
        self.host.unwatch(viewer);
        if let Some((inbox, _)) = self.viewers.inboxes.remove(&viewer) {
            self.viewers.numbers.remove(&inbox);
        }
    }

    /// Sends each viewer what has changed for it. If publishing to a viewer's inbox fails, removes the viewer.
    pub(super) fn send_viewer_updates(&mut self) {
        let Viewers { inboxes, bytes, .. } = &mut self.viewers;
        if inboxes.is_empty() {
            return;
        }
        let mut unreachable = Vec::new();
        self.host.send_viewer_updates(|viewer, update| {
            let Some((_, publisher)) = inboxes.get_mut(&viewer) else { return };
            bytes.clear();
            WorldResponse::ViewerUpdate(*update).encode(bytes);
            if let Err(why) = publisher.publish(&bytes[..]) {
                let text =
                    format!("cannot send an update of {} bytes: {why}; reduce the radius", bytes.len());
                // An error is ignored: publishing also fails if the viewer's session has ended.
                let _ = publisher.publish(
                    &encode_response(&WorldResponse::Refused { why: WorldRefusal::Wrong, text: &text })[..],
                );
                unreachable.push(viewer);
            }
        });
        unreachable.into_iter().for_each(|viewer| self.remove_viewer(viewer));
    }
}

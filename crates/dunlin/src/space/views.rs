//! Clients that watch, and command: what each viewer is told is a topic of its own.
//!
//! A viewer's topic is `space.WORLD.view.N` of the node of each process; its records are [sights](dunlin_space::Scene), one for each tick and region
//! that has something to tell. A viewer asks again before [`VIEW_NS_MAX`] is over, or its topic is deleted.
//!
//! Limit: `viewers_max` of `space::Limits`.

use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_space::{InterestError, RegionId, StoreError, ViewerId, Watch, put_sight};
use dunlin_topic::{Publish, PublishError, Publisher, Retention, TopicConfig};

use super::host::Stage;
use crate::error::TopicError;

/// A viewer that has not asked for so long is forgotten.
pub const VIEW_NS_MAX: u64 = 30_000_000_000;
/// History of a viewer's topic.
const HISTORY_BYTES: u64 = 1 << 20;

/// Why what a client asks is not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskRefused {
    /// It cannot be read.
    #[error(transparent)]
    Decode(#[from] dunlin_space::DecodeError),
    /// It is no viewer.
    #[error(transparent)]
    Interest(#[from] InterestError),
    /// No such entity is here, or it cannot be changed so.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The viewer's topic cannot be made.
    #[error("the viewer's topic: {0}")]
    Topic(#[from] TopicError),
    /// The viewer's topic cannot be written to.
    #[error("the viewer's topic: {0}")]
    Publish(#[from] PublishError),
    /// This process has no node for topics.
    #[error("this process has no topics that a viewer could be told by")]
    NoTopics,
}

#[derive(Debug)]
pub(super) struct View {
    pub(super) watch: Watch,
    publisher: Publisher,
    heard_ns: u64,
}

/// All viewers of a process.
#[derive(Debug, Default)]
pub(super) struct Views {
    views: BTreeMap<ViewerId, View>,
    bytes: Vec<u8>,
    /// Records that their topic did not take.
    pub(super) unpublished: u64,
}

/// The topic of a viewer.
pub fn view_topic(world: &str, viewer: ViewerId) -> String {
    format!("space.{world}.view.{}", viewer.0)
}

impl Views {
    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ViewerId, Watch)> {
        self.views.iter().map(|(viewer, view)| (*viewer, view.watch))
    }

    /// Makes the viewer's topic, if it is new.
    pub(super) fn hear(
        &mut self,
        viewer: ViewerId,
        watch: Watch,
        stage: &Stage,
        viewers_max: u32,
        now_ns: u64,
    ) -> Result<(), AskRefused> {
        if let Some(view) = self.views.get_mut(&viewer) {
            (view.watch, view.heard_ns) = (watch, now_ns);
            return Ok(());
        }
        if self.views.len() >= viewers_max as usize {
            return Err(InterestError::TooMany { max: viewers_max }.into());
        }
        let name = view_topic(&stage.world, viewer);
        let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
        stage.node.create_topic(&name, TopicConfig { retention, ..TopicConfig::default() }, true)?;
        let publisher = stage.node.publisher(&name)?;
        self.views.insert(viewer, View { watch, publisher, heard_ns: now_ns });
        Ok(())
    }

    pub(super) fn forget(&mut self, viewer: ViewerId, stage: &Stage) {
        if self.views.remove(&viewer).is_some() {
            // It may be gone.
            let _ = stage.node.delete_topic(&view_topic(&stage.world, viewer));
        }
    }

    /// Those who have not asked for too long.
    pub(super) fn silent(&self, now_ns: u64) -> Vec<ViewerId> {
        let silent = |view: &View| now_ns.saturating_sub(view.heard_ns) > VIEW_NS_MAX;
        self.views.iter().filter(|(_, view)| silent(view)).map(|(viewer, _)| *viewer).collect()
    }

    pub(super) fn tell(&mut self, viewer: ViewerId, region: RegionId, tick: u64, glimpses: &[u8]) {
        let Some(view) = self.views.get_mut(&viewer) else { return };
        self.bytes.clear();
        put_sight(region, tick, &mut self.bytes);
        self.bytes.extend_from_slice(glimpses);
        let sight = Bytes::copy_from_slice(&self.bytes);
        self.unpublished += u64::from(view.publisher.publish(sight).is_err());
    }
}

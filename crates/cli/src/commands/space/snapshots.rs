//! Publishes ten compact snapshots a second of each region that a process owns, so that other programs can draw maps.
//! The snapshots go to topic `space.WORLD.map` on the node or cluster that holds the world's leases. A snapshot's
//! subject is `space.WORLD.map.REGION`. Only the newest snapshot of each region matters. Integers and floats are
//! little-endian.
//!
//! ```text
//!  offset  field
//!       0  version u32 = 1
//!       4  region u32
//!       8  tick u64
//!      16  time in Unix ms f64
//!      24  number of entities ("count") u32
//!      28  number of ghosts u32, all ones if unknown
//!      32  number of entities handed over since the region began at this owner u32
//!      36  flags u32: 1 = has z, 2 = has kinds
//!      40  ids u32 × count
//!          x u16 × count, y u16 × count, z u16 × count: 0 … 65535 from the lower to the upper end of the world
//!          kinds u8 × count, unless all are 0; 255 for larger kinds
//!          zeros up to a multiple of 8 bytes
//! ```
//!
//! Regions with more than [`ENTITIES_MAX`] entities are skipped. A snapshot that cannot be published is dropped. If the
//! node does not respond, only this thread waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use dunlin::Node;
use dunlin::space::{
    HandoverTiming, RegionId, RegionLimits, RegionReducer, RegionSetup, RegionState, StandbyMode, WorldBox,
    topic_of,
};
use dunlin::topic::Subscriber;
use dunlin_client::{Client, Publisher, interruptible};
use dunlin_feed::{Replica, ReplicaReport};
use dunlin_topic::{LogName, OnGap, Publish, Retention, Start, SubscribeOptions, TopicConfig};

use super::owner::WorldStatus;
use super::spec::WorldSpec;

const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which the owners of the regions are read again.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// Regions with more entities than this are skipped.
const ENTITIES_MAX: usize = 500_000;
/// The retention of the topic in bytes. It is small, because only the newest snapshot of each region is useful.
const HISTORY_BYTES: u64 = 16 << 20;
/// The largest number of changes to one region that are applied at a time.
const DRAIN_MAX: usize = 4_096;
const VERSION: u32 = 1;
const HAS_Z: u32 = 1;
const HAS_KINDS: u32 = 2;
/// The value of the snapshot's field for the number of ghosts, if this number is unknown.
const GHOSTS_UNKNOWN: u32 = u32::MAX;
/// The number of bytes in a snapshot before the first entity's id.
const HEAD_BYTES: usize = 40;

/// A thread that publishes snapshots of a process's regions, from which programs draw maps. Dropping the handle ends
/// the thread.
pub struct SnapshotThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the thread that publishes the snapshots.
struct SnapshotMaker {
    node: Node,
    client: Client,
    spec: WorldSpec,
    regions: Vec<u32>,
    setup: RegionSetup<3>,
    url: String,
    /// For each region that this process owns: a copy of the region's state, and the publisher of the region's
    /// snapshots, once this publisher is open.
    followed: BTreeMap<u64, (Replica<RegionReducer<3>, Subscriber>, Option<Publisher>)>,
    began: Instant,
    buffer: Vec<u8>,
}

impl SnapshotThread {
    /// Starts the thread for the regions that `node` owns; `url` is the address of `node`.
    pub fn start(
        node: Node,
        client: Client,
        spec: WorldSpec,
        setup: RegionSetup<3>,
        url: String,
    ) -> Result<SnapshotThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (followed, began, buffer) = (BTreeMap::new(), Instant::now(), Vec::new());
        let regions = spec.region_ids().iter().map(|region| region.0).collect();
        let maker = SnapshotMaker { node, client, spec, regions, setup, url, followed, began, buffer };
        let thread = std::thread::Builder::new().name("space-map".to_owned());
        let thread = thread.spawn({
            let (stop, ends) = (Arc::clone(&stop), Arc::clone(&stop));
            // When the thread has to end, its requests are interrupted, so that an unreachable node does not delay the
            // end.
            move || interruptible(move || ends.load(Ordering::Relaxed), || maker.run(&stop))
        });
        Ok(SnapshotThread {
            stop,
            thread: Some(thread.context("cannot start the thread that draws the map")?),
        })
    }
}

impl Drop for SnapshotThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If the thread has panicked, it has already printed the panic.
            let _ = thread.join();
        }
    }
}

impl SnapshotMaker {
    fn run(mut self, stop: &AtomicBool) {
        let mut refreshed = None::<Instant>;
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            if refreshed.is_none_or(|refreshed| refreshed.elapsed() > REFRESH_INTERVAL) {
                self.refresh_owners();
                refreshed = Some(began);
            }
            self.publish_snapshots();
            std::thread::park_timeout(PUBLISH_INTERVAL.saturating_sub(began.elapsed()));
        }
    }

    /// Follows the regions that this process owns, and no others. If the owners cannot be read, nothing changes.
    fn refresh_owners(&mut self) {
        let Ok(found) = WorldStatus::find(&self.client.kv(), &self.spec.name, &self.regions) else { return };
        let owned = found.regions;
        let own = |region: u64| {
            owned.iter().any(|owned| owned.region == region && owned.url.as_deref() == Some(&self.url))
        };
        self.followed.retain(|region, _| own(*region));
        for region in owned.iter().map(|owned| owned.region).filter(|region| own(*region)) {
            if !self.followed.contains_key(&region)
                && let Some(replica) = self.follow(region)
            {
                self.followed.insert(region, (replica, None));
            }
        }
    }

    fn follow(&self, region: u64) -> Option<Replica<RegionReducer<3>, Subscriber>> {
        let options =
            SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..Default::default() };
        let id = RegionId(u32::try_from(region).ok()?);
        let subscriber = self.node.subscribe(&topic_of(&self.spec.name, id), &options).ok()?;
        let (world, schema) = (self.setup.world, self.setup.schema.clone());
        let make = move |_: &LogName| {
            RegionReducer::new(
                id,
                world,
                schema.clone(),
                RegionLimits::default(),
                StandbyMode::None,
                HandoverTiming::default(),
            )
        };
        Some(Replica::new(subscriber, make))
    }

    fn publish_snapshots(&mut self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let topic = format!("space.{}.map", self.spec.name);
        self.followed.retain(|region, (replica, publisher)| {
            // A region whose topic was deleted is no longer followed. If the region has a new topic, the next
            // `refresh_owners` follows it.
            let mut exists = true;
            let on_report =
                |report: ReplicaReport<'_, _>| exists &= !matches!(report, ReplicaReport::Deleted { .. });
            if replica.drain(now_ns, DRAIN_MAX, on_report).is_err() || !exists {
                return false;
            }
            let Some(state) = replica.states().next().map(|(_, _, reducer)| reducer.state()) else {
                return true;
            };
            if state.store().len() > ENTITIES_MAX {
                return true;
            }
            encode(*region as u32, &self.setup.world, state, &mut self.buffer);
            if publisher.is_none() {
                *publisher = open(&self.client, &topic, *region);
            }
            if publisher.as_mut().is_some_and(|publisher| publisher.publish(&self.buffer[..]).is_err()) {
                *publisher = None;
            }
            true
        });
    }
}

/// Opens a publisher for the snapshots of a region. Creates the topic if it does not exist yet.
fn open(client: &Client, topic: &str, region: u64) -> Option<Publisher> {
    let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
    let config = TopicConfig { pattern: Some(format!("{topic}.>")), retention, ..TopicConfig::default() };
    client.create_topic(topic, &config, true).ok()?;
    client.publisher(&format!("{topic}.{region}")).ok()
}

fn encode(region: u32, world: &WorldBox<3>, state: &RegionState<3>, out: &mut Vec<u8>) {
    let (store, counts) = (state.store(), state.handover().counts());
    let unix_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unix_ms = unix_ms.map_or(0.0, |since| since.as_secs_f64() * 1e3);
    out.clear();
    out.reserve(HEAD_BYTES + store.len() * 11 + 8);
    for number in [VERSION, region] {
        out.extend(number.to_le_bytes());
    }
    out.extend(state.tick().to_le_bytes());
    out.extend(unix_ms.to_le_bytes());
    let handed_over = u32::try_from(counts.departed).unwrap_or(u32::MAX);
    let kinds = if store.kinds().iter().any(|kind| *kind != 0) { HAS_KINDS } else { 0 };
    for number in [store.len() as u32, GHOSTS_UNKNOWN, handed_over, HAS_Z | kinds] {
        out.extend(number.to_le_bytes());
    }
    store.ids().iter().for_each(|id| out.extend((id.0 as u32).to_le_bytes()));
    for (axis, column) in store.positions().into_iter().enumerate() {
        let (low, length) = (world.min()[axis], world.max()[axis] - world.min()[axis]);
        column.iter().for_each(|at| {
            // Entities outside of the world's box are drawn at its edge.
            let scaled = ((at - low) / length * 65_535.0) as u16;
            out.extend(scaled.to_le_bytes());
        });
    }
    if kinds != 0 {
        out.extend(store.kinds().iter().map(|kind| u8::try_from(*kind).unwrap_or(u8::MAX)));
    }
    out.resize(out.len().next_multiple_of(8), 0);
}

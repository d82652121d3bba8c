//! A behaviour that plays recorded tracks: entities follow positions that were recorded at given times.

use std::collections::BTreeMap;

use super::{Behaviour, Motion, NearbyEntities, OwnEntity, TickContext};
use crate::entity::EntityId;
use crate::world::Point;

/// The recorded path of one entity: positions at given times, joined by straight lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Track<const D: usize> {
    /// The recorded points in ascending order of time: seconds since the start of the recording, and position.
    fixes: Vec<(f64, Point<D>)>,
}

/// The reason why a list of times and positions is not a track.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrackError {
    /// The list is empty.
    #[error("a track needs at least one position")]
    Empty,
    /// A time or a position is not finite, or a time is not later than the previous one.
    #[error(
        "position {at} of the track is not finite, or its time is not finite or not later than the previous time"
    )]
    Order {
        /// Index of the position, from 0.
        at: usize,
    },
}

impl<const D: usize> Track<D> {
    /// Builds a track from times and positions, in order of time.
    pub fn new(fixes: Vec<(f64, Point<D>)>) -> Result<Track<D>, TrackError> {
        if fixes.is_empty() {
            return Err(TrackError::Empty);
        }
        let finite = |fix: &(f64, Point<D>)| fix.0.is_finite() && fix.1.iter().all(|along| along.is_finite());
        let is_invalid = |at: &usize| !finite(&fixes[*at]) || (*at > 0 && fixes[*at].0 <= fixes[*at - 1].0);
        match (0..fixes.len()).find(is_invalid) {
            Some(at) => Err(TrackError::Order { at }),
            None => Ok(Track { fixes }),
        }
    }

    /// Returns the position and velocity at the time `seconds`, counted from the start of the recording. Before the
    /// first recorded time and after the last, the entity stands still.
    pub fn at(&self, seconds: f64) -> Motion<D> {
        let after = self.fixes.partition_point(|(time, _)| *time <= seconds);
        let standing = |at: usize| Motion { position: self.fixes[at].1, velocity: [0.0; D] };
        if after == 0 {
            return standing(0);
        }
        let Some((end, to)) = self.fixes.get(after) else { return standing(self.fixes.len() - 1) };
        let (start, from) = self.fixes[after - 1];
        let (part, length) = (((seconds - start) / (end - start)) as f32, (end - start) as f32);
        Motion {
            position: std::array::from_fn(|axis| from[axis] + (to[axis] - from[axis]) * part),
            velocity: std::array::from_fn(|axis| (to[axis] - from[axis]) / length),
        }
    }
}

/// A behaviour that moves entities along recorded tracks. An entity without a track does not move.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tracks<const D: usize> {
    tracks: BTreeMap<EntityId, Track<D>>,
    /// Playback speed: how many seconds of the recording are played in one second.
    pub speed: f64,
}

impl<const D: usize> Tracks<D> {
    /// Plays these tracks at `speed` times the recorded speed.
    pub fn new(tracks: BTreeMap<EntityId, Track<D>>, speed: f64) -> Tracks<D> {
        Tracks { tracks, speed }
    }

    /// Iterates over all tracks.
    pub fn iter(&self) -> impl Iterator<Item = (&EntityId, &Track<D>)> {
        self.tracks.iter()
    }
}

impl<const D: usize> Behaviour<D> for Tracks<D> {
    fn step(&self, own: &OwnEntity<D>, _: &impl NearbyEntities<D>, context: &TickContext<D>) -> Motion<D> {
        match self.tracks.get(&own.id) {
            Some(track) => track.at(context.tick as f64 * f64::from(context.seconds) * self.speed),
            None => Motion { position: own.position, velocity: [0.0; D] },
        }
    }
}

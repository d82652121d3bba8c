//! Reads recorded flights in the sample format of the `traffic` library: a JSON array of timestamped
//! positions.
//!
//! ```text
//!  [{"timestamp": ms, "icao24": "4b1803", "latitude": °, "longitude": °, "altitude": feet, …}, …]
//! ```
//! Positions are projected on a plane that touches the globe in the middle of the recording: kilometres east, north and
//! up. At 200 km from the middle, the error of distances is less than 0.3 %. Entries without a position are skipped and
//! counted. If an aircraft has several entries for one time, all but the first are skipped and counted too.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::behaviour::{Track, Tracks};
use crate::entity::EntityId;
use crate::world::{Point, WorldBox, WorldError};

/// Length of a degree of latitude, km.
const DEGREE_KM: f64 = 111.195;
/// Length of a foot, km.
const FOOT_KM: f64 = 0.000_304_8;
/// Smallest distance between the world's border and a recorded position, km.
const MARGIN_KM: f32 = 1.0;

/// A recording of aircraft positions over time: one track for each aircraft. Entities of a world can follow the tracks.
#[derive(Debug, Clone, PartialEq)]
pub struct Flights {
    /// Tracks by entity id.
    pub tracks: BTreeMap<EntityId, Track<3>>,
    /// Transponder addresses of the aircraft, in the order of their entity ids.
    pub names: Vec<String>,
    /// World that holds all tracks, km.
    pub world: WorldBox<3>,
    /// Length of the recording, seconds.
    pub seconds: f64,
    /// Number of entries that were used.
    pub fixes: usize,
    /// Number of entries that were skipped.
    pub skipped: usize,
}

/// The reason why a recording of aircraft cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlightsError {
    /// The bytes are not JSON of the expected form.
    #[error("the file is not a recording of flights: {0}")]
    Json(#[from] serde_json::Error),
    /// The recording has no track.
    #[error("the recording contains no aircraft with a position")]
    Empty,
    /// No world can contain the recorded positions.
    #[error("cannot make a world from the recorded positions: {0}")]
    World(#[from] WorldError),
}

#[derive(Deserialize)]
struct Fix {
    timestamp: i64,
    icao24: String,
    latitude: Option<f64>,
    longitude: Option<f64>,
    altitude: Option<f64>,
}

impl Flights {
    /// Reads a recording. Entity ids start at `first`, in the order of the aircraft's transponder addresses.
    pub fn read(json: &[u8], first: u64) -> Result<Flights, FlightsError> {
        let all: Vec<Fix> = serde_json::from_slice(json)?;
        let (start, ended) = all
            .iter()
            .fold((i64::MAX, i64::MIN), |(low, high), fix| (low.min(fix.timestamp), high.max(fix.timestamp)));
        let center = center(&all).ok_or(FlightsError::Empty)?;
        let mut flights: BTreeMap<String, Vec<(f64, Point<3>)>> = BTreeMap::new();
        let count = all.len();
        for fix in all {
            let (Some(latitude), Some(longitude), Some(altitude)) =
                (fix.latitude, fix.longitude, fix.altitude)
            else {
                continue;
            };
            let at = project((latitude, longitude, altitude), center);
            if at.iter().all(|along| along.is_finite()) {
                let seconds = (fix.timestamp - start) as f64 / 1e3;
                flights.entry(fix.icao24).or_default().push((seconds, at));
            }
        }
        for fixes in flights.values_mut() {
            fixes.sort_by(|a, b| a.0.total_cmp(&b.0));
            fixes.dedup_by(|a, b| a.0 == b.0);
        }
        let fixes = flights.values().map(Vec::len).sum();
        let world = world(&flights)?;
        let (mut tracks, mut names) = (BTreeMap::new(), Vec::new());
        for (id, (name, fixes)) in (first..).zip(flights) {
            // Cannot fail: the positions are finite and in order of time, and every aircraft has at least one position.
            if let Ok(track) = Track::new(fixes) {
                tracks.insert(EntityId(id), track);
                names.push(name);
            }
        }
        Ok(Flights {
            tracks,
            names,
            world,
            seconds: (ended - start) as f64 / 1e3,
            fixes,
            skipped: count - fixes,
        })
    }

    /// Behaviour that plays the tracks at `speed` times the recorded speed.
    pub fn playback(&self, speed: f64) -> Tracks<3> {
        Tracks::new(self.tracks.clone(), speed)
    }
}

fn center(all: &[Fix]) -> Option<(f64, f64)> {
    let positions = || all.iter().filter_map(|fix| fix.latitude.zip(fix.longitude));
    let (latitude, longitude) =
        positions().fold((0.0, 0.0), |sum, position| (sum.0 + position.0, sum.1 + position.1));
    let count = positions().count();
    (count > 0).then(|| (latitude / count as f64, longitude / count as f64))
}

fn project((latitude, longitude, altitude): (f64, f64, f64), center: (f64, f64)) -> Point<3> {
    let east = (longitude - center.1) * DEGREE_KM * center.0.to_radians().cos();
    let north = (latitude - center.0) * DEGREE_KM;
    [east as f32, north as f32, (altitude * FOOT_KM) as f32]
}

fn world(flights: &BTreeMap<String, Vec<(f64, Point<3>)>>) -> Result<WorldBox<3>, FlightsError> {
    let (mut low, mut high) = ([f32::MAX; 3], [f32::MIN; 3]);
    for (_, at) in flights.values().flatten() {
        for axis in 0..3 {
            low[axis] = low[axis].min(at[axis] - MARGIN_KM);
            high[axis] = high[axis].max(at[axis] + MARGIN_KM);
        }
    }
    if flights.is_empty() { Err(FlightsError::Empty) } else { Ok(WorldBox::new(low, high)?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"[
        {"timestamp":1533099610000,"altitude":32808.4,"callsign":"DLH8JW","icao24":"b","latitude":47.0,"longitude":8.0},
        {"timestamp":1533099600000,"altitude":32808.4,"callsign":"DLH8JW","icao24":"b","latitude":46.0,"longitude":8.0},
        {"timestamp":1533099600000,"altitude":0.0,"callsign":"DLH8JW","icao24":"b","latitude":46.0,"longitude":8.0},
        {"timestamp":1533099600000,"altitude":null,"icao24":"c","latitude":46.0,"longitude":8.0},
        {"timestamp":1533099605000,"altitude":16404.2,"icao24":"a","latitude":46.5,"longitude":9.0}]"#;

    #[test]
    fn flight_recording_becomes_tracks_in_kilometres() {
        let flights = Flights::read(RECORDED.as_bytes(), 7).unwrap();
        assert_eq!((flights.fixes, flights.skipped, flights.seconds), (3, 2, 10.0));
        assert_eq!(flights.names, ["a", "b"]);
        let half_way = flights.tracks[&EntityId(8)].at(5.0);
        assert!(
            (half_way.velocity[1] - 11.1195).abs() < 0.01,
            "{half_way:?} should go north by 111 km in 10 s"
        );
        assert!((half_way.position[2] - 10.0).abs() < 0.01, "{half_way:?} should fly at 10 km");
        let apart = flights.tracks[&EntityId(7)].at(5.0).position[0] - half_way.position[0];
        assert!((apart - 76.6).abs() < 0.5, "a degree of longitude at 46.4° is {apart} km");
        assert!(flights.tracks.values().all(|track| flights.world.contains(&track.at(0.0).position)));
    }

    #[test]
    fn invalid_or_empty_flight_recording_is_refused() {
        assert!(matches!(Flights::read(b"[{}]", 0), Err(FlightsError::Json(_))));
        assert!(matches!(Flights::read(b"[]", 0), Err(FlightsError::Empty)));
    }
}

//! Simulates a flock of birds with the library krABMaga. The birds follow the same rule as in Dunlin's `Flock`, but
//! live in krABMaga's own field and schedule.
//!
//! This program uses krABMaga's sequential schedule. The parallel one (feature `parallel`) would not be faster, because
//! it locks the whole state during each agent's step. The width of the field's cells is half of the distance that a
//! bird can see. With cells of the full distance, krABMaga is slower.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use krabmaga::engine::agent::Agent;
use krabmaga::engine::fields::field::Field;
use krabmaga::engine::fields::field_2d::{Field2D, Location2D};
use krabmaga::engine::location::Real2D;
use krabmaga::engine::schedule::Schedule;
use krabmaga::engine::state::State;

/// The birds and the settings of the flock to simulate, as `crates/bench/src/space/flock.rs` sends them.
#[derive(serde::Deserialize)]
pub struct FlockRequest {
    edge: f32,
    seconds: f32,
    ticks: u32,
    sight: f32,
    apart: f32,
    speed_max: f32,
    force_max: f32,
    weights: [f32; 3],
    /// Each bird's position (x, y) and velocity (x, y).
    birds: Vec<[f32; 4]>,
}

/// The results of a run: its duration, its number of ticks, and how many neighbours a bird saw.
#[derive(serde::Serialize)]
pub struct RunReport {
    counted_ns: u64,
    ticks: u32,
    /// The mean number of neighbours that a bird saw in the last tick.
    neighbours: f64,
}

#[derive(Clone, Copy)]
struct Bird {
    id: u32,
    at: Real2D,
    velocity: [f32; 2],
}

struct World {
    request: FlockRequest,
    field: Field2D<Bird>,
    neighbour_count: u64,
}

/// Simulates the requested number of ticks, and returns the measurements.
pub fn run(request: FlockRequest) -> RunReport {
    let ticks = request.ticks;
    let field = Field2D::new(request.edge, request.edge, request.sight / 2.0, false);
    let (mut world, mut schedule) = (World { request, field, neighbour_count: 0 }, Schedule::new());
    world.init(&mut schedule);
    let started = Instant::now();
    for _ in 0..ticks {
        world.neighbour_count = 0;
        schedule.step(&mut world);
    }
    let counted_ns = started.elapsed().as_nanos() as u64;
    let neighbours = world.neighbour_count as f64 / world.request.birds.len().max(1) as f64;
    RunReport { counted_ns, ticks, neighbours }
}

impl Agent for Bird {
    fn step(&mut self, state: &mut dyn State) {
        let world = state.as_any_mut().downcast_mut::<World>().expect("the state is a World");
        let request = &world.request;
        let (mut apart, mut alike, mut together, mut count) =
            ([0.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2], 0_u32);
        for other in world.field.get_neighbors_within_relax_distance(self.at, request.sight) {
            let offset = [other.at.x - self.at.x, other.at.y - self.at.y];
            let distance_sq = offset[0] * offset[0] + offset[1] * offset[1];
            if distance_sq > request.sight * request.sight || other.id == self.id {
                continue;
            }
            let is_close = distance_sq < request.apart * request.apart;
            let push = if is_close { 1.0 / distance_sq.max(1e-6) } else { 0.0 };
            for axis in 0..2 {
                apart[axis] -= offset[axis] * push;
                alike[axis] += other.velocity[axis];
                together[axis] += offset[axis];
            }
            count += 1;
        }
        if count > 0 {
            let [push, align, gather] = request.weights;
            let count = count as f32;
            let steering = [0, 1].map(|axis| {
                let alike = alike[axis] / count - self.velocity[axis];
                push * apart[axis] * request.speed_max + align * alike + gather * (together[axis] / count)
            });
            let change = shorten(steering, request.force_max);
            let velocity = [0, 1].map(|axis| self.velocity[axis] + change[axis] * request.seconds);
            self.velocity = shorten(velocity, request.speed_max);
        }
        let end = request.edge * (1.0 - f32::EPSILON);
        for (along, velocity) in [&mut self.at.x, &mut self.at.y].into_iter().zip(&mut self.velocity) {
            let ahead = *along + *velocity * request.seconds;
            if !(0.0..=end).contains(&ahead) {
                *velocity = -*velocity;
            }
            let reflected = if ahead < 0.0 { -ahead } else { 2.0 * end - ahead };
            *along = if (0.0..=end).contains(&ahead) { ahead } else { reflected.clamp(0.0, end) };
        }
        world.neighbour_count += u64::from(count);
        world.field.set_object_location(*self, self.at);
    }
}

impl State for World {
    fn init(&mut self, schedule: &mut Schedule) {
        for (nth, [x, y, along, across]) in self.request.birds.iter().copied().enumerate() {
            let bird = Bird { id: nth as u32, at: Real2D { x, y }, velocity: [along, across] };
            self.field.set_object_location(bird, bird.at);
            schedule.schedule_repeating(Box::new(bird), 0.0, 0);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn as_state(&self) -> &dyn State {
        self
    }

    fn as_state_mut(&mut self) -> &mut dyn State {
        self
    }

    fn reset(&mut self) {}

    fn update(&mut self, _step: u64) {
        self.field.lazy_update();
    }
}

impl Location2D<Real2D> for Bird {
    fn get_location(self) -> Real2D {
        self.at
    }

    fn set_location(&mut self, at: Real2D) {
        self.at = at;
    }
}

impl Hash for Bird {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl PartialEq for Bird {
    fn eq(&self, other: &Bird) -> bool {
        self.id == other.id
    }
}

impl Eq for Bird {}

impl fmt::Display for Bird {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bird {}", self.id)
    }
}

fn shorten(vector: [f32; 2], max: f32) -> [f32; 2] {
    let length_sq = vector[0] * vector[0] + vector[1] * vector[1];
    if length_sq <= max * max {
        return vector;
    }
    vector.map(|along| along * (max / length_sq.sqrt()))
}

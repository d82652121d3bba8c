//! Measures how long a region's ticks take, in one process on one core. The workloads are those of suite `space` of
//! `dunlin bench`.
//!
//! `cargo run --release -p dunlin-space --example pace [move|flock|plane|near]...`

use std::time::Instant;

use dunlin_space::behaviour::Flock;
use dunlin_space::{
    Behaviour, Entity, EntityId, Grid, Lockstep, Motion, NearbyEntities, OwnEntity, RegionId, RegionSetup,
    SpatialIndex, TickContext, WorldBox,
};

const EDGE: f32 = 100.0;
const TICKS: usize = 400;
const FLOCK: u64 = 100_000;
const FLOCK_TICKS: usize = 100;

/// A behaviour that moves each entity back and forth within its half of the world. No entity crosses the border between
/// the halves.
#[derive(Clone)]
struct Halves;

impl Behaviour<3> for Halves {
    #[inline(always)]
    fn step(&self, own: &OwnEntity<3>, _: &impl NearbyEntities<3>, context: &TickContext<3>) -> Motion<3> {
        let (mut low, mut high) = (context.world.min(), context.world.max());
        let middle = EDGE / 2.0;
        let lower = own.position[2] < middle;
        low[2] = if lower { low[2] } else { middle };
        high[2] = if lower { middle * (1.0 - 1e-5) } else { high[2] };
        context.move_straight_between(&own.position, &own.velocity, &low, &high)
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_selected = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    if is_selected("move") {
        [10_000, 100_000].into_iter().for_each(moving);
    }
    let share = 31.0 / FLOCK as f32;
    if is_selected("flock") {
        flock("flock", EDGE * (share * 3.0 / (4.0 * std::f32::consts::PI)).cbrt(), false);
    }
    if is_selected("plane") {
        flock("plane", EDGE * (share / std::f32::consts::PI).sqrt(), true);
    }
    if is_selected("near") {
        near();
    }
}

fn world() -> WorldBox<3> {
    WorldBox::cube(EDGE).expect("the world's edge length is above 0")
}

fn entity(nth: u64, speed: f32, plane: bool) -> Entity<'static, 3> {
    let context = TickContext { tick: 0, seconds: 0.0, world: world(), seed: 7 };
    let unit = |which: usize| (context.random_signed(EntityId(nth), which as u64) + 1.0) / 2.0;
    let mut position: [f32; 3] = std::array::from_fn(|axis| unit(axis) * EDGE);
    let mut velocity = std::array::from_fn(|axis| (unit(3 + axis) - 0.5) * 2.0 * speed);
    if plane {
        (position[0], velocity[0]) = (EDGE / 2.0, 0.0);
    }
    Entity { velocity, ..Entity::at(nth, position) }
}

/// Measures the ticks of two regions that own one half of the world each and write all changes to records.
fn moving(each: u64) {
    let mut stage = Lockstep::new(&RegionSetup::new(RegionId(0), world(), 0.5), &Halves, 2);
    (0..each * 2)
        .for_each(|nth| stage.spawn(&entity(nth, 25.0, false)).expect("the position is in the world"));
    let mut times_ns = Vec::new();
    for _ in 0..TICKS {
        let now_ns = stage.advance().expect("the region has a lease");
        for (region, out) in stage.regions_mut() {
            let begin = Instant::now();
            region.tick(now_ns, out).expect("the region has a lease");
            region.send_ghosts(out);
            times_ns.push(begin.elapsed().as_nanos() as u64);
            // Takes the record out of the region's outputs. (A program that publishes the record does this too.)
            std::hint::black_box(std::mem::take(&mut out.record));
            out.messages.clear();
        }
    }
    // Drops the first half of the ticks, during which the rows are still being sorted.
    let mut times_ns = times_ns.split_off(TICKS / 2);
    times_ns.sort_unstable();
    let at = |share: f64| times_ns[(times_ns.len() as f64 * share) as usize] as f64 / 1e6;
    println!("move {each}: p50 {:.3} ms, p99 {:.3} ms", at(0.5), at(0.99));
}

fn flock(name: &str, sight: f32, plane: bool) {
    let flock = Flock { sight, ..Flock::default() };
    let mut stage = Lockstep::new(&RegionSetup::new(RegionId(0), world(), sight), &flock, 1);
    (0..FLOCK).for_each(|nth| stage.spawn(&entity(nth, 10.0, plane)).expect("the position is in the world"));
    let begin = Instant::now();
    for _ in 0..FLOCK_TICKS {
        stage.tick().expect("the region has a lease");
        stage.take_records();
    }
    let hz = FLOCK_TICKS as f64 / begin.elapsed().as_secs_f64();
    let bytes = stage.ledger().iter().fold(0_u64, |sum, (id, _, state)| sum.rotate_left(5) ^ id.0 ^ state);
    println!("{name} {FLOCK}: {hz:.1} Hz, state {bytes:016x}");
}

fn near() {
    let count = 100_000;
    let mut points: [Vec<f32>; 3] = Default::default();
    for nth in 0..count {
        let at = entity(nth, 0.0, false).position;
        points.iter_mut().zip(at).for_each(|(column, along)| column.push(along));
    }
    let mut grid = Grid::new(world(), EDGE / (count as f32 / 4.0).cbrt());
    let (mut found, begin, ticks) = (Vec::new(), Instant::now(), 10);
    for _ in 0..ticks {
        points.iter_mut().flatten().for_each(|along| *along = (*along + 0.05) % EDGE);
        grid.rebuild(std::array::from_fn(|axis| &points[axis][..]));
        grid.nearest_of_each(10, &mut found);
    }
    println!("near {count}: {:.1} ms a tick", begin.elapsed().as_secs_f64() * 1e3 / f64::from(ticks));
}

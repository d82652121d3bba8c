//! Measures three other libraries, krABMaga, rstar and kiddo, with the same work as Dunlin's benchmark suite `space`.
//! The program reads the points or the flock as a line of JSON from standard input, and prints the result as a line of
//! JSON. The indexes of rstar and kiddo are rebuilt for every tick, each in the fastest way that its library offers:
//! rstar's by bulk loading, kiddo's as an immutable tree.
//!
//! ```text
//! space_peer index rstar|kiddo COUNT MS     finds the ten nearest of each of COUNT moving points, for MS ms
//! space_peer flock krabmaga                 runs the requested number of ticks of a flock (see `flock`)
//! ```

mod flock;

use std::time::Instant;

const NEAREST: usize = 10;
const COMPARED: usize = 50;
const EDGE: f32 = 100.0;

type Distances = Vec<f32>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("standard input can be read");
    if arguments[1] == "flock" {
        let report = flock::run(serde_json::from_str(&line).expect("standard input describes a flock"));
        println!("{}", serde_json::to_string(&report).expect("the report can be encoded as JSON"));
        return;
    }
    let time_ms: u128 = arguments[4].parse().expect("the fourth argument is a time in milliseconds");
    let mut points: Vec<[f32; 3]> =
        serde_json::from_str(&line).expect("standard input has points of three numbers");
    let tick: fn(&[[f32; 3]], &mut Distances) = match arguments[2].as_str() {
        "rstar" => rstar_tick,
        "kiddo" => kiddo_tick,
        other => panic!("there is no {other}"),
    };
    let (mut distances, mut counted_ns, mut ticks, mut recall) = (Vec::new(), 0, 0_u32, 1.0_f64);
    while counted_ns < time_ms * 1_000_000 || ticks < 2 {
        advance(&mut points, ticks);
        distances.clear();
        let started = Instant::now();
        tick(&points, &mut distances);
        counted_ns += started.elapsed().as_nanos();
        recall = recall.min(compare(&points, &distances));
        ticks += 1;
    }
    println!("{{\"counted_ns\":{counted_ns},\"ticks\":{ticks},\"recall\":{recall}}}");
}

/// Moves each point a little, by a distance that depends on `tick`, exactly as Dunlin's measurement does.
fn advance(points: &mut [[f32; 3]], tick: u32) {
    for (nth, point) in points.iter_mut().enumerate() {
        for (axis, along) in point.iter_mut().enumerate() {
            let step = ((nth * 7 + axis * 3 + tick as usize) % 11) as f32 * 0.02 - 0.1;
            let moved = *along + step;
            *along = if !(0.0..=EDGE).contains(&moved) { *along - step } else { moved };
        }
    }
}

struct Item {
    at: [f32; 3],
    nth: usize,
}

impl rstar::RTreeObject for Item {
    type Envelope = rstar::AABB<[f32; 3]>;
    fn envelope(&self) -> Self::Envelope {
        rstar::AABB::from_point(self.at)
    }
}

impl rstar::PointDistance for Item {
    fn distance_2(&self, point: &[f32; 3]) -> f32 {
        distance_sq(&self.at, point)
    }
}

fn rstar_tick(points: &[[f32; 3]], distances: &mut Distances) {
    let items = points.iter().enumerate().map(|(nth, at)| Item { at: *at, nth }).collect();
    let tree = rstar::RTree::bulk_load(items);
    for (nth, at) in points.iter().enumerate() {
        let near = tree.nearest_neighbor_iter_with_distance_2(*at).filter(|(item, _)| item.nth != nth);
        distances.extend(near.take(NEAREST).map(|(_, distance)| distance));
    }
}

fn kiddo_tick(points: &[[f32; 3]], distances: &mut Distances) {
    use std::num::NonZero;
    let tree = kiddo::ImmutableKdTree::new_from_slice(points).expect("all coordinates are numbers");
    let count = NonZero::new(NEAREST + 1).expect("the count is above 0");
    for (nth, at) in points.iter().enumerate() {
        let near = tree.query(at).nearest_n::<kiddo::SquaredEuclidean<f32>>(count).execute();
        distances.extend(
            near.iter().filter(|near| near.item as usize != nth).take(NEAREST).map(|near| near.distance),
        );
    }
}

fn distance_sq(a: &[f32; 3], b: &[f32; 3]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Checks some of the points by comparing all distances. Returns which share of the true nearest neighbours the index
/// found for these points.
fn compare(points: &[[f32; 3]], distances: &Distances) -> f64 {
    let every = (points.len() / COMPARED).max(1);
    let (mut correct, mut total) = (0, 0);
    for nth in (0..points.len()).step_by(every) {
        let others = points.iter().enumerate().filter(|(other, _)| *other != nth);
        let mut exact: Vec<f32> = others.map(|(_, at)| distance_sq(at, &points[nth])).collect();
        exact.sort_unstable_by(f32::total_cmp);
        let own = &distances[nth * NEAREST..(nth + 1) * NEAREST];
        // The index may add the squares in another order than `distance_sq`, so rounding differences are allowed.
        correct += own.iter().zip(&exact).filter(|(own, exact)| **own <= **exact * 1.000_01).count();
        total += NEAREST;
    }
    correct as f64 / total as f64
}

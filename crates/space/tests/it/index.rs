//! Tests that every index gives the same results as a scan. The tests use points that lie close together, equal points,
//! points on cell borders, and points outside the world. The borders of some queries pass exactly through points.

use proptest::prelude::*;

use super::*;

/// Returns coordinates that are anywhere in or around the world, or on a coarse lattice, so that many points and
/// distances are equal.
fn coordinate() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (0_u32..=16).prop_map(|at| at as f32 * 6.25),
        4 => 0.0_f32..100.0,
        2 => (0.0_f32..0.01).prop_map(|at| 50.0 + at),
        1 => Just(100.0_f32),
        1 => -20.0_f32..120.0,
    ]
}

fn points<const D: usize>() -> impl Strategy<Value = Vec<Point<D>>> {
    let point = prop::collection::vec(coordinate(), D)
        .prop_map(|along| Point::<D>::try_from(along).unwrap_or([0.0; D]));
    prop::collection::vec(point, 0..400)
}

fn columns<const D: usize>(points: &[Point<D>]) -> [Vec<f32>; D] {
    std::array::from_fn(|axis| points.iter().map(|point| point[axis]).collect())
}

fn built<const D: usize, I: SpatialIndex<D>>(mut index: I, points: &[Point<D>]) -> I {
    let columns = columns(points);
    index.rebuild(std::array::from_fn(|axis| &columns[axis][..]));
    index
}

fn found<const D: usize>(index: &impl SpatialIndex<D>, shape: &impl Shape<D>) -> Vec<u32> {
    let mut found = Vec::new();
    index.within(shape, &mut found);
    found.sort_unstable();
    found
}

/// The queries of one test case.
#[derive(Debug, Clone)]
struct Queries<const D: usize> {
    at: Point<D>,
    to: Point<D>,
    size: f32,
    count: usize,
}

fn queries<const D: usize>() -> impl Strategy<Value = Queries<D>> {
    let point = || {
        prop::collection::vec(coordinate(), D)
            .prop_map(|along| Point::<D>::try_from(along).unwrap_or([0.0; D]))
    };
    let size = prop_oneof![Just(0.0_f32), Just(6.25), Just(12.5), 0.0_f32..60.0];
    (point(), point(), size, 0_usize..14).prop_map(|(at, to, size, count)| Queries { at, to, size, count })
}

fn agrees<const D: usize>(
    index: &impl SpatialIndex<D>,
    scan: &LinearScan<D>,
    q: &Queries<D>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(index.len(), scan.len());
    let corners = |low: bool| {
        std::array::from_fn(|axis| if low { q.at[axis].min(q.to[axis]) } else { q.at[axis].max(q.to[axis]) })
    };
    let bounds = Aabb { min: corners(true), max: corners(false) };
    prop_assert_eq!(found(index, &bounds), found(scan, &bounds));
    let ball = Ball { center: q.at, radius: q.size };
    prop_assert_eq!(found(index, &ball), found(scan, &ball));
    let direction = std::array::from_fn(|axis| q.to[axis] - q.at[axis]);
    if let Some(beam) = Beam::new(q.at, direction, 40.0, q.size) {
        let (mut hits, mut all) = (Vec::new(), Vec::new());
        index.along(&beam, &mut hits);
        scan.along(&beam, &mut all);
        prop_assert_eq!(hits, all);
    }
    let planes: Vec<Plane<D>> = (0..D)
        .flat_map(|axis| [-1.0_f32, 1.0].map(|sign| (axis, sign)))
        .map(|(axis, sign)| {
            let normal: Point<D> = std::array::from_fn(|other| if other == axis { sign } else { 0.25 });
            let height: f32 = normal.iter().zip(&q.at).map(|(n, at)| n * at).sum();
            Plane { normal, offset: q.size - height }
        })
        .collect();
    let frustum = Frustum { planes: &planes };
    prop_assert_eq!(found(index, &frustum), found(scan, &frustum));
    nearest_agree(index, scan, q)
}

fn nearest_agree<const D: usize>(
    index: &impl SpatialIndex<D>,
    scan: &LinearScan<D>,
    q: &Queries<D>,
) -> Result<(), TestCaseError> {
    let (mut nearest, mut all) = (Vec::new(), Vec::new());
    index.nearest(&q.at, q.count, &mut nearest);
    scan.nearest(&q.at, q.count, &mut all);
    prop_assert_eq!(&nearest, &all);
    index.nearest_of_each(q.count, &mut nearest);
    scan.nearest_of_each(q.count, &mut all);
    prop_assert_eq!(nearest, all);
    let (mut near, mut others) = (Vec::new(), Vec::new());
    for item in 0..scan.len().min(3) as u32 {
        prop_assert_eq!(index.point(item), scan.point(item));
        index.neighbours(item, q.size, &mut near);
        scan.neighbours(item, q.size, &mut others);
        prop_assert_eq!(&near, &others);
    }
    Ok(())
}

fn all_agree<const D: usize>(
    points: &[Point<D>],
    later: &[Point<D>],
    q: &Queries<D>,
) -> Result<(), TestCaseError> {
    let world = WorldBox::cube(100.0).unwrap();
    let mut octree = built(Octree::new(world), points);
    let mut tetree = built(TetrahedralTree::new(world), points);
    let mut grid = built(Grid::new(world, 7.0), points);
    let mut scan = built(LinearScan::new(), points);
    for moved in [points, later] {
        (octree, tetree) = (built(octree, moved), built(tetree, moved));
        (grid, scan) = (built(grid, moved), built(scan, moved));
        agrees(&octree, &scan, q)?;
        agrees(&tetree, &scan, q)?;
        agrees(&grid, &scan, q)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn index_in_three_dimensions_finds_what_a_full_scan_finds(
        points in points::<3>(), later in points::<3>(), q in queries::<3>(),
    ) {
        all_agree(&points, &later, &q)?;
    }

    #[test]
    fn index_in_two_dimensions_finds_what_a_full_scan_finds(
        points in points::<2>(), later in points::<2>(), q in queries::<2>(),
    ) {
        all_agree(&points, &later, &q)?;
    }
}

#[test]
fn nan_points_are_not_found_and_affect_no_other_point() {
    let mut points: Vec<Point<3>> = (0..200).map(|at| [at as f32 / 2.0, 50.0, 50.0]).collect();
    points[17] = [f32::NAN; 3];
    points[18] = [f32::NAN, 1.0, 2.0];
    let q = Queries { at: [8.0, 50.0, 50.0], to: [9.5, 51.0, 50.0], size: 5.0, count: 7 };
    let world = WorldBox::cube(100.0).unwrap();
    let scan = built(LinearScan::new(), &points);
    let ball = Ball { center: q.at, radius: q.size };
    assert_eq!(found(&built(Octree::new(world), &points), &ball), found(&scan, &ball));
    assert_eq!(found(&built(Grid::new(world, 5.0), &points), &ball), found(&scan, &ball));
    assert_eq!(found(&built(TetrahedralTree::new(world), &points), &ball), found(&scan, &ball));
}

/// Checks that each query returns its own results, and not those of an earlier query.
#[test]
fn each_of_many_index_queries_gets_its_own_results() {
    let mut dice = Dice(7);
    let points: Vec<Point<3>> = (0..2_000).map(|_| std::array::from_fn(|_| dice.unit() * 100.0)).collect();
    let index = built(TetrahedralTree::new(WorldBox::cube(100.0).unwrap()), &points);
    let scan = built(LinearScan::new(), &points);
    let (mut nearest, mut all) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let at = std::array::from_fn(|_| dice.unit() * 100.0);
        index.nearest(&at, 10, &mut nearest);
        scan.nearest(&at, 10, &mut all);
        assert_eq!(nearest, all);
    }
}

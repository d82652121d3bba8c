//! Shapes that select points in queries of an index: boxes, balls, beams and frusta.
//!
//! Invariant for every index: if a shape [contains](Shape::contains) a point, the shape [intersects](Shape::intersects)
//! every box around that point. Both methods use the same operations in the same order, so rounding cannot make them
//! disagree. Beams are an exception: their comparisons are not exact, so beams enlarge the boxes.

use crate::world::Point;

/// A set of points that a query of a spatial index selects, such as a ball.
pub trait Shape<const D: usize> {
    /// Whether the shape contains a point.
    fn contains(&self, at: &Point<D>) -> bool;

    /// Whether the shape may contain a point of a box.
    fn intersects(&self, bounds: &Aabb<D>) -> bool;

    /// A box around the shape. Returns `None` if there is no such box, or if computing the box would take too long.
    fn bounds(&self) -> Option<Aabb<D>> {
        None
    }
}

/// A shape: a box with faces parallel to the axes (axis-aligned bounding box), faces included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aabb<const D: usize> {
    /// Lower corner.
    pub min: Point<D>,
    /// Upper corner.
    pub max: Point<D>,
}

impl<const D: usize> Aabb<D> {
    /// A box without points.
    pub const EMPTY: Aabb<D> = Aabb { min: [f32::INFINITY; D], max: [f32::NEG_INFINITY; D] };

    /// The smallest box around both boxes.
    #[inline(always)]
    pub fn join(&self, other: &Aabb<D>) -> Aabb<D> {
        Aabb {
            min: std::array::from_fn(|axis| self.min[axis].min(other.min[axis])),
            max: std::array::from_fn(|axis| self.max[axis].max(other.max[axis])),
        }
    }

    /// Squared distance to a point; 0 inside. Even with rounding, no point of the box is nearer than this.
    #[inline(always)]
    pub fn distance_sq(&self, at: &Point<D>) -> f32 {
        (0..D).fold(0.0, |sum, axis| {
            let beside = (self.min[axis] - at[axis]).max(at[axis] - self.max[axis]).max(0.0);
            sum + beside * beside
        })
    }

    /// Squared distance between two boxes; 0 if they touch or overlap.
    #[inline(always)]
    pub fn distance_sq_to(&self, other: &Aabb<D>) -> f32 {
        (0..D).fold(0.0, |sum, axis| {
            let beside = (self.min[axis] - other.max[axis]).max(other.min[axis] - self.max[axis]).max(0.0);
            sum + beside * beside
        })
    }
}

impl<const D: usize> Shape<D> for Aabb<D> {
    #[inline(always)]
    fn contains(&self, at: &Point<D>) -> bool {
        (0..D).fold(true, |held, axis| held & (at[axis] >= self.min[axis]) & (at[axis] <= self.max[axis]))
    }

    #[inline(always)]
    fn intersects(&self, bounds: &Aabb<D>) -> bool {
        (0..D).fold(true, |meet, axis| {
            meet & (bounds.max[axis] >= self.min[axis]) & (bounds.min[axis] <= self.max[axis])
        })
    }

    fn bounds(&self) -> Option<Aabb<D>> {
        Some(*self)
    }
}

/// A shape: all points within a radius of a center point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ball<const D: usize> {
    /// The center.
    pub center: Point<D>,
    /// The radius; points at exactly this distance are inside.
    pub radius: f32,
}

impl<const D: usize> Shape<D> for Ball<D> {
    #[inline(always)]
    fn contains(&self, at: &Point<D>) -> bool {
        distance_sq(&self.center, at) <= self.radius * self.radius
    }

    #[inline(always)]
    fn intersects(&self, bounds: &Aabb<D>) -> bool {
        bounds.distance_sq(&self.center) <= self.radius * self.radius
    }

    /// The box around the shape, a little larger to allow for rounding.
    fn bounds(&self) -> Option<Aabb<D>> {
        let ends = |sign: f32| {
            self.center.map(|along| along + sign * (self.radius * (1.0 + 1e-5) + along.abs() * 1e-6))
        };
        Some(Aabb { min: ends(-1.0), max: ends(1.0) })
    }
}

/// A shape: all points within a radius of a line segment, such as the points that a thick ray hits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beam<const D: usize> {
    /// Start of the segment.
    pub origin: Point<D>,
    /// Direction, of length 1.
    direction: Point<D>,
    /// Length of the segment.
    pub length: f32,
    /// Radius around the segment.
    pub radius: f32,
}

impl<const D: usize> Beam<D> {
    /// Creates a beam. `direction` may have any length above 0. Returns `None` if this length is 0 or not finite.
    pub fn new(origin: Point<D>, direction: Point<D>, length: f32, radius: f32) -> Option<Beam<D>> {
        let norm = direction.iter().map(|along| along * along).sum::<f32>().sqrt();
        norm.is_normal().then(|| Beam {
            origin,
            direction: direction.map(|along| along / norm),
            length,
            radius,
        })
    }

    /// Distance from the beam's origin to the projection of a point on the beam's segment, clamped to the segment's
    /// ends.
    #[inline(always)]
    pub fn along(&self, at: &Point<D>) -> f32 {
        let far = (0..D).fold(0.0, |sum, axis| sum + (at[axis] - self.origin[axis]) * self.direction[axis]);
        far.max(0.0).min(self.length)
    }
}

impl<const D: usize> Shape<D> for Beam<D> {
    #[inline(always)]
    fn contains(&self, at: &Point<D>) -> bool {
        let along = self.along(at);
        let nearest = std::array::from_fn(|axis| self.origin[axis] + along * self.direction[axis]);
        distance_sq(&nearest, at) <= self.radius * self.radius
    }

    /// Slab test on the box, which is first enlarged by the radius and the rounding error.
    fn intersects(&self, bounds: &Aabb<D>) -> bool {
        let (mut enter, mut leave) = (0.0_f32, self.length);
        for axis in 0..D {
            let size =
                self.origin[axis].abs() + self.length + bounds.min[axis].abs() + bounds.max[axis].abs();
            let room = self.radius + size * 1e-5;
            let (low, high) =
                (bounds.min[axis] - room - self.origin[axis], bounds.max[axis] + room - self.origin[axis]);
            let direction = self.direction[axis];
            if direction.abs() < 1e-6 {
                let drift = self.length * 2e-6;
                if low > drift || high < -drift {
                    return false;
                }
                continue;
            }
            let (one, other) = (low / direction, high / direction);
            let slack = (one.abs() + other.abs()) * 1e-5;
            enter = enter.max(one.min(other) - slack);
            leave = leave.min(one.max(other) + slack);
        }
        enter <= leave
    }
}

/// A half-space, bounded by a plane: the points `p` with `normal · p + offset ≥ 0`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plane<const D: usize> {
    /// The plane's normal, which points to the inner side.
    pub normal: Point<D>,
    /// The `offset` of the formula.
    pub offset: f32,
}

impl<const D: usize> Plane<D> {
    #[inline(always)]
    fn height(&self, at: impl Fn(usize) -> f32) -> f32 {
        (0..D).fold(self.offset, |sum, axis| sum + self.normal[axis] * at(axis))
    }
}

/// A shape bounded by planes: a view frustum, or any convex polyhedron.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frustum<'a, const D: usize> {
    /// The half-spaces.
    pub planes: &'a [Plane<D>],
}

impl<const D: usize> Shape<D> for Frustum<'_, D> {
    #[inline]
    fn contains(&self, at: &Point<D>) -> bool {
        self.planes.iter().all(|plane| plane.height(|axis| at[axis]) >= 0.0)
    }

    /// Tests, for each plane, the corner of the box that is furthest on the plane's inner side.
    #[inline]
    fn intersects(&self, bounds: &Aabb<D>) -> bool {
        self.planes.iter().all(|plane| {
            let corner =
                |axis: usize| if plane.normal[axis] >= 0.0 { bounds.max[axis] } else { bounds.min[axis] };
            plane.height(corner) >= 0.0
        })
    }
}

/// Squared distance between two points.
#[inline(always)]
pub(crate) fn distance_sq<const D: usize>(a: &Point<D>, b: &Point<D>) -> f32 {
    (0..D).fold(0.0, |sum, axis| {
        let beside = a[axis] - b[axis];
        sum + beside * beside
    })
}

//! Simplices are the triangles and tetrahedra into which squares and cubes are cut. Bey's method refines them: it cuts
//! a simplex into smaller ones.
//!
//! A cube is cut into one simplex for each order of its axes. The simplex contains the points `p`, measured from the
//! cube's lower corner, with `p[order[0]] ≥ p[order[1]] ≥ …`. Its vertices lie on a path that starts at the lower
//! corner and takes one step along each axis, in the order `order`. Bey's red refinement of such a simplex gives 2^D
//! simplices of the same shape in cubes of half the length. Refining the simplices therefore gives the same simplices
//! as cutting the refined cubes. Types are numbered as in Burstedde and Holke ("A tetrahedral space-filling curve for
//! nonconforming adaptive meshes", SIAM J. Sci. Comput. 38(5), 2016); the tests compare with the tables of that paper.
//!
//! A point on a face that simplices share belongs to only one of them: if two coordinates of the point are equal, the
//! coordinate of the lower axis counts as larger.

use crate::world::{GRID_BITS, GridPoint};

/// The order of axes for each type of tetrahedron; axis x is 0. `FLAT_ORDERS` has the orders for the types of
/// triangles.
const ORDERS: [[usize; 3]; 6] = [[0, 2, 1], [0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0], [2, 0, 1]];
const FLAT_ORDERS: [[usize; 2]; 2] = [[0, 1], [1, 0]];

/// A cell of the tetrahedral Morton curve: a triangle or tetrahedron at a level of refinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Simplex<const D: usize> {
    /// Lower corner of the cube that contains the simplex, in grid coordinates.
    pub anchor: GridPoint<D>,
    /// How many times the world is halved along each axis to reach the cube.
    pub level: u32,
    /// Type of the simplex: its number among the simplices of its cube.
    pub kind: u8,
}

impl<const D: usize> Simplex<D> {
    /// Returns the simplex of the given level that contains `point`.
    pub fn of(point: GridPoint<D>, level: u32) -> Simplex<D> {
        let within = (1_u32 << (GRID_BITS - level)) - 1;
        let anchor = point.map(|along| along & !within);
        Simplex { anchor, level, kind: kind(point.map(|along| along & within)) }
    }

    /// Length of the cube's edges, in grid steps.
    pub fn edge(&self) -> u32 {
        1 << (GRID_BITS - self.level)
    }

    /// The axes in the order in which a path along the simplex's edges follows them from the lower corner of the cube
    /// to the upper corner.
    pub fn order(&self) -> [usize; D] {
        std::array::from_fn(|step| {
            if D == 2 { FLAT_ORDERS[self.kind as usize][step] } else { ORDERS[self.kind as usize][step] }
        })
    }

    /// The `D + 1` vertices, in grid coordinates.
    pub fn vertices(&self) -> impl Iterator<Item = GridPoint<D>> {
        let (order, edge) = (self.order(), self.edge());
        let along = move |at: &mut GridPoint<D>, step: usize| {
            if step > 0 {
                at[order[step - 1]] += edge;
            }
            Some(*at)
        };
        (0..=D).scan(self.anchor, along)
    }

    /// The parent; `None` for a root.
    pub fn parent(&self) -> Option<Simplex<D>> {
        let level = self.level.checked_sub(1)?;
        // An inner point of this simplex is also inside its parent. The code takes the middle of the path along the
        // edges, which is an inner point and lies on no face of a coarser simplex.
        let order = self.order();
        let mut inside = self.anchor;
        for (step, axis) in order.into_iter().enumerate() {
            inside[axis] += self.edge() / 8 * (2 * (D - step) as u32);
        }
        Some(Simplex::of(inside, level))
    }

    /// The simplex of the same level beyond the face opposite to a vertex; `None` outside the world.
    pub fn neighbour(&self, vertex: usize) -> Option<Simplex<D>> {
        let (mut order, mut anchor) = (self.order(), self.anchor);
        if vertex == 0 {
            anchor[order[0]] = anchor[order[0]].checked_add(self.edge()).filter(|at| at >> GRID_BITS == 0)?;
            order.rotate_left(1);
        } else if vertex == D {
            anchor[order[D - 1]] = anchor[order[D - 1]].checked_sub(self.edge())?;
            order.rotate_right(1);
        } else {
            order.swap(vertex - 1, vertex);
        }
        let kinds = if D == 2 { 2 } else { 6 };
        let all = (0..kinds).map(|kind| Simplex { anchor, level: self.level, kind });
        all.into_iter().find(|simplex| simplex.order() == order)
    }
}

/// Type of the simplex that holds the point `within`, whose coordinates are measured from the cube's lower corner.
#[inline(always)]
pub(super) fn kind<const D: usize>(within: GridPoint<D>) -> u8 {
    if D == 2 {
        return u8::from(within[0] < within[1]);
    }
    let (x, y, z) = (within[0], within[1], within[2]);
    // The bits of the index are the results of x ≥ y, y ≥ z and x ≥ z. Two of the eight combinations cannot occur.
    const KINDS: [u8; 8] = [4, 5, 3, 0, 0, 0, 2, 1];
    KINDS[usize::from(x >= y) | usize::from(y >= z) << 1 | usize::from(x >= z) << 2]
}

/// Number of each child among its siblings on the curve, indexed by the parent's type, the child's cube and the child's
/// type. Siblings are numbered by cube, then by type. The number is [`NONE`] for a combination of which the parent has
/// no child.
pub(super) const fn child_numbers(dimensions: usize) -> [[[u8; 6]; 8]; 6] {
    let kinds = if dimensions == 2 { 2 } else { 6 };
    let mut numbers = [[[NONE; 6]; 8]; 6];
    let mut parent = 0;
    while parent < kinds {
        let (mut next, mut cube) = (0, 0);
        while cube < 1 << dimensions {
            let mut kind = 0;
            while kind < kinds {
                if is_child(dimensions, parent, cube, kind) {
                    numbers[parent][cube][kind] = next;
                    next += 1;
                }
                kind += 1;
            }
            cube += 1;
        }
        parent += 1;
    }
    numbers
}

pub(super) const NONE: u8 = u8::MAX;

const fn order_of(dimensions: usize, kind: usize, step: usize) -> usize {
    if dimensions == 2 { FLAT_ORDERS[kind][step] } else { ORDERS[kind][step] }
}

/// Whether a simplex of type `kind` in sub-cube `cube` lies in a simplex of type `parent`. Tests one inner point of the
/// smaller simplex.
const fn is_child(dimensions: usize, parent: usize, cube: usize, kind: usize) -> bool {
    let mut inside = [0; 3];
    let mut step = 0;
    while step < dimensions {
        let axis = order_of(dimensions, kind, step);
        inside[axis] = ((cube >> axis) & 1) * 4 + (dimensions - step);
        step += 1;
    }
    step = 1;
    while step < dimensions {
        if inside[order_of(dimensions, parent, step - 1)] < inside[order_of(dimensions, parent, step)] {
            return false;
        }
        step += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The type of a child's parent, by the child's cube and type, as in the table of Burstedde and Holke.
    const PARENTS: [[u8; 6]; 8] = [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 1, 1, 0, 0],
        [2, 2, 2, 3, 3, 3],
        [1, 1, 2, 2, 2, 1],
        [5, 5, 4, 4, 4, 5],
        [0, 0, 0, 5, 5, 5],
        [4, 3, 3, 3, 4, 4],
        [0, 1, 2, 3, 4, 5],
    ];

    #[test]
    fn parent_types_of_simplices_equal_the_published_table() {
        for (cube, kinds) in PARENTS.iter().enumerate() {
            for (kind, parent) in (0..).zip(kinds) {
                let anchor = std::array::from_fn(|axis| ((cube >> axis & 1) as u32) << 23);
                let simplex = Simplex::<3> { anchor, level: 1, kind };
                assert_eq!(simplex.parent().map(|root| root.kind), Some(*parent), "cube {cube}, type {kind}");
            }
        }
    }

    #[test]
    fn every_parent_simplex_has_four_or_eight_children() {
        for (dimensions, kinds) in [(2, 2), (3, 6)] {
            for parent in &child_numbers(dimensions)[..kinds] {
                let mut numbers: Vec<u8> =
                    parent.iter().flatten().copied().filter(|number| *number != NONE).collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..1 << dimensions).collect::<Vec<u8>>());
            }
        }
    }

    /// Twice the area of a triangle, or six times the volume of a tetrahedron, in grid units: the determinant of its
    /// edges.
    fn volume<const D: usize>(vertices: &[GridPoint<D>]) -> i128 {
        let edge = |at: usize, axis: usize| i128::from(vertices[at][axis]) - i128::from(vertices[0][axis]);
        if D == 2 {
            return (edge(1, 0) * edge(2, 1) - edge(1, 1) * edge(2, 0)).abs();
        }
        let minor = |a: usize, b: usize| edge(2, a) * edge(3, b) - edge(2, b) * edge(3, a);
        (edge(1, 0) * minor(1, 2) - edge(1, 1) * minor(0, 2) + edge(1, 2) * minor(0, 1)).abs()
    }

    /// Whether a simplex, with its faces, contains a point. It does if the volumes between the point and each face add
    /// up to the volume of the simplex.
    fn contains<const D: usize>(simplex: &Simplex<D>, point: GridPoint<D>) -> bool {
        let vertices: Vec<_> = simplex.vertices().collect();
        let towards = (0..=D).map(|at| {
            let mut moved = vertices.clone();
            moved[at] = point;
            volume(&moved)
        });
        towards.sum::<i128>() == volume(&vertices)
    }

    proptest! {
        #[test]
        fn grid_point_is_inside_its_simplex_and_the_parent_simplex(
            point in prop::array::uniform3(0_u32..1 << 24), level in 0_u32..=21,
        ) {
            let simplex = Simplex::of(point, level);
            prop_assert!(contains(&simplex, point));
            let flat = Simplex::of([point[0], point[1]], level);
            prop_assert!(contains(&flat, [point[0], point[1]]));
            if level > 0 {
                prop_assert_eq!(simplex.parent(), Some(Simplex::of(point, level - 1)));
                prop_assert_eq!(flat.parent(), Some(Simplex::of([point[0], point[1]], level - 1)));
            }
        }

        #[test]
        fn neighbour_simplices_share_all_vertices_but_one(
            point in prop::array::uniform3(0_u32..1 << 24), level in 1_u32..=21, vertex in 0_usize..=3,
        ) {
            let simplex = Simplex::of(point, level);
            let Some(other) = simplex.neighbour(vertex) else { return Ok(()) };
            let (own, others): (Vec<_>, Vec<_>) = (simplex.vertices().collect(), other.vertices().collect());
            let shared = own.iter().filter(|vertex| others.contains(vertex)).count();
            prop_assert_eq!(shared, 3);
            prop_assert!(!others.contains(&own[vertex]));
            prop_assert_eq!((0..=3).filter(|back| other.neighbour(*back) == Some(simplex)).count(), 1);
        }
    }
}

//! Entities on the move, in two dimensions or three.
//!
//! A [`World`] is a box of space; a [`Curve`] runs through its cells and so puts points in an order in which what is near
//! mostly stays near. An [`Index`] answers what is where, exactly: [`Octree`] and [`Tetree`] along their curves, [`Grid`]
//! by cells of one size, [`Scan`] by looking at everything.
//!
//! This crate has no sockets, disks, threads or clock.

mod shape;
mod world;

pub mod curve;

pub mod index;

pub use curve::{Curve, Morton, Tetrahedral};
pub use index::{Columns, Grid, Index, Near, Octree, Scan, Tetree, Tree};
pub use shape::{Aabb, Ball, Beam, Frustum, Plane, Shape};
pub use world::{CELL_BITS, PLACE_BITS, Place, Point, World, WorldError};

//! Entities on the move, in two dimensions or three.
//!
//! A [`World`] is a box of space; a [`Curve`] runs through its cells and so puts points in an order in which what is near
//! mostly stays near. An [`Index`] answers what is where, exactly: [`Octree`] and [`Tetree`] along their curves, [`Grid`]
//! by cells of one size, [`Scan`] by looking at everything.
//!
//! A [`Store`] holds entities as columns, a [`Region`] moves those of a stretch of the curve, tick by tick, as a [`Behaviour`] says;
//! [`Ghosts`] are its neighbours'. A [`Handover`] gives entities from one owner to another; [`RegionFold`] is the state of a region's
//! topic, and [`Interests`] what clients see of it. [`Lockstep`] runs several regions in one process.
//!
//! This crate has no sockets, disks, threads or clock.

// Loops over axes index several columns and points at once.
#![allow(clippy::needless_range_loop)]

mod entity;
mod layout;
mod limits;
mod shape;
mod world;

pub mod curve;

pub mod index;

pub mod handover;
mod store;

mod balance;
pub mod behaviour;
mod census;
mod ghost;
mod partition;
mod region;

mod configured;
mod flights;
mod fold;
mod interest;
mod lockstep;

pub use balance::{Balance, Scales, Weight};
pub use behaviour::{
    Around, AroundLanes, Behaviour, LANES, Lanes, Moment, Motion, Other, OtherLanes, Own, OwnLanes,
};
pub use census::{Census, Headcount};
pub use configured::{
    AnyRegion, REGION, WORLD_NAME_MAX, WorldNameError, check_world_name, fold_config, topic_of,
};
pub use curve::{Curve, Morton, Tetrahedral};
pub use entity::EntityId;
pub use flights::{Flights, FlightsError};
pub use fold::RegionFold;
pub use ghost::{Ghost, GhostBatch, Ghosts};
pub use handover::{
    Counts as HandoverCounts, Effect, Entry, Handover, HandoverLimits, Heading, Holdings, Message,
    OfferError, Parcel, Refusal, Refused, RegionId, Saying, Standby, Step, Timing, Transfer,
};
pub use index::{Columns, Grid, Index, Near, Octree, Scan, Tetree, Tree};
pub use interest::{
    Answer, Ask, Change, Command, Denial, Glimpse, GlimpseError, InterestError, Interests, Rule, Scene,
    Sight, ViewerId, Visible, Watch,
};
pub use layout::{DecodeError, VERSION};
pub use limits::Limits;
pub use lockstep::Lockstep;
pub use partition::{Load, Partition, PartitionError};
pub use region::{
    Authority, CommandError, Outputs, RecordError, Region, RegionState, Report, Section, Setup, StepError,
    Succession,
};
pub use shape::{Aabb, Ball, Beam, Frustum, Plane, Shape};
pub use store::{Component, Entity, Kind, Schema, SchemaError, StateError, Store, StoreError, Window};
pub use world::{CELL_BITS, PLACE_BITS, Place, Point, World, WorldError};

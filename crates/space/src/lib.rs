//! Entities that move in two or three dimensions, split over regions with one owner each.
//!
//! A [`WorldBox`] is a box of space, divided into cells. A [`Curve`] orders these cells so that neighbouring cells are
//! mostly close together on the curve. A [`Partition`] assigns a stretch of the curve to each [`Region`]. A region
//! moves its entities tick by tick with a [`Behaviour`], sees the entities of neighbouring regions as [`Ghosts`], and
//! hands entities to other regions with a [`Handover`]. [`RegionReducer`] is the state of a region's topic, and
//! [`Interests`] decides what viewers receive. [`Octree`], [`TetrahedralTree`], [`Grid`] and [`LinearScan`] find
//! entities by position.
//!
//! ```
//! use dunlin_space::behaviour::RandomWalk;
//! use dunlin_space::{Entity, Lockstep, RegionId, RegionSetup, WorldBox};
//!
//! let world = WorldBox::<3>::cube(100.0).expect("the edge length is above 0");
//! let walk = RandomWalk { speed_max: 5.0, turn: 0.1 };
//! let mut regions = Lockstep::new(&RegionSetup::new(RegionId(0), world, 1.0), &walk, 2);
//! regions.spawn(&Entity::at(7, [1.0, 2.0, 3.0])).expect("the position is in the world");
//! regions.tick().expect("all regions have a lease");
//! assert_eq!(regions.ledger().len(), 1);
//! ```
//! This crate uses no sockets, disks, threads or clocks.

// Loops over axes often index several columns and points at once.
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
mod interest;
mod lockstep;
mod reducer;

pub use balance::{BalancePolicy, LoadReport, LoadReports};
pub use behaviour::{
    Behaviour, LANES, Motion, NearbyEntities, NearbyEntityLanes, OtherEntity, OtherEntityLanes, OwnEntity,
    OwnEntityLanes, SimdLanes, TickContext,
};
pub use census::{Census, RegionEntityCounts};
pub use configured::{
    AnyRegion, REGION, WORLD_NAME_MAX, WorldNameError, check_world_name, reducer_config, topic_of,
};
pub use curve::{Curve, MortonCurve, TetrahedralCurve};
pub use entity::EntityId;
pub use flights::{Flights, FlightsError};
pub use ghost::{Ghost, GhostBatch, Ghosts};
pub use handover::{
    AdmissionCheck, EntityRefusal, Handover, HandoverCounts, HandoverEffect, HandoverEntry, HandoverLimits,
    HandoverMessage, HandoverStep, HandoverTiming, MessageBody, MessageSummary, OfferError, RefusedEntity,
    RegionId, StandbyMode, TransferId, TransferredEntity,
};
pub use index::{Grid, LinearScan, NearItem, Octree, PointColumns, SpatialIndex, TetrahedralTree, Tree};
pub use interest::{
    EntityCommand, InterestError, Interests, Scene, SceneChange, SurroundingsWatch, ViewerEvent,
    ViewerEventError, ViewerId, ViewerUpdate, VisibilityRule, VisibleEntity, WorldRefusal, WorldRequest,
    WorldResponse,
};
pub use layout::{SpaceDecodeError, VERSION};
pub use limits::RegionLimits;
pub use lockstep::Lockstep;
pub use partition::{Partition, PartitionError, RegionLoad};
pub use reducer::RegionReducer;
pub use region::{
    CommandError, GhostStripError, RecordError, RecordSection, Region, RegionAuthority, RegionOutputs,
    RegionReport, RegionSetup, RegionState, StepError, Takeover,
};
pub use shape::{Aabb, Ball, Beam, Frustum, Plane, Shape};
pub use store::{
    Component, ComponentKind, Entity, EntityStore, Schema, SchemaError, SortWindow, StateError, StoreError,
};
pub use world::{CELL_BITS, GRID_BITS, GridPoint, Point, WorldBox, WorldError};

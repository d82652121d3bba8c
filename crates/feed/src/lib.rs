//! Live state that recovers by itself: folds that ship, and what feeds are made from.
//!
//! [`Book`] holds price levels, [`Orders`] single orders in their queues, [`LastValue`] the last value of each key; [`fold`]
//! makes any of them by name. What their records hold is [`BookEntry`], [`OrderEntry`] and [`ValueEntry`].
//!
//! Records come from a [`Simulator`] of [`Instruments`], paced by a [`Schedule`], or from a [`recording`] of an exchange.
//!
//! This crate has no sockets, disks, threads or clock.

mod limits;
mod side;

pub mod decimal;
mod scale;

mod entry_error;
mod snapshot;
mod view;

mod checksum;
mod pages;

mod ladder;
mod removals;
mod slab;

mod book;
mod last_value;
mod orders;

mod kind;

mod instruments;
mod random;
pub mod recording;
mod schedule;
mod simulator;

mod replica;

pub use book::{BOOK_ENTRY_BYTES, Book, BookEntry};
pub use entry_error::EntryError;
pub use instruments::{
    INSTRUMENTS_MAX, Instrument, Instruments, InstrumentsError, InstrumentsText, LEVELS_PER_SIDE_MAX,
    Notation, SCENARIOS, UPDATES_PER_SEC_MAX, VOLATILITY_MAX,
};
pub use kind::{BOOK, KINDS, LAST, ORDERS, fold, fold_within};
pub use last_value::{LastValue, VALUE_HEAD_BYTES, ValueEntry};
pub use limits::Limits;
pub use orders::{ORDER_ENTRY_BYTES, Order, OrderEntry, Orders, QueuePosition};
pub use replica::{By, Change, Counts, RETRY_NS, Replica, Report, Trouble};
pub use scale::{DECIMALS_MAX, OptionsError, Scale, ScaleError, UNITS_MAX};
pub use schedule::{Action, Due, GRAIN_NS, LATE_NS_DEFAULT, SPIN_NS_DEFAULT, Schedule, Slips};
pub use side::Side;
pub use simulator::{Simulator, Update};
pub use snapshot::SnapshotError;
pub use view::{Crossings, Level, Levels, Touch};

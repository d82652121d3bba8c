//! Reducers for the state topics that ship with Dunlin, and sources of records for these topics.
//!
//! The reducers are [`Book`] (price levels), [`Orders`] (single orders in their queues) and [`LastValue`] (the last
//! value of each key); [`make_reducer`] creates them by name. The payloads of their records consist of entries:
//! [`BookEntry`], [`OrderEntry`] or [`ValueEntry`]. A [`Replica`] is a subscriber's copy of a state. It detects and
//! repairs its own faults. Records come from a [`Simulator`] of [`Instruments`], paced by a [`FeedSchedule`], or from a
//! [`recording`] of an exchange.
//!
//! ```
//! use dunlin_feed::{Book, BookEntry, PriceLevels, Scale, Side};
//!
//! let mut book = Book::new(Scale::default());
//! let mut payload = Vec::new();
//! BookEntry::Set { side: Side::Bid, price: 10_125, size: 7 }.encode(&mut payload);
//! book.apply_payload(1, &payload).expect("the entry fits the book");
//! assert_eq!(book.best(Side::Bid).map(|level| level.price), Some(10_125));
//! ```
//! This crate uses no sockets, disks, threads or clock.

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
pub use kind::{BOOK, KINDS, LAST, ORDERS, complete_options, make_reducer, make_reducer_within};
pub use last_value::{LastValue, VALUE_HEAD_BYTES, ValueEntry};
pub use limits::FeedLimits;
pub use orders::{ORDER_ENTRY_BYTES, Order, OrderEntry, Orders, QueuePosition};
pub use replica::{ChangeCause, RETRY_NS, Replica, ReplicaCounts, ReplicaFault, ReplicaReport, StateChange};
pub use scale::{DECIMALS_MAX, OptionsError, Scale, ScaleError, UNITS_MAX};
pub use schedule::{
    DENSE_SLEEP_NS, DueRecord, FeedSchedule, LATE_NS_DEFAULT, Lateness, SPIN_NS_DEFAULT, ScheduleAction,
};
pub use side::Side;
pub use simulator::{SimulatedUpdate, Simulator};
pub use snapshot::SnapshotError;
pub use view::{BidAskRelation, Crossings, PriceLevel, PriceLevels};

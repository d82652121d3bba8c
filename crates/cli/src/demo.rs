//! The demo: recorded markets, replayed to many subscribers, with every record accounted for.
//!
//! Truth is the publisher's [`ledger`]; what readers say is held against it, and never against what the node says.

pub mod account;
pub mod ledger;
pub mod player;
pub mod reader;
pub mod recording;
pub mod report;
pub mod schedule;
pub mod source;

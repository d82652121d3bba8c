//! The bench's own promises, with real processes: tiny runs of everything that needs nothing installed.

mod broker;
mod children;
mod control;
mod feed;
mod runs;
mod space;
mod stand;
mod tasks;

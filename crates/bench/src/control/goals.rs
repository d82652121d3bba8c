//! The control issue's table "Where it must be", and the Grey document's figures.

use crate::goal::{Claim, Goal};

/// The table.
pub const GOALS: &[Goal] = &[];

/// The document's consensus, network and storage tables.
pub const CLAIMS: &[Claim] = &[];

//! The list of all suites.

use crate::point::Suite;
use crate::{broker, control, feed, grpc, space, spot, tasks};

/// Every suite, in the order in which `all` runs them.
pub const SUITES: &[Suite] =
    &[spot::SUITE, feed::SUITE, broker::SUITE, grpc::SUITE, control::SUITE, tasks::SUITE, space::SUITE];

/// Returns the suites for a name: a single suite, or all of them for `all`.
pub fn find(name: &str) -> Option<&'static [Suite]> {
    if name == "all" {
        return Some(SUITES);
    }
    SUITES.iter().position(|suite| suite.name == name).map(|nth| &SUITES[nth..=nth])
}

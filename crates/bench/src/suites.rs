//! The list of all benchmark suites.

use crate::point::Suite;
use crate::{broker, control, feed, grpc, space, spot, tasks};

/// All suites, in the order in which `dunlin bench all` runs them.
pub const SUITES: &[Suite] =
    &[spot::SUITE, feed::SUITE, broker::SUITE, grpc::SUITE, control::SUITE, tasks::SUITE, space::SUITE];

/// Returns the suite with this name. For the name `all`, returns all suites. Returns `None` if there is no such suite.
pub fn find(name: &str) -> Option<&'static [Suite]> {
    if name == "all" {
        return Some(SUITES);
    }
    SUITES.iter().position(|suite| suite.name == name).map(|nth| &SUITES[nth..=nth])
}

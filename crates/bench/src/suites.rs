//! The list of all suites.

use crate::point::Suite;
use crate::{broker, control, feed, grpc, space, spot, tasks};

/// Every suite, in the order in which `all` runs them.
pub const SUITES: &[Suite] =
    &[spot::SUITE, feed::SUITE, broker::SUITE, grpc::SUITE, control::SUITE, tasks::SUITE, space::SUITE];

/// Returns the suite with this name, or all suites for the name `all`; `None` for an unknown name.
pub fn find(name: &str) -> Option<&'static [Suite]> {
    if name == "all" {
        return Some(SUITES);
    }
    SUITES.iter().position(|suite| suite.name == name).map(|nth| &SUITES[nth..=nth])
}

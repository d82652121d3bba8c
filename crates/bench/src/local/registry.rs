//! Measures how long it takes to create topics, and to find topics by their names.

use anyhow::Result;

use crate::local::node::LocalNode;
use crate::names::time_registry;
use crate::point::RunSample;

const HISTORY_BYTES: u64 = 4 << 20;

/// Measures the creation of `topics` topics, and `lookups` look-ups of random names.
pub fn measure(topics: usize, lookups: usize) -> Result<RunSample> {
    let create = |names: &crate::names::TopicNames| {
        let local_node = LocalNode::start()?;
        for name in names.iter() {
            local_node.volatile(name, HISTORY_BYTES)?;
        }
        Ok(local_node)
    };
    time_registry(topics, lookups, create, |local_node, name| {
        local_node.node().with_topic(name, |_| ()).is_some()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn measured_time_of_a_topic_lookup_is_above_zero() {
        assert!(super::measure(100, 1_000).unwrap().get("lookup_ns").unwrap() > 0.0);
    }
}

//! Measures look-ups of names in the standard library's hash map, the floor for finding a topic.

use std::collections::HashMap;

use anyhow::Result;

use crate::names::time_registry;
use crate::point::RunSample;

/// Fills a map with `topics` names, then looks up `lookups` names that are drawn uniformly at random.
pub fn measure(topics: usize, lookups: usize) -> Result<RunSample> {
    time_registry(
        topics,
        lookups,
        |names| Ok(names.iter().enumerate().map(|(index, name)| (name.to_owned(), index)).collect()),
        |map: &HashMap<String, usize>, name| map.contains_key(name),
    )
}

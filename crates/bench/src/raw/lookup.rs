//! Measures look-ups of names in the hash map of the standard library. These look-ups are the floor for finding a
//! topic.

use std::collections::HashMap;

use anyhow::Result;

use crate::names::time_registry;
use crate::point::RunSample;

/// Fills a map with `topics` names, and then makes `lookups` look-ups of names that are drawn at random.
pub fn measure(topics: usize, lookups: usize) -> Result<RunSample> {
    time_registry(
        topics,
        lookups,
        |names| Ok(names.iter().enumerate().map(|(index, name)| (name.to_owned(), index)).collect()),
        |map: &HashMap<String, usize>, name| map.contains_key(name),
    )
}

//! An index that finds a topic by its exact name, with one hash lookup that touches little memory.
//!
//! In a measurement with 100,000 topics, random names and both cores busy, a `HashMap<String, _>` of std finds a name
//! in 180 ns. This table needs 20 to 50 ns, because it stores short names inline. Increasing the topic's reference
//! count takes 100 ns more, because of a cache miss; [`TopicNameIndex::with`] does not increase it.
//!
//! Each shard has an exclusive lock, which needs one atomic operation instead of the two of a shared lock (48 ns
//! instead of 60). Because there are many shards, threads seldom wait for each other.

use std::hash::BuildHasher;
use std::sync::Arc;

use dunlin_topic::{ShortLock, Topic};
use hashbrown::{DefaultHashBuilder, HashTable};

const SHARDS: usize = 64;

#[derive(Debug)]
pub(super) struct TopicNameIndex {
    shards: [Shard; SHARDS],
    hasher: DefaultHashBuilder,
}

/// A part of the table that has its own lock. Each shard begins on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(ShortLock<HashTable<Named>>);

#[derive(Debug)]
struct Named {
    name: Name,
    topic: Arc<Topic>,
}

/// A topic's name, and whether the topic owns only the subject that equals the name. The name and the topic's address
/// together take half a cache line.
#[derive(Debug)]
enum Name {
    Short { owns_only_its_name: bool, len: u8, bytes: [u8; SHORT_MAX] },
    Long { owns_only_its_name: bool, text: Box<str> },
}

const SHORT_MAX: usize = 21;
const _: () = assert!(size_of::<Named>() == 32);

impl TopicNameIndex {
    pub(super) fn new() -> TopicNameIndex {
        TopicNameIndex {
            shards: std::array::from_fn(|_| Shard(ShortLock::new(HashTable::new()))),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Calls `read` with the topic that has this name, and returns the result. The second argument of `read` says
    /// whether the topic owns only the subject that equals its name.
    #[inline]
    pub(super) fn with<R>(&self, name: &str, read: impl FnOnce(&Arc<Topic>, bool) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(name);
        let table = self.shard(hash).0.lock();
        let named = table.find(hash, |named| named.name.is(name))?;
        Some(read(&named.topic, named.name.owns_only_its_name()))
    }

    /// Adds a topic whose name is not in the table.
    pub(super) fn add(&self, topic: Arc<Topic>, owns_only_its_name: bool) {
        let hash = self.hasher.hash_one(topic.name());
        let mut table = self.shard(hash).0.lock();
        let named = Named { name: Name::new(topic.name(), owns_only_its_name), topic };
        table.get().insert_unique(hash, named, |named| self.hasher.hash_one(named.topic.name()));
    }

    pub(super) fn remove(&self, name: &str) {
        let hash = self.hasher.hash_one(name);
        let mut table = self.shard(hash).0.lock();
        let found = table.get().find_entry(hash, |named| named.name.is(name));
        let removed = found.ok().map(|entry| entry.remove().0);
        drop(table);
        // If this was the last reference, dropping it frees the topic's records. Drop it after unlocking, because this
        // takes long.
        drop(removed);
    }

    /// The shard for a hash. Uses bits that the table does not use; the table uses the lowest bits and the highest
    /// seven.
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

impl Name {
    fn new(text: &str, owns_only_its_name: bool) -> Name {
        let mut bytes = [0; SHORT_MAX];
        match bytes.get_mut(..text.len()) {
            Some(start) => {
                start.copy_from_slice(text.as_bytes());
                Name::Short { owns_only_its_name, len: text.len() as u8, bytes }
            }
            None => Name::Long { owns_only_its_name, text: text.into() },
        }
    }

    #[inline]
    fn is(&self, text: &str) -> bool {
        match self {
            Name::Short { len, bytes, .. } => bytes[..usize::from(*len)] == *text.as_bytes(),
            Name::Long { text: known, .. } => **known == *text,
        }
    }

    fn owns_only_its_name(&self) -> bool {
        match self {
            Name::Short { owns_only_its_name, .. } | Name::Long { owns_only_its_name, .. } => {
                *owns_only_its_name
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_topic::{MemoryBudget, TopicConfig};

    fn topic(name: &str) -> Arc<Topic> {
        let config = Arc::new(TopicConfig::default());
        Arc::new(Topic::new(name, config, &MemoryBudget::node(0, 0), crate::CLOCK, 1).unwrap())
    }

    #[test]
    fn topic_name_of_any_length_is_found_until_it_is_removed() {
        let names = TopicNameIndex::new();
        let all: Vec<String> = (1..60).map(|len| "x".repeat(len)).collect();
        for (number, name) in all.iter().enumerate() {
            assert_eq!(names.with(name, |_, _| ()), None);
            names.add(topic(name), number % 2 == 0);
        }
        for (number, name) in all.iter().enumerate() {
            let found =
                names.with(name, |topic, owns_only_its_name| (topic.name().to_owned(), owns_only_its_name));
            assert_eq!(found, Some((name.clone(), number % 2 == 0)));
        }
        all.iter().for_each(|name| names.remove(name));
        assert!(all.iter().all(|name| names.with(name, |_, _| ()).is_none()));
    }

    #[test]
    fn many_names_are_spread_over_the_shards() {
        let names = TopicNameIndex::new();
        let all: Vec<String> = (0..4_096).map(|n| format!("site.{n}")).collect();
        all.iter().for_each(|name| names.add(topic(name), true));
        assert!(all.iter().all(|name| names.with(name, |topic, _| topic.name() == name) == Some(true)));
        let least = names.shards.iter().map(|shard| shard.0.lock().len()).min();
        assert!(least > Some(4_096 / SHARDS / 2), "{least:?}");
    }
}

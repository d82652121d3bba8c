//! Shards of a cluster's tasks. Each shard is a [`SchedulerState`](crate::SchedulerState) of its own, with its own
//! tenants.
//!
//! ```text
//!  id u64: number of uses of the slot, 32 bits | shard, 4 bits | slot, 28 bits
//! ```
//! A slot is a place for one task or worker in a shard's memory. When the task or worker is forgotten, its slot can be
//! used for another one. The id of a task contains the number of the task's shard. The id of a worker contains the
//! number of the shard in which the worker joined; this is always the first shard. The first shard, which is the only
//! one by default, has the number 0. Its ids therefore equal the ids of a cluster without shards.
//!
//! Invariants: a tenant's shard depends only on its name and the number of shards, and never changes.
//! [`shard_of_tenant`] and [`shard_of_id`] are part of the format.

/// Maximum number of shards of a cluster.
pub const SHARDS_MAX: u8 = 16;

const SLOT_BITS: u32 = 28;
/// Number of slots that an id can name within its shard. At most `SLOTS_MAX - 1` of them are used.
pub(crate) const SLOTS_MAX: u64 = 1 << SLOT_BITS;

/// Shard of a tenant's tasks: 64-bit FNV-1a (Fowler, Noll, Vo), mixed by SplitMix64 (Steele et al. 2014) and scaled to
/// the number of shards.
pub fn shard_of_tenant(tenant: &[u8], shards: u8) -> u8 {
    let add_byte = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = tenant.iter().fold(0xcbf2_9ce4_8422_2325, add_byte);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    ((u128::from(hash) * u128::from(shards)) >> 64) as u8
}

/// The shard that assigned this id to a task or worker.
pub fn shard_of_id(id: u64) -> u8 {
    (id as u32 >> SLOT_BITS) as u8
}

/// The bits of an id that name the shard.
pub(crate) fn mark_of(shard: u8) -> u32 {
    u32::from(shard) << SLOT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_of_a_tenant_never_changes() {
        let names = ["acme", "", "default", "tenant-1", "tenant-2", "tenant-3"];
        let of = |shards| names.map(|name| shard_of_tenant(name.as_bytes(), shards));
        assert_eq!(of(1), [0; 6]);
        assert_eq!(of(2), [0, 1, 1, 1, 0, 1]);
        assert_eq!(of(4), [0, 3, 3, 2, 1, 3]);
    }

    #[test]
    fn tenants_are_spread_over_all_shards() {
        for shards in [2, 3, 4, SHARDS_MAX] {
            let mut count = vec![0; usize::from(shards)];
            (0..1_000 * u32::from(shards)).for_each(|n| {
                count[usize::from(shard_of_tenant(format!("tenant-{n}").as_bytes(), shards))] += 1
            });
            assert!(count.iter().all(|count| (850..1_150).contains(count)), "{count:?}");
        }
    }
}

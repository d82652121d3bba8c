//! Remembers which records were delivered by `share` groups that have ended.
//!
//! After a topic has moved, a member at another node joins its group again at the next owner, some time after that
//! owner's epoch has begun. By then, another group with this name may have been created at the next owner, may have
//! delivered records, and may have ended. The group that the member joins must not deliver these records again.
//!
//! Limits: at most [`GROUPS_MAX`] groups are remembered; the oldest are forgotten first. At most [`RANGES_MAX`] ranges
//! of records are remembered for each log.

use std::collections::VecDeque;

use super::Name;

/// The maximum number of ended groups that are remembered.
const GROUPS_MAX: usize = 1_024;
/// The maximum number of ranges that are remembered for each log of a group.
const RANGES_MAX: usize = 64;

/// The records of one epoch of a log that were delivered by groups with the same name.
#[derive(Debug, Clone, Default)]
pub(super) struct DeliveredRanges {
    epoch: u32,
    /// The first and last sequence number of each range, in ascending order.
    ranges: Vec<(u64, u64)>,
}

/// The ended groups of a node's topics, with the records that these groups have delivered.
#[derive(Debug, Default)]
pub(super) struct EndedGroups {
    /// The ended groups, oldest first. Each has one entry for each log of its topic.
    groups: VecDeque<(Name, Vec<DeliveredRanges>)>,
}

impl DeliveredRanges {
    /// Returns the delivered records of `epoch`: those that `self` has for this epoch, and `ranges`, which a later
    /// group with the same name has delivered.
    pub(super) fn with(&self, epoch: u32, mut ranges: Vec<(u64, u64)>) -> DeliveredRanges {
        ranges.extend(self.in_epoch(epoch));
        ranges.sort_unstable();
        while ranges.len() > RANGES_MAX {
            // Join the first two ranges. The records between the two ranges then count as delivered, although they were
            // not. This is safe, because a record must not be delivered twice, but may be lost.
            let (_, last) = ranges.remove(1);
            ranges[0].1 = ranges[0].1.max(last);
        }
        DeliveredRanges { epoch, ranges }
    }

    /// The ranges of records from `first` to `last` in `epoch` that were not delivered.
    pub(super) fn missing(&self, epoch: u32, first: u64, last: u64) -> Vec<(u64, u64)> {
        let (mut missing, mut next) = (Vec::new(), first);
        for &(from, through) in self.in_epoch(epoch).iter().filter(|(from, _)| *from <= last) {
            if next < from {
                missing.push((next, from - 1));
            }
            next = next.max(through + 1);
        }
        if next <= last {
            missing.push((next, last));
        }
        missing
    }

    fn in_epoch(&self, epoch: u32) -> &[(u64, u64)] {
        if self.epoch == epoch { &self.ranges } else { &[] }
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl EndedGroups {
    pub(super) fn has(&self, name: &Name) -> bool {
        self.groups.iter().any(|(other, _)| other == name)
    }

    /// Remembers a group that has ended. A group that has delivered nothing is ignored.
    pub(super) fn add(&mut self, name: Name, delivered: Vec<DeliveredRanges>) {
        if delivered.iter().all(DeliveredRanges::is_empty) {
            return;
        }
        if self.groups.len() >= GROUPS_MAX {
            self.groups.pop_front();
        }
        self.groups.push_back((name, delivered));
    }

    /// Takes out what ended groups with this name have delivered, one entry for each log.
    pub(super) fn take(&mut self, name: &Name) -> Vec<DeliveredRanges> {
        let at = self.groups.iter().position(|(other, _)| other == name);
        at.and_then(|at| self.groups.remove(at)).map_or_else(Vec::new, |(_, delivered)| delivered)
    }

    /// Forgets the groups of a topic that has moved.
    pub(super) fn remove_topic(&mut self, topic: &str) {
        self.groups.retain(|((topic_name, _), _)| topic_name != topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undelivered_ranges_are_found_between_delivered_ones() {
        let first = DeliveredRanges::default().with(7, vec![(11, 20)]);
        let both = first.with(7, vec![(31, 40), (5, 6)]);
        assert_eq!(both.missing(7, 1, 50), [(1, 4), (7, 10), (21, 30), (41, 50)]);
        assert_eq!(both.missing(7, 12, 35), [(21, 30)]);
        assert_eq!(both.missing(7, 12, 15), []);
        assert_eq!(both.missing(8, 1, 50), [(1, 50)], "of another epoch");
        let many = (0..2 * RANGES_MAX as u64).map(|n| (10 * n, 10 * n)).collect();
        let (many, last) = (DeliveredRanges::default().with(7, many), 20 * RANGES_MAX as u64);
        assert_eq!(many.missing(7, 0, last).last(), Some(&(last - 9, last)));
        assert_eq!(many.missing(7, 0, last).len(), RANGES_MAX);
    }

    #[test]
    fn node_remembers_deliveries_only_of_recently_ended_groups() {
        let name = |n: usize| ("t".to_owned(), n.to_string());
        let mut ended = EndedGroups::default();
        ended.add(name(0), vec![DeliveredRanges::default()]);
        assert!(!ended.has(&name(0)), "it handed out nothing");
        for n in 0..=GROUPS_MAX {
            ended.add(name(n), vec![DeliveredRanges::default().with(7, vec![(1, 2)])]);
        }
        assert!(!ended.has(&name(0)) && ended.has(&name(1)));
        assert_eq!(ended.take(&name(1)).len(), 1);
        assert!(!ended.has(&name(1)));
        ended.remove_topic("t");
        assert!(!ended.has(&name(2)));
    }
}

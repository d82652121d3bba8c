//! When the curve is cut anew, and how. Pure: it is told what stands in the cluster.

use std::time::Duration;

use dunlin::space::{Load, Partition, RegionId};

use super::keys::{Cuts, Loads, RegionLoad, Seen};

/// Whether regions are cut anew as their loads are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Balance {
    /// How often processes say what they have to do.
    pub every: Duration,
    /// The curve is cut anew where a region takes more than this times the mean.
    pub tolerance: f64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { every: Duration::from_secs(1), tolerance: 1.25 }
    }
}

/// How the curve is to be cut from here on, where it is for this process to say so, all is known, and it helps.
pub(super) fn rebalanced(
    seen: &Seen,
    process: u64,
    current: &Partition,
    tolerance: f64,
) -> Option<Partition> {
    let decides = seen.processes.keys().next() == Some(&process);
    if !decides || seen.hold {
        return None;
    }
    let load_of = |region: RegionId| {
        let (owner, _) = seen.owners.get(&region)?;
        let loads = seen.loads.get(owner).filter(|loads| loads.version == current.version())?;
        let load = loads.regions.iter().find(|load| load.region == region.0)?;
        // Written by another process: a number that is none would spoil all cuts.
        (load.amount.is_finite() && load.amount >= 0.0).then(|| Load::from(load))
    };
    let loads: Option<Vec<Load>> = current.regions().iter().map(|(_, region)| load_of(*region)).collect();
    current.rebalance(&loads?, tolerance)
}

impl From<&RegionLoad> for Load {
    fn from(load: &RegionLoad) -> Load {
        Load { region: RegionId(load.region), amount: load.amount, quantiles: load.quantiles.clone() }
    }
}

impl Loads {
    pub(super) fn of(version: u64, loads: Vec<Load>) -> Loads {
        let load =
            |load: Load| RegionLoad { region: load.region.0, amount: load.amount, quantiles: load.quantiles };
        Loads { version, regions: loads.into_iter().map(load).collect() }
    }
}

impl From<&Partition> for Cuts {
    fn from(partition: &Partition) -> Cuts {
        let cuts = partition.regions().iter().map(|(first, region)| (*first, region.0)).collect();
        Cuts { version: partition.version(), cuts }
    }
}

impl Cuts {
    /// The partition, where it is newer than what is known and of the same regions.
    pub(super) fn after(&self, dimensions: usize, current: &Partition) -> Option<Partition> {
        let cuts = self.cuts.iter().map(|(first, region)| (*first, RegionId(*region))).collect();
        let partition = Partition::of(dimensions, self.version, cuts).ok()?;
        let names = |partition: &Partition| -> Vec<RegionId> {
            partition.regions().iter().map(|(_, region)| *region).collect()
        };
        (self.version > current.version() && names(&partition) == names(current)).then_some(partition)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Place;
    use super::*;

    const REGIONS: [RegionId; 2] = [RegionId(1), RegionId(2)];

    fn seen(loads: [(u64, f64); 2]) -> Seen {
        let place = || Place { address: "127.0.0.1:1".parse().unwrap(), url: String::new() };
        let one = |at: usize| {
            let (version, amount) = loads[at];
            let region = RegionLoad { region: REGIONS[at].0, amount, quantiles: Vec::new() };
            (at as u64 + 5, Loads { version, regions: vec![region] })
        };
        Seen {
            processes: [(5, place()), (6, place())].into(),
            owners: [(REGIONS[0], (5, 1)), (REGIONS[1], (6, 2))].into(),
            loads: [one(0), one(1)].into(),
            ..Seen::default()
        }
    }

    #[test]
    fn one_process_cuts_where_all_loads_of_this_cut_are_known_and_uneven() {
        let current = Partition::even(3, &REGIONS);
        let cut = |loads, process| rebalanced(&seen(loads), process, &current, 1.25);
        let moved = cut([(1, 900.0), (1, 100.0)], 5).unwrap();
        assert!(moved.version() == 2 && moved.regions()[1].0 < current.regions()[1].0);
        assert_eq!(cut([(1, 900.0), (1, 100.0)], 6), None, "it is not for this one");
        assert_eq!(cut([(1, 900.0), (0, 100.0)], 5), None, "one was measured before the cut");
        assert_eq!(cut([(1, 550.0), (1, 450.0)], 5), None, "that is even enough");
        assert_eq!(cut([(1, f64::NAN), (1, 450.0)], 5), None);
        let mut held = seen([(1, 900.0), (1, 100.0)]);
        held.hold = true;
        assert_eq!(rebalanced(&held, 5, &current, 1.25), None);
        let mut ownerless = seen([(1, 900.0), (1, 100.0)]);
        ownerless.owners.remove(&REGIONS[1]);
        assert_eq!(rebalanced(&ownerless, 5, &current, 1.25), None);
    }

    #[test]
    fn cuts_are_followed_only_where_they_are_newer_and_of_the_same_regions() {
        let current = Partition::even(3, &REGIONS);
        let next = Cuts { version: 2, cuts: vec![(0, 1), (77, 2)] };
        assert_eq!(next.after(3, &current).unwrap().regions(), [(0, REGIONS[0]), (77, REGIONS[1])]);
        assert_eq!(Cuts::from(&next.after(3, &current).unwrap()), next);
        assert_eq!(Cuts { version: 1, ..next.clone() }.after(3, &current), None);
        for cuts in [vec![(0, 1)], vec![(0, 1), (77, 3)], vec![(1, 1), (77, 2)], vec![]] {
            assert_eq!(Cuts { version: 2, cuts }.after(3, &current), None);
        }
    }
}

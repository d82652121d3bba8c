//! Selects the next lane of a class for a pool's workers. The workers of a pool serve all tenants, or only some.
//!
//! A class may have lanes of ten thousand tenants. For workers that serve only some tenants, only the lanes of these
//! tenants are therefore looked up.

use crate::lane::LaneRank;
use crate::state::SchedulerState;
use crate::worker::ServedSet;

impl SchedulerState {
    /// The ranked lanes of a class that belong to the tenants in `serves`.
    fn own(&self, serves: &ServedSet, class: u32) -> impl Iterator<Item = (LaneRank, u32)> {
        let lanes = serves.tenants.iter().filter_map(move |name| {
            let tenant = *self.tenant_at.get(name)?;
            self.lane_at.get(&(tenant, class)).copied()
        });
        lanes.filter_map(|lane| Some((self.lanes[lane as usize].rank?, lane)))
    }

    /// The next lane of a class for workers that serve `serves`. Returns `None` if no lane may be next.
    pub(crate) fn first_lane(&self, serves: &ServedSet, class: u32) -> Option<(LaneRank, u32)> {
        if serves.tenants.is_empty() {
            return self.classes[class as usize].ranked_lanes.get_min().copied();
        }
        self.own(serves, class).min()
    }

    /// The lanes after [`Self::first_lane`] in order of rank, at most `most`.
    pub(crate) fn lanes_after_first(
        &self,
        serves: &ServedSet,
        class: u32,
        most: usize,
    ) -> Vec<(LaneRank, u32)> {
        if serves.tenants.is_empty() {
            return self.classes[class as usize].ranked_lanes.iter().skip(1).take(most).copied().collect();
        }
        let mut own: Vec<_> = self.own(serves, class).collect();
        own.sort_unstable();
        own.into_iter().skip(1).take(most).collect()
    }

    /// The number of ready tasks of a class that workers with this served set may run.
    pub(crate) fn ready_for(&self, serves: &ServedSet, class: u32) -> u64 {
        if serves.tenants.is_empty() {
            return self.classes[class as usize].ready;
        }
        self.own(serves, class).map(|(_, lane)| u64::from(self.lanes[lane as usize].len)).sum()
    }
}

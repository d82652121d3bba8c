//! What of a class a pool's workers may be given: of all tenants, or of those alone that they are for.
//!
//! Who is for some tenants looks at their lanes, one by one, and not at all that stand in the class: there may be ten thousand tenants.

use crate::lane::Standing;
use crate::state::State;
use crate::worker::Serves;

impl State {
    /// The lanes of a class, of the tenants that workers are for, that stand.
    fn own(&self, serves: &Serves, class: u32) -> impl Iterator<Item = (Standing, u32)> {
        let lanes = serves.tenants.iter().filter_map(move |name| {
            let tenant = *self.tenant_at.get(name)?;
            self.lane_at.get(&(tenant, class)).copied()
        });
        lanes.filter_map(|lane| Some((self.lanes[lane as usize].standing?, lane)))
    }

    /// The lane of a class that is next for such workers.
    pub(crate) fn foremost(&self, serves: &Serves, class: u32) -> Option<(Standing, u32)> {
        if serves.tenants.is_empty() {
            return self.classes[class as usize].standing.get_min().copied();
        }
        self.own(serves, class).min()
    }

    /// Those behind it, so many at most.
    pub(crate) fn behind_foremost(&self, serves: &Serves, class: u32, most: usize) -> Vec<(Standing, u32)> {
        if serves.tenants.is_empty() {
            return self.classes[class as usize].standing.iter().skip(1).take(most).copied().collect();
        }
        let mut own: Vec<_> = self.own(serves, class).collect();
        own.sort_unstable();
        own.into_iter().skip(1).take(most).collect()
    }

    /// Tasks of a class that such workers may be given.
    pub(crate) fn ready_for(&self, serves: &Serves, class: u32) -> u64 {
        if serves.tenants.is_empty() {
            return self.classes[class as usize].ready;
        }
        self.own(serves, class).map(|(_, lane)| u64::from(self.lanes[lane as usize].len)).sum()
    }
}

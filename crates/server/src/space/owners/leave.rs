//! Hands the regions of a process over to other processes before the process ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dunlin::space::{Behaviour, RegionId};
use dunlin::topic::format_duration;
use dunlin_client::{Lease, interruptible};

use super::thread::{OwnershipError, OwnershipThread, WorldEvent};

/// How long a process that ends tries to hand over its regions.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(10);

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    /// Hands over all regions of this process, and reports the regions that remain.
    pub(super) fn leave(&mut self) {
        let why = self.hand_over_regions();
        let retired = self.memory.iter().filter(|(_, memory)| memory.owner).map(|(region, _)| region);
        let regions: BTreeSet<RegionId> = self.claims.keys().chain(retired).copied().collect();
        if !regions.is_empty() {
            let regions = regions.into_iter().collect();
            (self.on_event)(WorldEvent::NotHandedOver { regions, why });
        }
    }

    /// Hands over regions until none is left, or until the rest cannot be handed over. Returns why the rest cannot be
    /// handed over.
    fn hand_over_regions(&mut self) -> String {
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        while Instant::now() < deadline {
            let Some(lease) = self.lease.as_ref().map(Lease::handle) else {
                return "this process has no lease".to_owned();
            };
            if let Err(lost) = lease.check() {
                return lost.to_string();
            }
            let is_over = move || Instant::now() >= deadline || lease.check().is_err();
            match interruptible(is_over, || self.hand_over_once()) {
                Ok(true) => return "no other process stays in the world".to_owned(),
                Err(
                    error
                    @ (OwnershipError::Space(_) | OwnershipError::Lease(_) | OwnershipError::Registered),
                ) => return error.to_string(),
                Ok(false) | Err(_) => std::thread::sleep(self.config.poll_interval),
            }
        }
        format!("no other process has received a complete copy within {}", format_duration(LEAVE_TIME_MAX))
    }

    /// Does the next step for each region. Returns whether this process may end: each of its regions has an owner and a
    /// standby among the other processes, or no other process stays in the world.
    fn hand_over_once(&mut self) -> Result<bool, OwnershipError> {
        if !self.is_leaving {
            self.announce_leaving()?;
        }
        let (snapshot, process) = (self.run_once()?, self.config.process);
        let is_needed = !self.claims.is_empty() || snapshot.needs(process, self.config.standby);
        Ok(!is_needed || snapshot.heirs(process).next().is_none())
    }
}

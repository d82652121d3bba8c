//! Exchanges the loads of regions with other processes, and changes the partition: how the world is divided into
//! regions.
//!
//! The module `owners` decides which process changes the partition, and applies a change once it is stored in the
//! cluster.

use dunlin::space::{BalancePolicy, Behaviour, LoadReport, Partition};

use super::WorldRunner;
use crate::space::error::RunnerRefusal;
use crate::space::frame::SpaceFrame;
use crate::space::pace::monotonic_ns;

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    fn balance_policy(&self) -> Option<BalancePolicy> {
        self.config.balance.filter(|_| self.lockstep.is_none())
    }

    /// Sends the loads of this process's regions to all processes, every [`BalancePolicy::every_ticks`] ticks.
    pub(super) fn send_load_reports(&mut self) {
        let Some(balance) = self.balance_policy() else { return };
        if !self.ticks.is_multiple_of(balance.every_ticks.max(1)) {
            return;
        }
        let reports: Vec<LoadReport> = self.host.regions().map(|(_, region)| region.load_report()).collect();
        let (now_ns, mut bytes) = (monotonic_ns(), Vec::new());
        for report in reports {
            bytes.clear();
            report.encode(&mut bytes);
            self.links.send_all(&SpaceFrame::LoadReport(&bytes));
            self.load_reports.record(report, now_ns);
        }
    }

    pub(super) fn handle_load_report(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), RunnerRefusal> {
        let report = LoadReport::decode(bytes).map_err(|_| RunnerRefusal::Frame("an invalid weight"))?;
        self.load_reports.record(report, now_ns);
        Ok(())
    }

    pub(super) fn handle_partition(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), RunnerRefusal> {
        let partition =
            Partition::decode(D, bytes).map_err(|_| RunnerRefusal::Frame("an invalid partition"))?;
        self.host.set_partition(&partition, now_ns);
        Ok(())
    }

    /// A partition that distributes the loads better; `None` if the current partition is good enough, or balancing is
    /// off.
    pub fn next_partition(&self) -> Option<Partition> {
        self.load_reports.next(self.host.partition(), &self.balance_policy()?, monotonic_ns())
    }

    /// Applies a partition. Entities that belong to another region in this partition are handed over at once.
    pub fn set_partition(&mut self, partition: &Partition) {
        self.host.set_partition(partition, monotonic_ns());
    }

    /// Applies a partition, and sends it to all processes.
    pub fn broadcast_partition(&mut self, partition: &Partition) {
        let mut bytes = Vec::new();
        partition.encode(&mut bytes);
        self.links.send_all(&SpaceFrame::Partition(&bytes));
        self.set_partition(partition);
    }
}

//! Measures the loads of regions, and changes the partition.
//!
//! `owners` decides which process changes the partition. A change takes effect once it is stored in the cluster.

use dunlin::space::{BalancePolicy, Behaviour, LoadReport, Partition};

use super::Runner;
use crate::space::error::RunnerRefusal;
use crate::space::frame::SpaceFrame;
use crate::space::pace::monotonic_ns;

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    fn balance(&self) -> Option<BalancePolicy> {
        self.config.balance.filter(|_| self.lockstep.is_none())
    }

    /// Sends the loads of this process's regions to all processes, at an interval.
    pub(super) fn weigh(&mut self) {
        let Some(balance) = self.balance() else { return };
        if !self.ticks.is_multiple_of(balance.every_ticks.max(1)) {
            return;
        }
        let weights: Vec<LoadReport> = self.host.regions().map(|(_, region)| region.weight()).collect();
        let (now_ns, mut bytes) = (monotonic_ns(), Vec::new());
        for weight in weights {
            bytes.clear();
            weight.encode(&mut bytes);
            self.links.send_all(&SpaceFrame::LoadReport(&bytes));
            self.scales.hear(weight, now_ns);
        }
    }

    pub(super) fn hear_weight(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), RunnerRefusal> {
        let weight = LoadReport::decode(bytes).map_err(|_| RunnerRefusal::Frame("an invalid weight"))?;
        self.scales.hear(weight, now_ns);
        Ok(())
    }

    pub(super) fn hear_cut(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), RunnerRefusal> {
        let cut = Partition::decode(D, bytes).map_err(|_| RunnerRefusal::Frame("an invalid partition"))?;
        self.host.set_partition(&cut, now_ns);
        Ok(())
    }

    /// A partition that balances the loads better; `None` if the present one is good enough.
    pub fn next_cut(&self) -> Option<Partition> {
        self.scales.next(self.host.partition(), &self.balance()?, monotonic_ns())
    }

    /// Applies a partition. Entities that then belong to another region are handed over at once.
    pub fn cut(&mut self, partition: &Partition) {
        self.host.set_partition(partition, monotonic_ns());
    }

    /// Applies a partition, and sends it to all processes.
    pub fn cut_for_all(&mut self, partition: &Partition) {
        let mut bytes = Vec::new();
        partition.encode(&mut bytes);
        self.links.send_all(&SpaceFrame::Cut(&bytes));
        self.cut(partition);
    }
}

//! What there is to do in each region, told to all; and the curve cut anew.
//!
//! Who decides is not decided here: a cut counts once the cluster has it (`owners`).

use dunlin::space::{Balance, Behaviour, Partition, Weight};

use super::Runner;
use crate::space::error::Refused;
use crate::space::frame::Frame;
use crate::space::pace::monotonic_ns;

impl<const D: usize, B: Behaviour<D> + Clone> Runner<D, B> {
    fn balance(&self) -> Option<Balance> {
        self.config.balance.filter(|_| self.lockstep.is_none())
    }

    /// Says after a tick what there is to do here, if it is time for that.
    pub(super) fn weigh(&mut self) {
        let Some(balance) = self.balance() else { return };
        if !self.ticks.is_multiple_of(balance.every_ticks.max(1)) {
            return;
        }
        let weights: Vec<Weight> = self.host.regions().map(|(_, region)| region.weight()).collect();
        let (now_ns, mut bytes) = (monotonic_ns(), Vec::new());
        for weight in weights {
            bytes.clear();
            weight.encode(&mut bytes);
            self.links.send_all(&Frame::Weight(&bytes));
            self.scales.hear(weight, now_ns);
        }
    }

    pub(super) fn hear_weight(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), Refused> {
        let weight = Weight::decode(bytes).map_err(|_| Refused::Frame("a weight that cannot be read"))?;
        self.scales.hear(weight, now_ns);
        Ok(())
    }

    pub(super) fn hear_cut(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), Refused> {
        let cut = Partition::decode(D, bytes).map_err(|_| Refused::Frame("a partition that is none"))?;
        self.host.set_partition(&cut, now_ns);
        Ok(())
    }

    /// How the curve ought to be cut, as far as this process knows; nothing where all is well.
    pub fn next_cut(&self) -> Option<Partition> {
        self.scales.next(self.host.partition(), &self.balance()?, monotonic_ns())
    }

    /// The curve is cut so from here on. Who is in another's stretch is handed over at once.
    pub fn cut(&mut self, partition: &Partition) {
        self.host.set_partition(partition, monotonic_ns());
    }

    /// The same, and all others are told.
    pub fn cut_for_all(&mut self, partition: &Partition) {
        let mut bytes = Vec::new();
        partition.encode(&mut bytes);
        self.links.send_all(&Frame::Cut(&bytes));
        self.cut(partition);
    }
}

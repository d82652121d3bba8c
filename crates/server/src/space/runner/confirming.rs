//! Holds responses to clients back until the standbys of a region have confirmed the clients' changes.
//!
//! A change that was confirmed survives the loss of the region's owner. If the region stops running here before its
//! standbys have confirmed a change, the client that requested the change receives no response, and reports that the
//! outcome is not known.
//!
//! Limit: [`UNCONFIRMED_MAX`] responses in each region.

use std::collections::{BTreeMap, VecDeque};

use dunlin::space::{Behaviour, RegionId};

use super::WorldRunner;

/// Maximum number of responses of a region that wait. Beyond it, clients receive no response.
const UNCONFIRMED_MAX: usize = 16_384;

/// A function that responds to a client.
type Respond = Box<dyn FnOnce() + Send>;

/// For each region, the responses that wait, in the order of the changes. Each has the number of records that must be
/// confirmed first.
#[derive(Default)]
pub(super) struct UnconfirmedChanges(BTreeMap<RegionId, VecDeque<(u64, Respond)>>);

impl<const D: usize, B: Behaviour<D> + Clone> WorldRunner<D, B> {
    /// Calls `respond` when the region's standbys have confirmed all changes so far; at once if the region needs no
    /// standby.
    pub fn respond_when_confirmed(&mut self, region: RegionId, respond: impl FnOnce() + Send + 'static) {
        let records = self.host.records_so_far(region);
        if self.host.is_confirmed(region, records) {
            return respond();
        }
        let responses = self.unconfirmed.0.entry(region).or_default();
        if responses.len() < UNCONFIRMED_MAX {
            responses.push_back((records, Box::new(respond)));
        }
    }

    /// Drops the responses of a region that no longer runs here, also those that wait for the check of an id.
    pub(super) fn drop_responses(&mut self, region: RegionId) {
        self.unconfirmed.0.remove(&region);
        self.ids.remove_region(region);
    }

    /// Sends the responses whose changes are confirmed by now.
    pub(super) fn send_confirmed_responses(&mut self) {
        let host = &self.host;
        self.unconfirmed.0.retain(|region, responses| {
            let is_confirmed = |(records, _): &&(u64, Respond)| host.is_confirmed(*region, *records);
            let confirmed = responses.iter().take_while(is_confirmed).count();
            responses.drain(..confirmed).for_each(|(_, respond)| respond());
            !responses.is_empty()
        });
    }
}

//! An order book of single orders at one moment, from which a snapshot is written.

use dunlin_topic::FrozenState;

use super::queue::QueuedOrder;
use crate::ladder;
use crate::side::Side;
use crate::slab::FrozenSlab;
use crate::snapshot::{self, StateKind};

/// The part of an order book of single orders that is needed to write a snapshot. The sequence of the orders in each
/// queue is computed when the snapshot is written.
#[derive(Debug)]
pub(super) struct FrozenOrders {
    orders: FrozenSlab<QueuedOrder>,
}

impl FrozenOrders {
    pub(super) fn new(orders: FrozenSlab<QueuedOrder>) -> FrozenOrders {
        FrozenOrders { orders }
    }
}

impl FrozenState for FrozenOrders {
    fn write(&self, out: &mut Vec<u8>) {
        let mut orders: Vec<&QueuedOrder> = self.orders.iter().collect();
        orders.sort_unstable_by_key(|order| {
            (order.side, std::cmp::Reverse(ladder::key(order.side, order.price)), order.priority)
        });
        let bids = orders.partition_point(|order| order.side == Side::Bid);
        snapshot::write_head(out, StateKind::Orders, bids, orders.len() - bids);
        for order in orders {
            out.extend_from_slice(&order.id.to_le_bytes());
            out.extend_from_slice(&order.price.to_le_bytes());
            out.extend_from_slice(&order.size.to_le_bytes());
        }
    }
}

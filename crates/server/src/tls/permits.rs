//! Limits the TLS handshakes that run at the same time, in total and for each client address. Clients of one address
//! get at most half of all permits.
//!
//! Limits: one entry for each address with a running or waiting handshake. IPv6 addresses with the same first 64 bits
//! count as one address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::access::{ClientIp, network};

/// The permits for TLS handshakes, in total and for each address.
#[derive(Debug)]
pub(crate) struct HandshakePermits {
    all: Semaphore,
    /// Maximum number of permits that the clients of one address may have at the same time.
    address_max: usize,
    by_address: Mutex<HashMap<ClientIp, Arc<Semaphore>>>,
}

/// The permit for one handshake. Dropping the value returns the permit.
#[derive(Debug)]
pub(super) struct HandshakePermit<'a> {
    _one_of_all: Option<SemaphorePermit<'a>>,
    _one_of_address: Option<OwnedSemaphorePermit>,
    /// The handshake's share in the entry for its address. It must be dropped after the permits, and is therefore the
    /// last field: dropping the last share of an address removes the entry.
    _share: AddressShare<'a>,
}

/// A share of an address's entry in the map. The entry exists until its last share is dropped.
#[derive(Debug)]
struct AddressShare<'a> {
    permits: &'a HandshakePermits,
    address: ClientIp,
    semaphore: Arc<Semaphore>,
}

impl HandshakePermits {
    pub(crate) fn new(handshakes_max: usize) -> HandshakePermits {
        let handshakes_max = handshakes_max.clamp(1, Semaphore::MAX_PERMITS);
        HandshakePermits {
            all: Semaphore::new(handshakes_max),
            address_max: handshakes_max.div_ceil(2),
            by_address: Mutex::default(),
        }
    }

    /// Waits until a client of this address may begin a handshake.
    pub(super) async fn acquire(&self, address: ClientIp) -> HandshakePermit<'_> {
        let share = self.share_of(network(address));
        // Acquiring a permit fails only if the semaphore is closed, which never happens.
        let one_of_address = Arc::clone(&share.semaphore).acquire_owned().await.ok();
        let one_of_all = self.all.acquire().await.ok();
        HandshakePermit { _one_of_all: one_of_all, _one_of_address: one_of_address, _share: share }
    }

    fn share_of(&self, address: ClientIp) -> AddressShare<'_> {
        let semaphore = Arc::clone(
            self.entries().entry(address).or_insert_with(|| Arc::new(Semaphore::new(self.address_max))),
        );
        AddressShare { permits: self, address, semaphore }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ClientIp, Arc<Semaphore>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressShare<'_> {
    fn drop(&mut self) {
        let mut entries = self.permits.entries();
        // The two references are those of this share and of the map. No other share can appear, because the map is
        // locked.
        if Arc::strong_count(&self.semaphore) == 2 {
            entries.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn one_address_holds_at_most_half_of_the_handshake_permits() {
        let permits = HandshakePermits::new(4);
        let [one, other] = [1, 2].map(|last| Some(Ipv4Addr::new(10, 0, 0, last).into()));
        let first = permits.acquire(one).await;
        let second = permits.acquire(one).await;
        {
            let mut waiting = pin!(permits.acquire(one));
            poll_fn(|cx| {
                assert!(waiting.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            drop((permits.acquire(other).await, permits.acquire(other).await));
            drop(first);
            waiting.await;
        }
        assert_eq!(permits.entries().len(), 1);
        drop(second);
        assert!(permits.entries().is_empty());
    }
}

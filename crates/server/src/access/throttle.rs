//! Delays logins after repeated failures, so that passwords cannot be guessed.
//!
//! Failures are counted for each pair of address and user, and for each address. After the fifth failure of a pair, or
//! the twentieth of an address, further logins are refused for a while, without a check and even with the right
//! password. This delay is 1 second at first, and each further failure doubles it, up to 64 seconds.
//!
//! A successful login clears the failures of its pair, but not those of its address. If a user has logged in from an
//! address with a password before, only the pair's failures delay that user there. Other users behind the same proxy
//! therefore cannot lock this user out. A valid token is never delayed.
//!
//! Limits: [`ENTRIES_MAX`] pairs and addresses; above this number, the oldest are forgotten. IPv6 addresses with the
//! same first 64 bits count as one address.

use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum number of pairs and addresses whose failures are remembered.
const ENTRIES_MAX: usize = 16_384;
/// For each pair of address and user, this many failures cause no delay.
const PAIR_FAILURES_FREE: u32 = 4;
/// For each address, this many failures cause no delay.
const ADDRESS_FAILURES_FREE: u32 = 19;
const DELAY_NS_MIN: u64 = 1_000_000_000;
const DELAY_NS_MAX: u64 = 64_000_000_000;
/// The failures of a pair or address are forgotten after this time without a new failure.
const FAILURES_EXPIRE_NS: u64 = 600_000_000_000;

/// The IP address from which a login is attempted; `None` over a Unix socket.
pub(crate) type ClientIp = Option<IpAddr>;

/// The failed logins of each address and of each pair of address and user.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: HashMap<(ClientIp, Option<Box<str>>), Failures>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    /// Time of the last failure or success, ns by the monotonic clock.
    last_ns: u64,
    /// Whether the user has logged in from this address with a password.
    is_known: bool,
}

impl Failures {
    /// The time until the next login may be attempted, ns. The first `free` failures cause no delay.
    fn delay_ns(self, free: u32, now_ns: u64) -> u64 {
        let Some(doublings) = self.count.checked_sub(free + 1) else { return 0 };
        let doubled_ns = DELAY_NS_MIN
            .checked_shl(doublings)
            .filter(|ns| *ns > 0)
            .unwrap_or(DELAY_NS_MAX)
            .min(DELAY_NS_MAX);
        self.last_ns.saturating_add(doubled_ns).saturating_sub(now_ns)
    }
}

impl Throttle {
    /// The time until this user may attempt a login from this address, ns; 0 if no delay is left.
    pub(crate) fn delay_ns(&self, from: ClientIp, user: &str, now_ns: u64) -> u64 {
        let from = network(from);
        let failures_of = |user: Option<&str>| self.failures.get(&(from, user.map(Into::into)));
        let pair = failures_of(Some(user));
        let pair_delay_ns = pair.map_or(0, |failures| failures.delay_ns(PAIR_FAILURES_FREE, now_ns));
        let address_delay_ns =
            || failures_of(None).map_or(0, |failures| failures.delay_ns(ADDRESS_FAILURES_FREE, now_ns));
        if pair.is_some_and(|pair| pair.is_known) {
            pair_delay_ns
        } else {
            pair_delay_ns.max(address_delay_ns())
        }
    }

    pub(crate) fn record_failure(&mut self, from: ClientIp, user: &str, now_ns: u64) {
        let from = network(from);
        for user in [Some(user.into()), None] {
            self.evict_oldest(now_ns);
            let new_entry = Failures { count: 0, last_ns: now_ns, is_known: false };
            let failures = self.failures.entry((from, user)).or_insert(new_entry);
            if now_ns.saturating_sub(failures.last_ns) > FAILURES_EXPIRE_NS {
                failures.count = 0;
            }
            failures.count = failures.count.saturating_add(1);
            failures.last_ns = now_ns;
        }
    }

    /// Records a successful login with a password.
    pub(crate) fn record_password_login(&mut self, from: ClientIp, user: &str, now_ns: u64) {
        self.evict_oldest(now_ns);
        let new_entry = Failures { count: 0, last_ns: now_ns, is_known: true };
        self.failures.insert((network(from), Some(user.into())), new_entry);
    }

    /// Records a successful login without a password.
    pub(crate) fn record_other_login(&mut self, from: ClientIp) {
        if !self.failures.is_empty() {
            self.failures.remove(&(network(from), Some("".into())));
        }
    }

    fn evict_oldest(&mut self, now_ns: u64) {
        if self.failures.len() < ENTRIES_MAX {
            return;
        }
        self.failures.retain(|_, failures| now_ns.saturating_sub(failures.last_ns) <= FAILURES_EXPIRE_NS);
        if self.failures.len() < ENTRIES_MAX {
            return;
        }
        // Removes half of the entries at once, so that in a flood of failed logins, only few of them cause a scan of
        // all entries.
        let mut times: Vec<u64> = self.failures.values().map(|failures| failures.last_ns).collect();
        let (_, middle, _) = times.select_nth_unstable(ENTRIES_MAX / 2);
        let middle = *middle;
        self.failures.retain(|_, failures| failures.last_ns > middle);
    }
}

/// The part of an address that identifies a client here: the whole IPv4 address, or the first 64 bits of an IPv6
/// address.
pub(crate) fn network(from: ClientIp) -> ClientIp {
    from.map(|address| match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        v4 => v4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn address(text: &str) -> ClientIp {
        Some(text.parse().unwrap())
    }

    #[test]
    fn delay_doubles_from_the_fifth_failed_login_on() {
        let mut throttle = Throttle::default();
        let from = address("10.0.0.1");
        for (failures, wait) in [(1, 0), (4, 0), (5, 1), (6, 2), (7, 4), (11, 64), (30, 64), (90, 64)] {
            let mut throttle = Throttle::default();
            for _ in 0..failures {
                throttle.record_failure(from, "ana", 0);
            }
            assert_eq!(throttle.delay_ns(from, "ana", 0), wait * SECOND, "{failures}");
        }
        (0..6).for_each(|_| throttle.record_failure(from, "ana", 0));
        assert_eq!(throttle.delay_ns(from, "ana", SECOND / 2), 3 * SECOND / 2);
        assert_eq!(throttle.delay_ns(from, "bob", 0), 0, "another user");
        assert_eq!(throttle.delay_ns(address("10.0.0.2"), "ana", 0), 0, "another address");
        throttle.record_password_login(from, "ana", 0);
        assert_eq!(throttle.delay_ns(from, "ana", 0), 0);
    }

    #[test]
    fn known_user_is_delayed_only_by_its_own_failed_logins() {
        let mut throttle = Throttle::default();
        let from = address("10.0.0.1");
        throttle.record_password_login(from, "ana", 0);
        (0..60).for_each(|number| throttle.record_failure(from, &format!("user{number}"), 0));
        assert_eq!(throttle.delay_ns(from, "ana", 0), 0);
        assert_eq!(throttle.delay_ns(from, "bob", 0), 64 * SECOND, "nobody knows this user there");
        (0..5).for_each(|_| throttle.record_failure(from, "ana", 0));
        assert_eq!(throttle.delay_ns(from, "ana", 0), SECOND, "its password is guessed no faster");
    }

    #[test]
    fn failed_logins_of_many_users_delay_the_whole_address() {
        let mut throttle = Throttle::default();
        let (one, same_network) = (address("2001:db8:1:2::3"), address("2001:db8:1:2:ffff::4"));
        (0..20).for_each(|number| throttle.record_failure(one, &format!("user{number}"), 0));
        assert_eq!(throttle.delay_ns(same_network, "ana", 0), SECOND);
        assert_eq!(throttle.delay_ns(address("2001:db8:1:3::3"), "ana", 0), 0);
    }

    #[test]
    fn failed_logins_expire_and_their_number_is_bounded() {
        let mut throttle = Throttle::default();
        let from = address("10.0.0.1");
        (0..9).for_each(|_| throttle.record_failure(from, "ana", 0));
        throttle.record_failure(from, "ana", FAILURES_EXPIRE_NS + SECOND);
        assert_eq!(throttle.delay_ns(from, "ana", FAILURES_EXPIRE_NS + SECOND), 0);
        for number in 0..3 * ENTRIES_MAX as u64 {
            throttle.record_failure(from, &format!("user{number}"), number);
        }
        assert!(throttle.failures.len() <= ENTRIES_MAX);
        assert!(throttle.delay_ns(from, "ana", 3 * ENTRIES_MAX as u64) > 0, "the address is known still");
    }
}

//! Who the client is, and what it may still do when that has changed.

use std::sync::Arc;

use dunlin::topic::{Filter, Log};
use dunlin::wire::ErrorCode;
use dunlin::wire::nats::{self, Connect, Operation};
use dunlin::{Refused, TopicError};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::Full;
use crate::access::{Account, Credentials, Login, Pending};
use crate::shared::LOGIN;

/// How far the client has come in proving who it is.
#[derive(Debug, Default)]
pub(super) enum Entrance {
    /// It has not said, or nobody asks.
    #[default]
    Unasked,
    Asked(Pending),
    Known(Arc<Login>),
}

/// What clients take for wrong credentials.
const VIOLATION: &str = "Authorization Violation";

impl Session {
    /// Whether the client is known, or nobody wants to know.
    pub(super) fn is_let_in(&self) -> bool {
        self.shared.access.is_none() || matches!(self.entrance, Entrance::Known(_))
    }

    /// Whether CONNECT waits for its credentials to be checked.
    pub(super) fn is_at_the_door(&self) -> bool {
        matches!(self.entrance, Entrance::Asked(_))
    }

    pub(super) fn login(&self) -> Option<&Arc<Login>> {
        match &self.entrance {
            Entrance::Known(login) => Some(login),
            _ => None,
        }
    }

    /// The first operation is CONNECT, which comes here again when its credentials are checked. Whether the client is in.
    pub(super) fn enter(&mut self, operation: &Operation<'_>, begins: usize) -> Result<bool, Full> {
        let Operation::Connect(json) = operation else {
            self.fail(VIOLATION);
            return Ok(false);
        };
        if let (Entrance::Unasked, Some(access)) = (&self.entrance, &self.shared.access) {
            let credentials = match Connect::parse(json) {
                Ok(connect) => {
                    let nonce = access.nonce(self.id).unwrap_or_default();
                    Credentials::of_connect(&connect, &nonce)
                }
                Err(violation) => {
                    self.fail(&violation.to_string());
                    return Ok(false);
                }
            };
            let credentials = credentials.or_certificate(self.stream.client_certificate().as_ref());
            let told = (Arc::clone(&self.waiter), LOGIN);
            let pending = access.log_in_waking(credentials, "", self.stream.peer_ip(), told);
            self.entrance = Entrance::Asked(pending);
        }
        let Entrance::Asked(pending) = &self.entrance else { return Ok(true) };
        match pending.take() {
            None => return Err(Full { from: begins }),
            Some(Ok(login)) => {
                self.node = login.node(&self.shared.node);
                self.entrance = Entrance::Known(login);
                self.set_step();
                return Ok(true);
            }
            Some(Err(Refused { code: ErrorCode::Limit, .. })) => {
                self.fail("maximum account active connections exceeded");
            }
            Some(Err(Refused { code: ErrorCode::RateLimit, numbers: [retry_after_ms, ..], .. })) => {
                // No text of nats-server's for wrong credentials, after which client libraries would give up.
                let seconds = retry_after_ms.div_ceil(1_000);
                self.fail(&format!("too many failed logins, try again in {seconds} s"));
            }
            Some(Err(_)) => self.fail(VIOLATION),
        }
        Ok(false)
    }

    /// The user, where it counts how much they publish.
    #[inline]
    pub(super) fn metered(&self) -> Option<&Account> {
        self.login().map(|login| &**login.account()).filter(|account| account.is_metered())
    }

    /// The users file has changed: ends what is no longer allowed, and says why.
    pub(super) fn users_changed(&mut self) {
        let Some(login) = self.login() else { return };
        if self.is_closing() {
            return;
        }
        if login.standing().is_err() {
            return self.fail("User Authentication Revoked");
        }
        self.set_step();
        // What is published next is looked up, and asked about, anew.
        self.targets = Default::default();
        self.opening_is_stale = !self.opening.is_empty();
        let numbers: Vec<u32> = self.subscriptions.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.recheck(number));
    }

    /// Ends the subscription where the client may not have it any more.
    pub(super) fn recheck(&mut self, number: u32) {
        if self.recheck_subscription(number).is_err()
            && let Some(subscription) = self.subscriptions.get(&number)
        {
            let text = not_to_subscribe(&subscription.subject(), subscription.queue.as_deref());
            nats::refuse(&mut self.outbound.control, &text);
            self.end_subscription(number);
        }
    }

    fn recheck_subscription(&mut self, number: u32) -> Result<(), TopicError> {
        let Some(subscription) = self.subscriptions.get(&number) else { return Ok(()) };
        if is_inbox(subscription.pattern.as_str()) {
            return Ok(());
        }
        let readable = self.node.readable_now(&subscription.pattern)?;
        let of = |log: &Arc<Log>| {
            let found = readable.iter().find(|(other, _)| Arc::ptr_eq(other, log));
            found.map(|(_, filter)| filter.clone())
        };
        for number in &subscription.channels {
            let Some(channel) = self.channels.get_mut(number) else { continue };
            let filter = of(channel.cursor.log()).unwrap_or_else(|| Some(Filter::new(|_| false)));
            // Nobody follows a state through this door.
            let _ = channel.cursor.set_filter(filter);
        }
        let members = subscription.members.iter().filter_map(|number| self.members.get(number));
        for member in members {
            self.node.may_join(member.topic(), member.group())?;
        }
        Ok(())
    }
}

/// As nats-server says it.
pub(super) fn not_to_subscribe(subject: &str, queue: Option<&str>) -> String {
    match queue {
        Some(queue) => {
            format!("Permissions Violation for Subscription to \"{subject}\" using queue \"{queue}\"")
        }
        None => format!("Permissions Violation for Subscription to \"{subject}\""),
    }
}

/// Why a subscription is refused or ends, for any other reason. Client libraries know permission violations: they report them
/// to the program and go on. They close for good at a text that they do not know.
pub(super) fn subscription_refused(subject: &str, queue: Option<&str>, why: &str) -> String {
    format!("{}: {why}", not_to_subscribe(subject, queue))
}

/// Why a record is refused, for any other reason than a missing permission. See [`subscription_refused`].
pub(super) fn publish_refused(subject: &[u8], why: &str) -> String {
    format!("{}: {why}", not_to_publish(subject))
}

/// As nats-server says it.
pub(super) fn not_to_publish(subject: &[u8]) -> String {
    format!("Permissions Violation for Publish to \"{}\"", String::from_utf8_lossy(subject))
}

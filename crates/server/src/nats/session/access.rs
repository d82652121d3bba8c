//! Logs a client in, and checks its subscriptions again when the users file has changed.

use std::sync::Arc;

use dunlin::topic::{Filter, MemoryCharge};
use dunlin::wire::ErrorCode;
use dunlin::wire::nats::{self, Connect, NatsOperation};
use dunlin::{Refused, TopicError};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::RetryFrom;
use crate::access::{Account, Credentials, Login, PendingLogin};
use crate::shared::LOGIN;

/// The progress of the login of a NATS connection.
#[derive(Debug, Default)]
pub(super) enum LoginState {
    /// The client has sent no credentials, or the node requires none.
    #[default]
    NoCredentials,
    Checking(PendingLogin),
    LoggedIn(Arc<Login>),
}

/// The error text by which client libraries recognize wrong credentials.
pub(super) const VIOLATION: &str = "Authorization Violation";

impl Session {
    /// Whether the client is logged in, or the node requires no login.
    pub(super) fn is_logged_in(&self) -> bool {
        self.shared.access.is_none() || matches!(self.login_state, LoginState::LoggedIn(_))
    }

    pub(super) fn is_login_pending(&self) -> bool {
        matches!(self.login_state, LoginState::Checking(_))
    }

    pub(super) fn login(&self) -> Option<&Arc<Login>> {
        match &self.login_state {
            LoginState::LoggedIn(login) => Some(login),
            _ => None,
        }
    }

    /// Checks the credentials in CONNECT, which must be the first operation. Until the result is known, CONNECT stays
    /// in the buffer of unread bytes and is handled again later. Returns whether the client is logged in.
    pub(super) fn log_in(&mut self, operation: &NatsOperation<'_>, offset: usize) -> Result<bool, RetryFrom> {
        let NatsOperation::Connect(json) = operation else {
            self.fail(VIOLATION);
            return Ok(false);
        };
        if let (LoginState::NoCredentials, Some(access)) = (&self.login_state, &self.shared.access) {
            let credentials = match Connect::parse(json) {
                Ok(connect) => {
                    let nonce = access.nonce(self.id).unwrap_or_default();
                    Credentials::from_connect(&connect, &nonce)
                }
                Err(violation) => {
                    self.fail(&violation.to_string());
                    return Ok(false);
                }
            };
            let credentials = credentials.or_certificate(self.stream.client_certificate().as_ref());
            let wakeup = (Arc::clone(&self.waiter), LOGIN);
            let pending = access.start_login(credentials, "", self.stream.peer_ip(), wakeup);
            self.login_state = LoginState::Checking(pending);
        }
        let LoginState::Checking(pending) = &self.login_state else { return Ok(true) };
        match pending.take() {
            None => return Err(RetryFrom { from: offset }),
            Some(Ok(login)) => {
                self.node = login.node(&self.shared.node);
                self.login_state = LoginState::LoggedIn(login);
                self.unread_charge = MemoryCharge::none(self.node.connection_budget());
                self.set_batch_limits();
                return Ok(true);
            }
            Some(Err(Refused { code: ErrorCode::Limit, .. })) => {
                self.fail("maximum account active connections exceeded");
            }
            Some(Err(Refused { code: ErrorCode::RateLimit, numbers: [retry_after_ms, ..], .. })) => {
                // This text differs from nats-server's text for wrong credentials, because client libraries stop
                // reconnecting after nats-server's text.
                let seconds = retry_after_ms.div_ceil(1_000);
                self.fail(&format!("too many failed logins, try again in {seconds} s"));
            }
            Some(Err(_)) => self.fail(VIOLATION),
        }
        Ok(false)
    }

    /// The user's account; `None` if the user's publish rate has no limit.
    #[inline]
    pub(super) fn metered_account(&self) -> Option<&Account> {
        self.login().map(|login| &**login.account()).filter(|account| account.is_metered())
    }

    /// Checks the client's access again after the users file has changed. Ends the subscriptions for which the user has
    /// lost the permission, and sends an error for each.
    pub(super) fn on_users_changed(&mut self) {
        let Some(login) = self.login() else { return };
        if self.is_closing() {
            return;
        }
        if login.check_validity().is_err() {
            return self.fail("User Authentication Revoked");
        }
        self.set_batch_limits();
        // Empties the cache of the subjects' topics, so that the next records look up topics and permissions again.
        self.targets = Default::default();
        self.opening_is_stale = !self.opening.is_empty();
        let numbers: Vec<u32> = self.subscriptions.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.recheck_or_end(number));
    }

    /// Applies the user's current permissions to the subscription. If they no longer allow the subscription, ends it
    /// and sends an error.
    pub(super) fn recheck_or_end(&mut self, number: u32) {
        if self.recheck_subscription(number).is_err()
            && let Some(subscription) = self.subscriptions.get(&number)
        {
            let text = subscribe_violation(&subscription.subject(), subscription.queue.as_deref());
            nats::put_error(&mut self.outbound.control, &text);
            self.end_subscription(number);
        }
    }

    fn recheck_subscription(&mut self, number: u32) -> Result<(), TopicError> {
        let Some(subscription) = self.subscriptions.get(&number) else { return Ok(()) };
        if is_inbox(subscription.pattern.as_str()) {
            return Ok(());
        }
        let readable = self.node.readable_logs(&subscription.pattern)?;
        self.delivery.add(subscription.channels.len() + readable.len());
        // New topics are handled first, so that a topic that is both new and newly readable is read from its first
        // record.
        self.read_new_logs();
        let Some(subscription) = self.subscriptions.get(&number) else { return Ok(()) };
        if let Some(starting) = self.starting.as_mut().filter(|starting| starting.number == number) {
            let (node, pattern) = (&self.node, &subscription.pattern);
            starting.logs.retain_mut(|(log, filter)| match node.readable_filter(pattern, log) {
                Some(now) => {
                    *filter = now;
                    true
                }
                None => false,
            });
        }
        for number in &subscription.channels {
            let Some(channel) = self.channels.get_mut(number) else { continue };
            let filter = self.node.readable_filter(&subscription.pattern, channel.cursor.log());
            let filter = filter.unwrap_or_else(|| Some(Filter::new(|_| false)));
            // Setting a filter fails only for a cursor that follows a state. NATS subscriptions have no such cursors.
            let _ = channel.cursor.set_filter(filter);
        }
        let members = subscription.members.iter().filter_map(|number| self.members.get(number));
        for member in members {
            self.node.may_join(member.topic(), member.group())?;
        }
        self.read_granted_logs(number, readable);
        Ok(())
    }
}

/// nats-server's error text for a subscription without permission.
pub(super) fn subscribe_violation(subject: &str, queue: Option<&str>) -> String {
    match queue {
        Some(queue) => {
            format!("Permissions Violation for Subscription to \"{subject}\" using queue \"{queue}\"")
        }
        None => format!("Permissions Violation for Subscription to \"{subject}\""),
    }
}

/// The error text for a subscription that is refused or ended for a reason other than a missing permission. It begins
/// like nats-server's text for a missing permission: client libraries report such an error and continue, but close the
/// connection for good after an unknown text.
pub(super) fn subscription_error(subject: &str, queue: Option<&str>, why: &str) -> String {
    format!("{}: {why}", subscribe_violation(subject, queue))
}

/// The error text for a record that is refused for a reason other than a missing permission. It begins like
/// nats-server's text for a missing permission, for the same reason as in [`subscription_error`].
pub(super) fn publish_error(subject: &[u8], why: &str) -> String {
    format!("{}: {why}", publish_violation(subject))
}

/// nats-server's error text for a record without permission.
pub(super) fn publish_violation(subject: &[u8]) -> String {
    format!("Permissions Violation for Publish to \"{}\"", String::from_utf8_lossy(subject))
}

//! Handles a client's login. After the users file has changed, also checks the client's subscriptions, publishers,
//! memberships and workers again.

use std::collections::HashSet;
use std::sync::Arc;

use dunlin::topic::{Cursor, Filter, Log, MemoryCharge, Pattern};
use dunlin::wire::{ErrorCode, Hello, NO_PRODUCER};
use dunlin::{AccessExtent, Action, Inbox, LogsToRead, Refused};

use super::reading::HandleOutcome;
use super::{Phase, Session};
use crate::access::{Credentials, Login, MeteredCommand, PendingLogin, pause};
use crate::shared::LOGIN;

/// The state of the login on a connection with Dunlin's own protocol.
#[derive(Debug, Default)]
pub(super) enum LoginState {
    /// The client has not sent credentials yet, or the node requires none.
    #[default]
    NoCredentials,
    Checking(PendingLogin),
    LoggedIn(Arc<Login>),
    /// The client is another node of the cluster, which has shown its certificate.
    Node,
}

/// Prefix of the names under which nodes connect. The prefix alone gives a client no rights.
pub(crate) const NODE_CLIENT: &str = "$node";
/// The only tenant of a node that has no users file.
const TENANT: &str = "default";

impl Session {
    /// Handles HELLO. While the credentials are checked, HELLO stays in `unread`, and is handled again when the result
    /// is known.
    pub(super) fn hello(&mut self, hello: Hello<'_>) -> HandleOutcome {
        self.session_trace.set_client_name(hello.client);
        // Nodes that share topics without a cluster have no certificates, and are known only by their names.
        let is_node = matches!(self.login_state, LoginState::Node)
            || self.shared.cluster.get().is_none() && self.node.ownership().is_some();
        // Records from a node are not checked again. In a cluster, a node's name is therefore not enough: the client
        // must also have shown a node's certificate.
        self.from_node = is_node && hello.client.starts_with(NODE_CLIENT);
        if self.from_node {
            self.node_connection = Some(self.shared.node_connections.register(hello.client, self.id));
        }
        if let LoginState::Node = self.login_state {
            self.complete_login();
            return HandleOutcome::Handled;
        }
        let Some(access) = &self.shared.access else {
            if !hello.tenant.is_empty() && hello.tenant != TENANT {
                self.fail(&Refused::new(ErrorCode::TenantUnknown, hello.tenant));
            } else {
                self.complete_login();
            }
            return HandleOutcome::Handled;
        };
        if let LoginState::NoCredentials = self.login_state {
            let credentials = Credentials::from_hello(hello.credentials);
            let credentials = credentials.or_certificate(self.stream.client_certificate().as_ref());
            let wakeup = (Arc::clone(&self.waiter), LOGIN);
            let pending = access.start_login(credentials, hello.tenant, self.stream.peer_ip(), wakeup);
            self.login_state = LoginState::Checking(pending);
        }
        let LoginState::Checking(pending) = &self.login_state else { return HandleOutcome::Handled };
        match pending.take() {
            None => return HandleOutcome::Blocked,
            Some(Ok(login)) => {
                self.node = login.node(&self.shared.node);
                self.login_state = LoginState::LoggedIn(login);
                self.complete_login();
            }
            Some(Err(refused)) => self.fail(&refused),
        }
        HandleOutcome::Handled
    }

    /// Completes a login: from now on, the connection's memory is charged to the client's tenant. Sends WELCOME.
    fn complete_login(&mut self) {
        self.unread_charge = MemoryCharge::none(self.node.connection_budget());
        self.inbox = Inbox::new(self.node.clone(), self.id);
        self.send_welcome();
    }

    pub(super) fn is_login_pending(&self) -> bool {
        matches!((&self.phase, &self.login_state), (Phase::Hello, LoginState::Checking(_)))
    }

    pub(super) fn admit_publish(&self, records: u32, bytes: usize) -> Result<(), Refused> {
        match &self.login_state {
            LoginState::LoggedIn(login) => login.account().admit_publish(records.into(), bytes as u64),
            _ => Ok(()),
        }
    }

    pub(super) fn admit_command(&self, command: &impl MeteredCommand, bytes: usize) -> Result<(), Refused> {
        match &self.login_state {
            LoginState::LoggedIn(login) => login.account().admit_command(command, bytes as u64),
            _ => Ok(()),
        }
    }

    /// Returns the producer id that topics store for this client's producer `id`. Different users get different stored
    /// ids for the same `id`.
    pub(super) fn producer(&self, id: u64) -> u64 {
        match &self.login_state {
            LoginState::LoggedIn(login) if id != NO_PRODUCER => login.account().producer(id),
            _ => id,
        }
    }

    /// Pauses reading from the client, which has exceeded its publish rate.
    pub(super) fn slow_down(&mut self, refused: &Refused) {
        if let Some(pause) = pause(refused)
            && !self.publishing.is_held
        {
            self.publishing.is_held = true;
            self.timer.set_ms(pause.as_millis() as u32);
        }
    }

    /// Ends what the user may no longer use, such as subscriptions, and sends the reasons to the client. Call this
    /// after the users file has changed.
    pub(super) fn on_users_changed(&mut self) {
        let LoginState::LoggedIn(login) = &self.login_state else { return };
        if self.is_closing() {
            return;
        }
        if let Err(refused) = login.check_validity() {
            return self.fail(&refused);
        }
        self.opening_is_stale = !self.opening.is_empty();
        self.recheck_subscriptions();
        self.recheck_publishers();
        self.recheck_members();
        self.recheck_workers();
    }

    fn recheck_subscriptions(&mut self) {
        let numbers: Vec<u32> = self.subscriptions.keys().copied().collect();
        for number in numbers {
            if let Err(refused) = self.recheck_subscription(number) {
                self.end_subscription(number, &refused);
            }
        }
    }

    pub(super) fn recheck_subscription(&mut self, number: u32) -> Result<(), Refused> {
        let Some(subscription) = self.subscriptions.get(&number) else { return Ok(()) };
        if self.inbox.contains(subscription.pattern.as_str()) {
            return Ok(());
        }
        self.finish_search(number);
        let Some(subscription) = self.subscriptions.get(&number) else { return Ok(()) };
        let readable =
            self.node.readable_logs(&subscription.pattern).map_err(|error| Refused::from(&error))?;
        self.delivery.add(subscription.channels.len() + readable.len());
        // New topics are queued first, so that a topic that is both new and newly readable is read from its first
        // record.
        self.take_new_logs(number);
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return Ok(()) };
        let (node, pattern) = (&self.node, &subscription.pattern);
        let filter_of = |log: &Log| node.readable_filter(pattern, log);
        subscription.unannounced.retain_mut(|(log, filter)| match filter_of(log) {
            Some(now) => {
                *filter = now;
                true
            }
            None => false,
        });
        let restrict = |cursor: &mut Cursor| {
            let filter = filter_of(cursor.log()).unwrap_or_else(|| Some(Filter::new(|_| false)));
            if cursor.set_filter(filter) {
                return Ok(());
            }
            let text = format!("no permission to follow the whole state of {:?}", cursor.name().topic);
            Err(Refused::new(ErrorCode::Forbidden, text))
        };
        for channel in &subscription.channels {
            if let Some(channel) = self.channels.get_mut(channel) {
                restrict(&mut channel.cursor)?;
            }
        }
        for held in self.held.iter_mut().filter(|held| held.subscription == number) {
            restrict(&mut held.cursor)?;
        }
        self.read_granted_logs(number, readable);
        Ok(())
    }

    /// Starts to read those `readable` logs that the user could not read before. The subscription receives only the
    /// records that are appended from now on.
    fn read_granted_logs(&mut self, number: u32, readable: LogsToRead) {
        if self.opening.iter().any(|opening| opening.subscription == number) {
            // When the pending channels are open, the subscription is checked again.
            self.opening_is_stale = true;
            return;
        }
        let subscription = self.subscriptions.get_mut(&number);
        let Some(subscription) = subscription.filter(|state| state.newcomers.is_some()) else { return };
        let channels = subscription.channels.iter().filter_map(|channel| self.channels.get(channel));
        let mut read: HashSet<u64> = channels.map(|channel| channel.cursor.log().number()).collect();
        read.extend(subscription.unannounced.iter().map(|(log, _)| log.number()));
        let held = self.held.iter().filter(|held| held.subscription == number);
        read.extend(held.map(|held| held.cursor.log().number()));
        for (log, filter) in readable {
            if !read.contains(&log.number()) {
                subscription.newly_readable.insert(log.number());
                subscription.unannounced.push_back((log, filter));
            }
        }
        if !subscription.unannounced.is_empty() {
            self.announcing.push_back(number);
        }
    }

    fn recheck_publishers(&mut self) {
        let mut publishing = std::mem::take(&mut self.publishing);
        let refused = publishing.recheck(|requested, owned| {
            self.node.may(Action::Publish, requested).map_err(|error| Refused::from(&error))?;
            Ok(self.checks_each_record(owned))
        });
        self.publishing = publishing;
        for (number, refused) in refused {
            self.refuse_publisher(number, &refused);
        }
    }

    /// Whether the client may publish only to some of the topic's subjects. The subject of each record must then be
    /// checked.
    pub(super) fn checks_each_record(&self, owned: &Pattern) -> bool {
        self.node.may(Action::Publish, owned) != Ok(AccessExtent::All)
    }

    fn recheck_members(&mut self) {
        let numbers: Vec<u32> = self.members.keys().copied().collect();
        for number in numbers {
            let Some(member) = self.members.get(&number) else { continue };
            if let Err(error) = self.node.may_join(member.group_member.topic(), member.group_member.group()) {
                self.end_membership(number, &Refused::from(&error));
            }
        }
    }
}

//! The context of an HTTP request: its connection, and the user who sent it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::topic::Topic;
use dunlin::{Node, Refused, SubjectRule};

use super::socket::Upgrade;
use crate::access::{Login, MeteredCommand, RequestLoginCache, slow_down};
use crate::config::ServerLimits;
use crate::publishes::PublishedTopics;
use crate::shared::SharedServer;
use crate::tls::ClientCertificate;

/// The connection and the user of an HTTP request. Clones are cheap.
#[derive(Debug, Clone)]
pub(super) struct Context {
    connection: Arc<ConnectionContext>,
    user: Option<User>,
}

#[derive(Debug)]
struct ConnectionContext {
    shared: Arc<SharedServer>,
    peer: Option<SocketAddr>,
    is_local: bool,
    /// Why every request except health probes is refused; `None` if the connection was admitted.
    refusal: Option<Refused>,
    logins: RequestLoginCache,
    /// The WebSocket that the connection becomes after the response; `None` if it stays an HTTP connection.
    upgrade: Mutex<Option<Upgrade>>,
    publishes: PublishedTopics,
}

/// The user of a request: the user's login, and the node with the user's permissions.
#[derive(Debug, Clone)]
struct User {
    login: Arc<Login>,
    node: Node,
}

impl Context {
    pub(super) fn new(
        shared: Arc<SharedServer>,
        peer: Option<SocketAddr>,
        is_local: bool,
        refusal: Option<Refused>,
        certificate: Option<ClientCertificate>,
    ) -> Context {
        let logins = RequestLoginCache::of(certificate);
        let (upgrade, publishes) = (Mutex::default(), PublishedTopics::default());
        let inner = ConnectionContext { shared, peer, is_local, refusal, logins, upgrade, publishes };
        Context { connection: Arc::new(inner), user: None }
    }

    pub(super) fn shared(&self) -> &Arc<SharedServer> {
        &self.connection.shared
    }

    /// The node, restricted to the user's permissions.
    pub(super) fn node(&self) -> &Node {
        self.user.as_ref().map_or(&self.connection.shared.node, |user| &user.node)
    }

    /// Logs the user in if the node has users.
    pub(super) async fn log_in(&self, authorization: Option<&[u8]>) -> Result<Context, Refused> {
        let shared = self.shared();
        let Some(access) = &shared.access else { return Ok(self.clone()) };
        let from = self.connection.peer.map(|peer| peer.ip());
        let login = self.connection.logins.log_in(access, authorization, from).await?;
        let user = User { node: login.node(&shared.node), login };
        Ok(Context { user: Some(user), ..self.clone() })
    }

    pub(super) fn login(&self) -> Option<&Arc<Login>> {
        self.user.as_ref().map(|user| &user.login)
    }

    /// Waits until `work` is done. Fails if the user loses access earlier.
    pub(super) async fn run_while_valid<T>(
        &self,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        match self.login() {
            Some(login) => login.run_while_valid(work).await,
            None => work.await,
        }
    }

    /// Checks the user's publish rate. If it is exceeded, waits before the error is returned, to slow the client down.
    pub(super) async fn admit_publish(&self, records: u32, bytes: usize) -> Result<(), Refused> {
        let Some(login) = self.login() else { return Ok(()) };
        slow_down(login.account().admit_publish(records.into(), bytes as u64)).await
    }

    /// Checks whether the user's publish rate allows the command, in the same way as
    /// [`admit_publish`](Context::admit_publish).
    pub(super) async fn admit_command(
        &self,
        command: &impl MeteredCommand,
        bytes: usize,
    ) -> Result<(), Refused> {
        let Some(login) = self.login() else { return Ok(()) };
        slow_down(login.account().admit_command(command, bytes as u64)).await
    }

    /// Remembers that the connection has published to the topic.
    pub(super) fn record_publish(&self, topic: &Arc<Topic>) {
        self.connection.publishes.add(topic);
    }

    /// Checks that the user may see figures of the node and of subscriptions.
    pub(super) fn may_survey(&self) -> Result<(), Refused> {
        self.node().may_survey()
    }

    /// The subjects that the user's tenant may use; `None` if it may use all.
    pub(super) fn bounds(&self) -> Option<SubjectRule> {
        let tenant = dunlin::User::permissions(&**self.login()?.account()).tenant.clone();
        (!tenant.is_everything()).then_some(tenant)
    }

    pub(super) fn limits(&self) -> &ServerLimits {
        &self.connection.shared.limits
    }

    pub(super) fn set_upgrade(&self, upgrade: Upgrade) {
        *self.connection.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    pub(super) fn take_upgrade(&self) -> Option<Upgrade> {
        self.connection.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why every request except health probes is refused; `None` if the connection was admitted.
    pub(super) fn refusal(&self) -> Option<&Refused> {
        self.connection.refusal.as_ref()
    }

    /// Whether the client connected to a loopback address.
    pub(super) fn is_local(&self) -> bool {
        self.connection.is_local
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.connection.peer
    }

    /// The client's address as text, for logs and operators.
    pub(super) fn peer(&self) -> String {
        self.connection.peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string())
    }
}

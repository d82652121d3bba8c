//! Starts and stops the listeners of a node.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::{Node, ResponderExecutor};
use rustix::process::{Resource, Rlimit};
use tokio::task::AbortHandle;

use crate::access::{Access, UsersError, UsersFile};
use crate::cluster::Cluster;
use crate::config::{ServerConfig, ServerLimits};
use crate::error::StartError;
use crate::figures::FiguresResponse;
use crate::housekeeping;
use crate::http::has_page;
use crate::listener::{Listener, accept};
use crate::node_report;
use crate::opening::{StartupListeners, StartupProgress};
use crate::protocol::Protocol;
use crate::reload;
use crate::responders::ListenerRunner;
use crate::runtime::Runtime;
use crate::shared::SharedServer;
use crate::stream::Stream;
use crate::tcp;
use crate::tls::TlsIdentity;
use crate::watchdog::{self, Watchdog};
use crate::workers::Workers;

/// Pause between two checks whether all sessions have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How long a stopping server waits until all accepted commands have their responses.
const RESPONSES_WAIT_MAX: Duration = Duration::from_secs(10);

/// The running listeners of a node. Dropping the value closes the listeners and sessions at once. [`Server::stop`] lets
/// the sessions send their pending output first.
pub struct Server {
    shared: Arc<SharedServer>,
    addresses: Vec<(Protocol, SocketAddr)>,
    tcp: Vec<SocketAddr>,
    unix: Vec<PathBuf>,
    tasks: Vec<AbortHandle>,
    /// The watchdog must be dropped before the threads. Otherwise, it would report the threads' end as a stall. It
    /// therefore precedes the threads in this struct.
    watchdog: Watchdog,
    _runner: Arc<dyn ResponderExecutor>,
    _runtimes: Vec<Runtime>,
    /// The thread that serves the other nodes of the cluster. It is not a listener's thread: a listener's thread may
    /// wait for another node, which may at the same time wait for this node.
    node_runtime: OnceLock<Runtime>,
}

impl Server {
    /// Opens the listeners of `config` and serves `node` at them.
    pub fn start(node: Node, config: ServerConfig) -> Result<Server, StartError> {
        let listeners = listen(&config)?;
        node.wait_for_epoch();
        Server::with_listeners(listeners, node, config, None)
    }

    /// Like [`Server::start`], but takes over the sockets of `opening`, which refused clients while the node was
    /// starting.
    pub fn open(node: Node, config: ServerConfig, opening: StartupListeners) -> Result<Server, StartError> {
        node.wait_for_epoch();
        Server::with_listeners(opening.into_listeners(), node, config, None)
    }

    pub(crate) fn with_listeners(
        listeners: Vec<Listener>,
        node: Node,
        config: ServerConfig,
        opening: Option<Arc<StartupProgress>>,
    ) -> Result<Server, StartError> {
        raise_file_limit();
        if opening.is_none() {
            check_file_limit(&config.limits);
        }
        let tls = config.tls.clone().map(TlsIdentity::read).transpose()?.map(Arc::new);
        let limits = config.limits.access;
        let users = config.users_file.as_deref();
        let access = users.map(|path| Access::open(path, &node, limits)).transpose()?;
        let addresses: Vec<_> = listeners.iter().filter_map(Listener::address).collect();
        let tcp = addresses
            .iter()
            .filter(|(protocol, _)| *protocol == Protocol::Tcp)
            .map(|(_, address)| *address)
            .collect();
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = match config.threads {
            // With `spin`, half of the cores are left to clients on this machine.
            0 if config.spin => (cores / 2).max(1),
            0 => cores,
            threads => threads,
        };
        let runtimes =
            (0..threads).map(|number| Runtime::start(format!("dunlin-listener-{number}"), config.spin));
        let runtimes = runtimes.collect::<Result<Vec<_>, _>>()?;
        let cores: Vec<_> = runtimes.iter().map(|runtime| runtime.core().clone()).collect();
        let shared = SharedServer::new(node.clone(), &config, tls, access, opening);
        if let Some(tls) = &shared.tls {
            shared.reloads.add(Arc::clone(tls) as _);
        }
        if let Some(users) = UsersFile::of(&shared) {
            shared.reloads.add(Arc::new(users));
        }
        let stalls = Arc::clone(&shared.stalls);
        let watchdog = Watchdog::start(move |stall| {
            stalls.fetch_add(1, Ordering::Relaxed);
            watchdog::report(&stall);
        });
        let failed = |error| StartError::Thread { name: "dunlin-watchdog".to_owned(), error };
        let watchdog = watchdog.map_err(failed)?;
        runtimes.iter().for_each(|runtime| watchdog.watch(runtime.pulse(), &runtime.core().handle));
        shared.set_cores(&cores);
        shared.set_addresses(&addresses);
        let first = cores[0].handle.clone();
        let mut tasks = vec![first.spawn(housekeeping::run(Arc::clone(&shared))).abort_handle()];
        tasks.push(first.spawn(node_report::run(Arc::clone(&shared))).abort_handle());
        tasks.push(first.spawn(reload::watch(Arc::clone(&shared.reloads))).abort_handle());
        for listener in listeners {
            let accepting = accept(listener, Arc::clone(&shared), cores.clone());
            tasks.push(first.spawn(accepting).abort_handle());
        }
        let runner: Arc<dyn ResponderExecutor> = Arc::new(ListenerRunner { first });
        node.set_executor(&runner);
        node.failed_parts()
            .iter()
            .for_each(|failed| tracing::error!("the node refuses every request for {failed}"));
        let node_runtime = OnceLock::new();
        let (unix, _runner, _runtimes) = (config.unix, runner, runtimes);
        Ok(Server { shared, addresses, tcp, unix, tasks, _runner, _runtimes, node_runtime, watchdog })
    }

    /// Makes this server part of `cluster`. The server publishes its listeners' addresses, serves the other nodes at
    /// the cluster's port, and takes over its share of the topics. From now on, the node is ready only if the cluster
    /// is ready.
    pub fn join_cluster(&self, cluster: &Cluster) -> Result<(), StartError> {
        let runtime = Runtime::start("dunlin-nodes".to_owned(), false)?;
        let runtime = self.node_runtime.get_or_init(|| runtime);
        let core = runtime.core().clone();
        self.watchdog.watch(runtime.pulse(), &core.handle);
        let host = cluster.host();
        let listeners = self.addresses.iter().map(|(protocol, at)| match at.ip().is_unspecified() {
            // If a listener listens on all interfaces, its own address is useless to other nodes. Its port is therefore
            // published with the host at which other nodes reach this node.
            true => (protocol.name().to_owned(), format!("{host}:{}", at.port())),
            false => (protocol.name().to_owned(), at.to_string()),
        });
        let listeners = listeners.collect();
        let shared = Arc::downgrade(&self.shared);
        let on_connection = move |_node, stream| {
            let shared = shared.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            let Stream::Tls(secured) = stream else { return Err(io::ErrorKind::InvalidData.into()) };
            let leaving = secured.detach()?;
            let slot = core.reserve_slot();
            core.handle.clone().spawn(async move {
                let (_slot, _open_connection) = (slot, shared.traffic.count_accepted(Protocol::Tcp));
                let Ok(secured) = leaving.attach() else { return };
                tcp::Session::begin_for_node(shared, Stream::Tls(Box::new(secured))).await;
            });
            Ok(())
        };
        cluster.member().set_listeners(listeners, Box::new(on_connection));
        let shared = Arc::downgrade(&self.shared);
        cluster.member().set_figures_source(move |request| {
            shared.upgrade().and_then(|shared| FiguresResponse::of(&shared, request)).unwrap_or_default()
        });
        let _ = self.shared.cluster.set(Arc::clone(cluster.member()));
        cluster.own_topics();
        Ok(())
    }

    /// Adds a view of `workers` to the node's report `work`.
    pub fn show_workers(&self, workers: &Workers) {
        self.shared.node_report.set_workers(workers.view());
    }

    /// The TCP addresses of all protocols, with the ports that were actually chosen.
    pub fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        &self.addresses
    }

    /// The URL of the dashboard; `None` if there is no HTTP listener, or if this build does not contain the dashboard.
    pub fn dashboard(&self) -> Option<String> {
        let (_, mut address) = *self.addresses.iter().find(|(protocol, _)| *protocol == Protocol::Http)?;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let scheme = if self.has_tls() { Protocol::Http.tls_scheme() } else { Protocol::Http.scheme() };
        has_page().then(|| format!("{scheme}://{address}/"))
    }

    /// The TCP addresses at which Dunlin's own protocol is served, with the ports that were actually chosen.
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.tcp
    }

    /// The paths of the Unix sockets at which Dunlin's own protocol is served.
    pub fn unix_paths(&self) -> impl Iterator<Item = &Path> {
        self.unix.iter().map(PathBuf::as_path)
    }

    /// Reads the users file again and applies it, also to clients that are already connected. If the file is invalid,
    /// the present users remain. The server also reads a changed file by itself, about two seconds after the change.
    pub fn reload_users(&self) -> Result<(), UsersError> {
        self.shared.reload_users()
    }

    /// The number of sessions that are open now.
    pub fn sessions(&self) -> usize {
        self.shared.session_count()
    }

    /// Whether clients must use TLS at TCP addresses. Unix sockets never use TLS.
    pub fn has_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// Reads the certificates and the users file again, and returns whether all are valid. If a file is invalid, the
    /// present setting remains, and the log states the reason. The server also reads a changed file by itself, about
    /// two seconds after the change.
    pub fn reload(&self) -> bool {
        self.shared.reloads.reload_all()
    }

    /// Stops the server: it accepts no more connections, and ends all sessions. Waits up to `stop_ms_max` milliseconds
    /// until clients have read their pending output. If responses to accepted commands are pending, waits up to 10 s
    /// for them.
    pub fn stop(self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.stop();
        let stop_max = Duration::from_millis(self.shared.limits.stop_ms_max.into());
        let wait_for = |count: &dyn Fn() -> usize| {
            let began = Instant::now();
            let is_timed_out = || {
                began.elapsed()
                    >= if self.shared.has_pending_responses() { RESPONSES_WAIT_MAX } else { stop_max }
            };
            while count() > 0 && !is_timed_out() {
                thread::sleep(CHECK_INTERVAL);
            }
        };
        wait_for(&|| self.shared.client_count());
        // All clients have disconnected, so this node receives no more records. The connections to other nodes stay
        // open until the mirrors there have received the last records.
        let began = Instant::now();
        while began.elapsed() < stop_max && self.shared.node.has_lagging_mirrors() {
            thread::sleep(CHECK_INTERVAL);
        }
        self.shared.stop_nodes();
        wait_for(&|| self.shared.session_count());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        for path in &self.unix {
            // Removing fails if the socket file no longer exists.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses)
            .field("unix", &self.unix)
            .finish_non_exhaustive()
    }
}

pub(crate) fn listen(config: &ServerConfig) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    let authenticates_clients =
        config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some() || config.users_file.is_some());
    for (protocol, address) in config.addresses() {
        let is_unprotected = !address.ip().is_loopback() && !authenticates_clients;
        if is_unprotected && !config.anyone_on_the_network_may_connect {
            return Err(StartError::OffLoopback(address));
        }
        let listener = Listener::bind_tcp(protocol, address);
        listeners.push(listener.map_err(|error| StartError::Listen { address, error })?);
    }
    for path in &config.unix {
        let listener = Listener::bind_unix(Protocol::Tcp, path);
        listeners.push(listener.map_err(|error| StartError::ListenUnix { path: path.clone(), error })?);
    }
    Ok(listeners)
}

/// Raises the process's limit of open files to the highest permitted value. On many systems, processes start with a
/// limit of 1,024.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}

/// Logs a warning if the limit of open files is too low for the configured number of connections.
fn check_file_limit(limits: &ServerLimits) {
    let files_max = rustix::process::getrlimit(Resource::Nofile).current;
    if let Some(files_max) = files_max.filter(|files_max| *files_max < limits.reserved_files()) {
        tracing::warn!(
            files_max,
            connections_max = limits.sessions_max,
            "the limit of open files (ulimit -n) is too low for limits.connections: raise it (LimitNOFILE in a \
             systemd unit), or lower limits.connections"
        );
    }
}

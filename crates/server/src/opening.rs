//! Listeners for a node that is still starting. They refuse every client with the error `OPENING`, which states the
//! present step of the start.
//!
//! These listeners are a [`Server`] with an empty node that admits no session. Later, the final server takes over their
//! sockets. No other program can therefore take the addresses in between.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin::{Config, Node};

use crate::config::ServerConfig;
use crate::error::StartError;
use crate::listener::Listener;
use crate::protocol::Protocol;
use crate::server::{Server, listen};

/// The present step of the node's start, and the time at which the start began.
#[derive(Debug)]
pub(crate) struct StartupProgress {
    step: Mutex<String>,
    began: Instant,
}

impl fmt::Display for StartupProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "{step}; it started {} s ago", self.began.elapsed().as_secs())
    }
}

/// The listeners of a starting node. They refuse all clients until the node is ready.
#[derive(Debug)]
pub struct StartupListeners {
    server: Option<Server>,
    listeners: Vec<Listener>,
    unix: Vec<PathBuf>,
    progress: Arc<StartupProgress>,
}

impl StartupListeners {
    /// Starts all listeners of `config`. Refusals state `step`, which is the present step of the start.
    pub fn start(config: &ServerConfig, step: &str) -> Result<StartupListeners, StartError> {
        let listeners = listen(config)?;
        let progress = Arc::new(StartupProgress { step: Mutex::new(step.to_owned()), began: Instant::now() });
        let failed = |error| StartError::Thread { name: "dunlin-opening".to_owned(), error };
        let empty_node = Node::start(Config::default()).map_err(|error| failed(io::Error::other(error)))?;
        let copies = listeners.iter().map(Listener::try_clone).collect::<io::Result<_>>().map_err(failed)?;
        let unix = config.unix.clone();
        let config =
            ServerConfig { users_file: None, unix: Vec::new(), threads: 1, spin: false, ..config.clone() };
        let server = Server::with_listeners(copies, empty_node, config, Some(Arc::clone(&progress)))?;
        Ok(StartupListeners { server: Some(server), listeners, unix, progress })
    }

    /// The TCP addresses of all protocols, with the ports that were actually chosen.
    pub fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        self.server.as_ref().map_or(&[], Server::addresses)
    }

    /// Sets the present step of the start, which later refusals state.
    pub fn set_step(&self, step: &str) {
        step.clone_into(&mut self.progress.step.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the refusals, and returns the listening sockets. Connections then wait in the kernel's queue until another
    /// server accepts them.
    pub(crate) fn into_listeners(mut self) -> Vec<Listener> {
        self.server = None;
        self.unix.clear();
        std::mem::take(&mut self.listeners)
    }
}

impl Drop for StartupListeners {
    fn drop(&mut self) {
        for path in &self.unix {
            // Removing fails if the socket file no longer exists.
            let _ = std::fs::remove_file(path);
        }
    }
}

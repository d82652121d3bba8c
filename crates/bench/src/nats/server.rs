//! A nats-server of our own on a free port of 127.0.0.1, gone when dropped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::child::Child;
use crate::point::Bench;
use crate::sockets;

/// A running server.
#[derive(Debug)]
pub struct NatsServer {
    address: SocketAddr,
    _child: Child,
    _config: ConfigFile,
}

/// The server's configuration, gone when dropped.
#[derive(Debug)]
struct ConfigFile(PathBuf);

/// By default the server cuts off a subscriber with 64 MB pending, which a burst of 64 KB messages
/// reaches; a run must be lossless, so it may keep more. Nothing else is changed.
const CONFIG: &str = "max_pending: 1GB\n";

impl ConfigFile {
    fn write() -> Result<Self> {
        let path = sockets::fresh_path("conf");
        std::fs::write(&path, CONFIG).with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        // A file that is already gone is what is wanted.
        let _ = std::fs::remove_file(&self.0);
    }
}

const START_PATIENCE: Duration = Duration::from_secs(20);
const READY: &str = "Listening for client connections on ";

impl NatsServer {
    /// Starts one with its defaults (but see [`CONFIG`]), and waits until it listens.
    pub fn start(bench: &Bench) -> Result<Self> {
        let program = bench.peers.program("nats-server")?;
        let config = ConfigFile::write()?;
        let args = ["--addr", "127.0.0.1", "--port", "-1", "--config", &config.0.to_string_lossy()];
        let mut child = bench.child.start_program(&program, &args.map(str::to_owned))?;
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let words = child.last_words();
            if let Some(address) =
                words.split(READY).nth(1).and_then(|rest| rest.lines().next().filter(|_| rest.contains('\n')))
            {
                let address =
                    address.trim().parse().with_context(|| format!("nats-server listens at `{address}`"))?;
                return Ok(Self { address, _child: child, _config: config });
            }
            if child.ended()?.is_some() || Instant::now() > deadline {
                bail!("nats-server did not start{words}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

//! Checks whether a process without a lease still runs. Such a process is stopped, or cannot reach the cluster, and may
//! have the state of a region in its memory.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::space::error::RunnerRefusal;
use crate::space::frame::SpaceFrame;
use crate::space::hello::RunnerHello;

/// Pause between two attempts to connect to the same process.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of attempts to connect that must fail in succession before a process counts as ended. One attempt may fail
/// because a packet was lost. If the connection is refused, one attempt suffices: no process accepts connections there.
const ATTEMPTS: u32 = 2;
/// Maximum size of a process's hello, bytes.
const HELLO_BYTES_MAX: usize = 1 << 20;

/// The connections by which a process notices that others still run. The operating system accepts connections for a
/// stopped process, too, and ends them together with the process.
#[derive(Debug, Default)]
pub(super) struct LifeChecks {
    /// For each number and address of a process: the last check.
    checks: BTreeMap<(u64, SocketAddr), LifeCheck>,
    /// Whether this round has opened a connection. At most one is opened in a round, because this can take a while.
    has_connected: bool,
}

#[derive(Debug)]
struct LifeCheck {
    connected_at: Instant,
    /// Kept open, because each connection to a stopped process takes a place in the process's queue.
    connection: Option<TcpStream>,
    received: Vec<u8>,
    /// Number of attempts to connect that have failed since the last connection.
    failures: u32,
    is_running: bool,
    /// Whether the check was used in this round.
    is_used: bool,
}

impl LifeChecks {
    /// Begins a round of checks. Ends the connections that the previous round did not use.
    pub(super) fn begin_round(&mut self) {
        self.has_connected = false;
        self.checks.retain(|_, check| std::mem::take(&mut check.is_used));
    }

    /// Whether this process of the world runs, which accepts connections at this address. Returns `true` as long as
    /// this is not known. Opening a connection takes at most `timeout`.
    pub(super) fn is_running(
        &mut self,
        process: u64,
        address: SocketAddr,
        world: &str,
        timeout: Duration,
    ) -> bool {
        if let Some(check) = self.checks.get_mut(&(process, address)) {
            check.is_used = true;
            check.read(process, world);
            let is_recent = check.connected_at.elapsed() < CONNECT_INTERVAL;
            if check.connection.is_some() || is_recent || self.has_connected {
                return check.is_running;
            }
        } else if self.has_connected {
            return true;
        }
        self.has_connected = true;
        let failures = self.checks.get(&(process, address)).map_or(0, |check| check.failures);
        let (connection, failures) = match connect(address, timeout) {
            Ok(connection) => (Some(connection), 0),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => (None, ATTEMPTS),
            Err(_) => (None, failures.saturating_add(1)),
        };
        let (is_running, connected_at) = (failures < ATTEMPTS, Instant::now());
        let received = Vec::new();
        let check = LifeCheck { connected_at, connection, received, failures, is_running, is_used: true };
        self.checks.insert((process, address), check);
        is_running
    }
}

fn connect(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&address, timeout)?;
    // If no process accepts connections at a local address, the system may connect the socket with itself.
    if connection.local_addr()? == address {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    connection.set_nonblocking(true)?;
    Ok(connection)
}

impl LifeCheck {
    /// Reads what has arrived. If the other side is not this process of the world, the process does not run.
    fn read(&mut self, process: u64, world: &str) {
        let mut buffer = [0; 4_096];
        while let Some(connection) = &mut self.connection {
            match connection.read(&mut buffer) {
                Ok(count) if count > 0 && self.received.len() <= HELLO_BYTES_MAX => {
                    self.received.extend_from_slice(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A process that runs closes a connection without a proof after a few seconds.
                Ok(_) | Err(_) => self.connection = None,
            }
        }
        if is_other_program(&self.received, process, world) {
            (self.connection, self.is_running) = (None, false);
        }
    }
}

/// Whether the bytes that were received show that they are not from this process of the world.
fn is_other_program(received: &[u8], process: u64, world: &str) -> bool {
    match SpaceFrame::decode(received, HELLO_BYTES_MAX) {
        Ok(None) => false,
        Ok(Some((SpaceFrame::Hello(hello), _))) => match RunnerHello::decode(hello) {
            Ok(hello) => hello.process != process || hello.world.name != world,
            // The number of a process of another version is not known.
            Err(RunnerRefusal::Version { .. }) => false,
            Err(_) => true,
        },
        Ok(Some(_)) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::space::hello::WorldIdentity;

    const PROCESS: u64 = 7;
    const WORLD: &str = "birds";

    /// Whether process 7 runs, according to a new round of checks.
    fn is_running(checks: &mut LifeChecks, address: SocketAddr) -> bool {
        checks.begin_round();
        checks.is_running(PROCESS, address, WORLD, dunlin_wait::PATIENCE)
    }

    fn hello_frame(process: u64, name: &str) -> Vec<u8> {
        let world = WorldIdentity { name: name.to_owned(), setup: 5 };
        let hello = RunnerHello { process, world, regions: Vec::new() }.encode(&[5; 32]);
        let mut frame = Vec::new();
        SpaceFrame::Hello(&hello).encode(&mut frame);
        frame
    }

    #[test]
    fn silent_process_counts_as_running_until_it_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, mut checks) = (listener.local_addr().unwrap(), LifeChecks::default());
        assert!(is_running(&mut checks, address) && is_running(&mut checks, address));
        drop(listener);
        dunlin_wait::until("the process has ended", || !is_running(&mut checks, address));
    }

    #[test]
    fn process_counts_as_dead_after_two_failed_connections() {
        // The system has no TCP connection to this address for multicast, but does not refuse it either.
        let (address, mut checks) = ("224.0.0.1:1".parse().unwrap(), LifeChecks::default());
        assert!(is_running(&mut checks, address));
        dunlin_wait::until("the second attempt has failed", || !is_running(&mut checks, address));
    }

    #[test]
    fn process_counts_as_ended_if_another_has_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, mut checks) = (listener.local_addr().unwrap(), LifeChecks::default());
        assert!(is_running(&mut checks, address));
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(&hello_frame(PROCESS + 1, WORLD)).unwrap();
        dunlin_wait::until("another process is there", || !is_running(&mut checks, address));
    }

    #[test]
    fn hello_of_another_process_or_world_is_recognized() {
        let own = hello_frame(PROCESS, WORLD);
        assert!(!is_other_program(&own, PROCESS, WORLD) && !is_other_program(&own[..9], PROCESS, WORLD));
        assert!(is_other_program(&hello_frame(PROCESS + 1, WORLD), PROCESS, WORLD));
        assert!(is_other_program(&hello_frame(PROCESS, "fish"), PROCESS, WORLD));
        assert!(is_other_program(b"HTTP/1.1 400 Bad Request", PROCESS, WORLD));
    }

    #[test]
    fn each_round_of_life_checks_opens_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (open, timeout) = (listener.local_addr().unwrap(), dunlin_wait::PATIENCE);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut checks = LifeChecks::default();
        assert!(checks.is_running(PROCESS, open, WORLD, timeout));
        assert!(checks.is_running(PROCESS + 1, closed, WORLD, timeout), "it is not known yet");
        checks.begin_round();
        assert!(!checks.is_running(PROCESS + 1, closed, WORLD, timeout));
    }
}

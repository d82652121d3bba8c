//! A TCP proxy in front of a node. The proxy can cut clients' connections to the node, or delay their bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// In each direction of a connection, the largest number of pieces that wait for the end of their delay. A piece has at
/// most 64 KiB.
const DELAYED_MAX: usize = 256;

/// Forwards connections to a node, and can cut the connections or delay their bytes.
#[derive(Debug)]
pub struct Proxy {
    /// The address at which clients connect to the proxy.
    pub address: SocketAddr,
    cut: watch::Sender<u64>,
    accepted: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl Proxy {
    /// Starts a proxy that forwards connections to the address `node`.
    pub fn start(node: SocketAddr) -> Proxy {
        Proxy::with_delay(node, Duration::ZERO)
    }

    /// Starts a proxy that delays all bytes by `delay`, in both directions.
    pub fn with_delay(node: SocketAddr, delay: Duration) -> Proxy {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let (cut, cuts) = watch::channel(0);
        let accepted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&accepted);
        runtime.spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(forward(client, node, delay, cuts.clone()));
            }
        });
        Proxy { address, cut, accepted, _runtime: runtime }
    }

    /// Resets all present connections. Bytes that are being delayed are lost. The proxy still accepts new connections.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn forward(mut client: TcpStream, node: SocketAddr, delay: Duration, mut cuts: watch::Receiver<u64>) {
    cuts.mark_unchanged();
    let Ok(mut node) = TcpStream::connect(node).await else { return };
    let forwarded = async {
        if delay.is_zero() {
            let _ = copy_bidirectional(&mut client, &mut node).await;
            return;
        }
        let ((from_client, to_client), (from_node, to_node)) = (client.split(), node.split());
        tokio::select! {
            _ = forward_delayed(from_client, to_node, delay) => {}
            _ = forward_delayed(from_node, to_client, delay) => {}
        }
    };
    tokio::select! {
        () = forwarded => {}
        _ = cuts.changed() => {
            // With this option, the end of a connection resets it and discards the bytes in transit.
            let _ = client.set_zero_linger();
            let _ = node.set_zero_linger();
        }
    }
}

/// Forwards bytes after a delay.
async fn forward_delayed(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
) -> std::io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(DELAYED_MAX);
    let read = async move {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut bytes).await?;
            let piece = (Instant::now() + delay, bytes[..count].to_vec());
            if count == 0 || sender.send(piece).await.is_err() {
                return std::io::Result::Ok(());
            }
        }
    };
    let write = async {
        while let Some((at, piece)) = pieces.recv().await {
            sleep_until(at).await;
            to.write_all(&piece).await?;
        }
        std::io::Result::Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};

    use super::*;
    use crate::process::PATIENCE;

    #[test]
    fn delayed_connection_is_reset_when_the_proxy_cuts_it() {
        let node = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::with_delay(node.local_addr().unwrap(), Duration::from_millis(1));
        let mut client = std::net::TcpStream::connect(proxy.address).unwrap();
        let (mut served, _) = node.accept().unwrap();
        client.write_all(b"request").unwrap();
        let mut received = [0; 7];
        served.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"request");
        proxy.cut();
        for mut stream in [client, served] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let outcome = stream.read(&mut received).map_err(|error| error.kind());
            assert_eq!(outcome, Err(ErrorKind::ConnectionReset));
        }
    }
}

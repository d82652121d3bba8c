//! A TCP proxy whose connections a test can cut all at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Hands connections on to a node.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    cut: watch::Sender<u64>,
    accepted: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl Proxy {
    /// Stands before the node at `node`.
    pub fn start(node: SocketAddr) -> Proxy {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (cut, cuts) = watch::channel(0);
        let accepted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&accepted);
        runtime.spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(hand_on(client, node, cuts.clone()));
            }
        });
        Proxy { address, cut, accepted, _runtime: runtime }
    }

    /// Resets every connection; new ones are let in.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Connections so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn hand_on(mut client: TcpStream, node: SocketAddr, mut cuts: watch::Receiver<u64>) {
    cuts.mark_unchanged();
    let Ok(mut node) = TcpStream::connect(node).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut node) => {}
        _ = cuts.changed() => {
            // A reset, not an end: what is under way is lost.
            let _ = client.set_zero_linger();
            let _ = node.set_zero_linger();
        }
    }
}

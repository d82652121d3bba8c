//! A connection with many requests in flight. The responses may come in any order. When the connection breaks, all its
//! pending requests fail, and a new connection is opened.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::frame::{self, RequestFrame};

const RECONNECT_DELAY: Duration = Duration::from_millis(5);
const REQUESTS_PER_WRITE_MAX: usize = 512;
const BUFFER_BYTES: usize = 256 << 10;

struct OutgoingRequest {
    kind: u8,
    body: Bytes,
    response: oneshot::Sender<RequestFrame>,
}

type Pending = Arc<Mutex<HashMap<u64, oneshot::Sender<RequestFrame>>>>;

/// A handle to a connection with many requests in flight. The connection closes when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct ConnectionHandle(mpsc::UnboundedSender<OutgoingRequest>);

impl ConnectionHandle {
    /// Connects to an address. A task on `runtime` sends the requests and receives the responses.
    pub fn connect(address: String, runtime: &Handle) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        runtime.spawn(run(address, requests));
        Self(sender)
    }

    /// Sends a request at once, even if the returned future is never polled. The future returns the response.
    pub fn request(&self, kind: u8, body: Bytes) -> impl Future<Output = io::Result<Bytes>> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        let sent = self.0.send(OutgoingRequest { kind, body, response: sender });
        async move {
            let lost = || io::Error::from(io::ErrorKind::ConnectionReset);
            sent.map_err(|_| lost())?;
            match receiver.await.map_err(|_| lost())? {
                RequestFrame { kind: frame::DONE, body, .. } => Ok(body),
                RequestFrame { body, .. } => {
                    Err(io::Error::other(String::from_utf8_lossy(&body).into_owned()))
                }
            }
        }
    }
}

async fn run(address: String, mut requests: mpsc::UnboundedReceiver<OutgoingRequest>) {
    loop {
        match open_stream(&address).await {
            Ok(stream) => {
                if serve_connection(stream, &mut requests).await.is_none() {
                    return;
                }
            }
            Err(_) => {
                tokio::time::sleep(RECONNECT_DELAY).await;
                // No connection could be opened, so all pending requests fail. A caller receives an error when its
                // request is dropped.
                while requests.try_recv().is_ok() {}
                if requests.is_closed() {
                    return;
                }
            }
        }
    }
}

async fn open_stream(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends requests and receives responses until the connection breaks. Returns `None` when all handles have been
/// dropped.
async fn serve_connection(
    stream: TcpStream,
    requests: &mut mpsc::UnboundedReceiver<OutgoingRequest>,
) -> Option<()> {
    let (reader, mut writer) = stream.into_split();
    let pending = Pending::default();
    let mut reading = tokio::spawn(read(reader, Arc::clone(&pending)));
    let (mut batch, mut out, mut next_id) = (Vec::new(), BytesMut::new(), 0_u64);
    loop {
        let count = tokio::select! {
            count = requests.recv_many(&mut batch, REQUESTS_PER_WRITE_MAX) => count,
            _ = &mut reading => return Some(()),
        };
        if count == 0 {
            reading.abort();
            return None;
        }
        {
            let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
            for OutgoingRequest { kind, body, response } in batch.drain(..) {
                frame::push(&mut out, next_id, kind, &body);
                pending.insert(next_id, response);
                next_id += 1;
            }
        }
        if writer.write_all(&out).await.is_err() {
            reading.abort();
            return Some(());
        }
        out.clear();
    }
}

async fn read(mut reader: OwnedReadHalf, pending: Pending) {
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    while let Ok(1..) = reader.read_buf(&mut buffer).await {
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(frame) = frame::pull(&mut buffer) {
            if let Some(response) = pending.remove(&frame.id) {
                // If the caller has dropped the future, sending fails, which is no error.
                let _ = response.send(frame);
            }
        }
        drop(pending);
        buffer.reserve(BUFFER_BYTES / 4);
    }
    pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

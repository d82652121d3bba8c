use std::time::Duration;

/// Limits on a client's memory, message sizes and waiting times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// The number of unread bytes that a subscription may have. The client grants this number to the node as credit.
    pub credit_bytes: usize,
    /// Maximum number of bytes that a publisher may have sent without a response. Further records wait.
    pub in_flight_bytes_max: usize,
    /// The size of a batch, in bytes, at which a publisher sends it.
    pub batch_bytes: usize,
    /// The largest number of bytes that are read from the socket at once.
    pub chunk_bytes: usize,
    /// The largest size of a message with records, in bytes.
    pub run_bytes_max: usize,
    /// The largest size of a message without records, in bytes.
    pub control_bytes_max: usize,
    /// The largest state of a topic that a subscription accepts, in bytes. If a larger one arrives, the subscription
    /// ends with an error.
    pub snapshot_bytes_max: usize,
    /// Maximum number of logs that the node may announce to all subscriptions together.
    pub channels_max: usize,
    /// Maximum number of publishers that a responder keeps open, one for each requester.
    pub reply_publishers_max: usize,
    /// The longest duration of an attempt to connect, including the greeting, in ms.
    pub connect_ms_max: u64,
    /// The upper limit of the first random wait before reconnecting, in ms. The limit doubles with each attempt, up to
    /// `backoff_max_ms`.
    pub backoff_base_ms: u64,
    /// The largest value, in ms, to which the upper limit of the random wait grows.
    pub backoff_max_ms: u64,
    /// A wait fails after this many heartbeat intervals without a message from the node. The next call tries again.
    pub patience_heartbeats: u32,
    /// The longest wait for a response from a live node, in ms.
    pub answer_ms_max: u64,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            credit_bytes: 1 << 20,
            in_flight_bytes_max: 1 << 20,
            batch_bytes: 32 << 10,
            chunk_bytes: 256 << 10,
            run_bytes_max: (16 << 20) + 4096,
            control_bytes_max: 1 << 20,
            snapshot_bytes_max: 128 << 20,
            channels_max: 1_000_000,
            reply_publishers_max: 1024,
            connect_ms_max: 2_000,
            backoff_base_ms: 50,
            backoff_max_ms: 2_000,
            patience_heartbeats: 2,
            answer_ms_max: 60_000,
        }
    }
}

impl ClientLimits {
    /// Maximum number of unread bytes that a subscription accepts from a node. This is twice the credit plus one
    /// message, because nodes check the credit only at intervals.
    pub(crate) fn unread_bytes_max(&self) -> u64 {
        2 * self.credit_bytes as u64 + self.run_bytes_max as u64
    }

    /// When at least this many bytes of credit were returned, the client reports them to the node even if the
    /// subscriber reads nothing. The number is at least 1, so that the client never reports an empty refund.
    pub(crate) fn refund_bytes_max(&self) -> u64 {
        (self.credit_bytes as u64 / 2).max(1)
    }
}

/// Maximum number of created topics whose configuration a client remembers, to create them again after a node
/// lost them.
pub(crate) const CREATED_MAX: usize = 1_024;
/// The smallest size, in bytes, of a batch that stays in the chunk into which it was read. Smaller batches are copied,
/// so that a few unread bytes do not keep a whole chunk in use.
pub(crate) const PIN_BYTES_MIN: usize = 4 << 10;
/// If a subscription has more unread bytes than this, new batches are copied, so that the subscription does not keep
/// more chunks in use.
pub(crate) const PINNED_UNREAD_BYTES_MAX: usize = 512 << 10;
/// Maximum number of chunks that are kept for reading while subscribers hold other chunks.
pub(crate) const SPARE_CHUNKS_MAX: usize = 8;
/// The longest time for which a caller blocks before it checks the clock again.
pub(crate) const TICK: Duration = Duration::from_millis(100);

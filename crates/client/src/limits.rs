use std::time::Duration;

/// Limits on a client's memory, message sizes and waiting times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// How many unread bytes a subscription may have. The client grants the node this number of bytes as credit.
    pub credit_bytes: usize,
    /// How many bytes without a response a publisher may have sent. Further records wait.
    pub in_flight_bytes_max: usize,
    /// The size in bytes at which a publisher sends its batch.
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
    /// The maximum number of logs that the node may announce to all subscriptions of the client together.
    pub channels_max: usize,
    /// The maximum number of publishers that a responder keeps open. A responder has one publisher for each requester.
    pub reply_publishers_max: usize,
    /// How long an attempt to connect, including the greeting, may take, in ms.
    pub connect_ms_max: u64,
    /// The upper limit of the random wait before the first new attempt to connect, in ms. The limit doubles with each
    /// further attempt, up to `backoff_max_ms`.
    pub backoff_base_ms: u64,
    /// The largest value of the upper limit that begins at `backoff_base_ms` and doubles with each attempt, in ms.
    pub backoff_max_ms: u64,
    /// How many heartbeat intervals a wait lasts without a connection before the wait fails. The next call tries again.
    pub patience_heartbeats: u32,
    /// How long the client waits for a response while the node is alive, in ms.
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
    /// The maximum number of unread bytes that a subscription accepts from a node. It is twice the credit plus one
    /// message, because a node checks the credit only from time to time.
    pub(crate) fn unread_bytes_max(&self) -> u64 {
        2 * self.credit_bytes as u64 + self.run_bytes_max as u64
    }

    /// If at least this many bytes of credit were refunded, the client reports them to the node, even if the subscriber
    /// reads nothing. The number is at least 1, so that the client never reports a refund of 0 bytes.
    pub(crate) fn refund_bytes_max(&self) -> u64 {
        (self.credit_bytes as u64 / 2).max(1)
    }
}

/// A client remembers the configuration of at most this many topics that it has created. If a node has lost such a
/// topic, the client creates the topic again.
pub(crate) const CREATED_MAX: usize = 1_024;
/// The smallest size in bytes of a batch that stays in the chunk into which it was read. A smaller batch is copied, so
/// that a few unread bytes do not keep a whole chunk in use.
pub(crate) const PIN_BYTES_MIN: usize = 4 << 10;
/// If a subscription has more unread bytes than this, its new batches are copied, so that it does not keep further
/// chunks in use.
pub(crate) const PINNED_UNREAD_BYTES_MAX: usize = 512 << 10;
/// The maximum number of chunks that are kept for later reads while subscribers still hold them.
pub(crate) const SPARE_CHUNKS_MAX: usize = 8;
/// The longest time for which a caller blocks before it checks the clock again.
pub(crate) const TICK: Duration = Duration::from_millis(100);

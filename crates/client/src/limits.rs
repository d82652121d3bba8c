use std::time::Duration;

/// What a client keeps at most, and how patient it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes a subscription may hold unread, granted to the node as credit.
    pub credit_bytes: usize,
    /// Bytes a publisher may have sent without an answer; sending on then waits.
    pub in_flight_bytes_max: usize,
    /// A publisher hands its records to the socket when it holds this many bytes.
    pub batch_bytes: usize,
    /// Bytes read from the socket at once.
    pub chunk_bytes: usize,
    /// The largest message with records that is taken from a node.
    pub run_bytes_max: usize,
    /// The largest other message that is taken from a node.
    pub control_bytes_max: usize,
    /// The largest state that is taken of a stateful topic; a subscription that is to be given a larger one ends.
    pub snapshot_bytes_max: usize,
    /// Logs that the node may announce to all subscriptions together.
    pub channels_max: usize,
    /// Publishers a responder keeps open, one for each requester.
    pub reply_publishers_max: usize,
    /// How long one attempt to connect may take, ms, greeting included.
    pub connect_ms_max: u64,
    /// The span within which the first new attempt falls after a loss, ms; it doubles each time …
    pub backoff_base_ms: u64,
    /// … up to this.
    pub backoff_max_ms: u64,
    /// A caller that waits is told that the node is away after this many heartbeats; its next call goes on trying.
    pub patience_heartbeats: u32,
    /// How long a caller waits for an answer from a node that is alive, ms.
    pub answer_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
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

impl Limits {
    /// What a subscription keeps even of a node that pays no heed to credit: twice what it granted, as nodes
    /// may look at it only every so often, and one message.
    pub(crate) fn unread_bytes_max(&self) -> u64 {
        2 * self.credit_bytes as u64 + self.run_bytes_max as u64
    }

    /// Credit that came back without having been read, of which the node is told by itself. Never none: nothing would
    /// be news, and whoever waits would not.
    pub(crate) fn refund_bytes_max(&self) -> u64 {
        (self.credit_bytes as u64 / 2).max(1)
    }
}

/// Topics that a client made whose configuration it remembers, to make them again where a node has lost them.
pub(crate) const CREATED_MAX: usize = 1_024;
/// Runs of at least this size stay in the chunk they were read into; smaller ones are copied out,
/// so that a few bytes nobody reads do not hold a whole chunk.
pub(crate) const PIN_BYTES_MIN: usize = 4 << 10;
/// A subscription that holds this many unread bytes gets copies: it keeps no more chunks.
pub(crate) const PINNED_UNREAD_BYTES_MAX: usize = 512 << 10;
/// Chunks kept for reading while others are still being read by subscribers.
pub(crate) const CHUNKS_KEPT_MAX: usize = 8;
/// The longest a caller blocks in the kernel before it looks at its clock.
pub(crate) const TICK: Duration = Duration::from_millis(100);

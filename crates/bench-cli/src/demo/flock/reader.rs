//! Runs two threads that read from one node of the demo: the first thread receives all lines, and the second thread
//! keeps a replica of all order books. If the node is killed, both threads reconnect when the node has restarted, and
//! continue to read.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use dunlin::now_ns;
use dunlin_cli::state::State;
use dunlin_client::{Client, ClientOptions, Subscriber};
use dunlin_feed::{LastValue, Replica};
use dunlin_topic::{OnGap, Start, Subscribe, SubscribeError, SubscribeOptions};

use super::progress::{ReadProgressByTopic, add_event};
use super::{ClusterDemoState, PATIENCE, POLL_INTERVAL};
use crate::demo::books::{PATTERN, ReplicaResult, add, levels};
use crate::demo::plan::MARKETS;

/// The most events that a reader handles before it checks whether the demo has ended.
const EVENTS_MAX: usize = 512;
const IDLE: Duration = Duration::from_millis(50);

/// The two threads that read from one node: the first thread receives all lines, and the second thread keeps a replica
/// of all order books.
pub struct NodeReaders {
    lines: JoinHandle<Result<ReadProgressByTopic>>,
    books: JoinHandle<Result<ReplicaResult>>,
}

impl NodeReaders {
    /// Starts the two threads that read from the node at `url`.
    pub fn start(url: &str, state: &Arc<ClusterDemoState>) -> NodeReaders {
        let (of_lines, of_books) = ((url.to_owned(), Arc::clone(state)), (url.to_owned(), Arc::clone(state)));
        NodeReaders {
            lines: std::thread::spawn(move || receive_lines(&of_lines.0, &of_lines.1)),
            books: std::thread::spawn(move || follow(&of_books.0, &of_books.1)),
        }
    }

    pub fn is_finished(&self) -> bool {
        self.lines.is_finished() && self.books.is_finished()
    }

    pub fn join(self) -> Result<(ReadProgressByTopic, ReplicaResult)> {
        let lines = self
            .lines
            .join()
            .map_err(|_| anyhow!("the thread that receives the lines of the recordings panicked"))?;
        let books =
            self.books.join().map_err(|_| anyhow!("the thread that replicates the order books panicked"))?;
        Ok((
            lines.context("the thread that receives the lines of the recordings failed")?,
            books.context("the thread that replicates the order books failed")?,
        ))
    }
}

/// Connects and subscribes. Retries for at most [`PATIENCE`].
fn subscribe(url: &str, pattern: &str, start: Start, on_gap: OnGap) -> Result<Subscriber> {
    let name = format!("demo: {pattern}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let client = Client::connect(url, ClientOptions { name: name.clone(), ..ClientOptions::default() });
        let options = SubscribeOptions { name: name.clone(), start, on_gap, ..SubscribeOptions::default() };
        let subscribed =
            client.map_err(anyhow::Error::from).and_then(|client| Ok(client.subscribe(pattern, options)?));
        match subscribed {
            Ok(subscriber) => return Ok(subscriber),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_unreachable) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The state of a reader's connection to its node. Measures the time from the loss of the connection to the next event.
struct ReaderLink<'s> {
    state: &'s ClusterDemoState,
    disconnected_since: Option<Instant>,
}

impl<'s> ReaderLink<'s> {
    fn of(state: &'s ClusterDemoState) -> ReaderLink<'s> {
        ReaderLink { state, disconnected_since: None }
    }

    fn default_if_disconnected<T: Default>(&mut self, outcome: Result<T, SubscribeError>) -> Result<T> {
        match outcome {
            Err(SubscribeError::Connection(_)) => {
                self.disconnected_since.get_or_insert_with(Instant::now);
                std::thread::sleep(POLL_INTERVAL);
                Ok(T::default())
            }
            other => Ok(other?),
        }
    }

    /// Must be called for each event. If the connection was lost before this event, counts a reconnection, and records
    /// how long the reader received nothing.
    fn record_event(&mut self) {
        if let Some(since) = self.disconnected_since.take() {
            self.state.record_reconnect(since.elapsed());
        }
    }
}

fn receive_lines(url: &str, state: &ClusterDemoState) -> Result<ReadProgressByTopic> {
    let mut subscriber = subscribe(url, MARKETS, Start::Earliest, OnGap::Oldest)?;
    let (mut by_topic, mut link) = (ReadProgressByTopic::default(), ReaderLink::of(state));
    while !state.is_over() {
        if link
            .default_if_disconnected(subscriber.drain(EVENTS_MAX, |event| add_event(&mut by_topic, &event)))?
            > 0
        {
            link.record_event();
            continue;
        }
        let through =
            |topic: &str, last: u64| by_topic.get(topic).map_or(0, |progress| progress.through.seq) >= last;
        if let Some(ends) = state.ends.get()
            && ends
                .iter()
                .filter(|(topic, _)| topic.starts_with("market."))
                .all(|(topic, last)| through(topic, *last))
        {
            break;
        }
        link.default_if_disconnected(subscriber.wait(Some(IDLE)))?;
    }
    Ok(by_topic)
}

fn follow(url: &str, state: &Arc<ClusterDemoState>) -> Result<ReplicaResult> {
    let subscriber = subscribe(url, PATTERN, Start::Snapshot, OnGap::Snapshot)?;
    let reducers = Arc::clone(state);
    let mut replica = Replica::new(subscriber, move |log| {
        State::of(&reducers.reducer(&log.topic)).unwrap_or_else(|_| State::Last(LastValue::default()))
    });
    let mut link = ReaderLink::of(state);
    while !state.is_over() && !has_read_all(&replica, state) {
        match link.default_if_disconnected(replica.drain(now_ns(), EVENTS_MAX, |_| {}))? {
            0 => drop(link.default_if_disconnected(replica.wait(Some(IDLE)))?),
            _ => link.record_event(),
        }
    }
    let mut result = ReplicaResult::default();
    add(&mut result.counts, &replica.counts());
    let book = |state: &State| (levels(state), dunlin_topic::Reducer::checksum(state));
    result.books = replica
        .states()
        .map(|(log, _, state)| {
            let (levels, checksum) = book(state);
            (log.topic.clone(), levels, checksum)
        })
        .collect();
    Ok(result)
}

fn has_read_all(replica: &Replica<State, Subscriber>, state: &ClusterDemoState) -> bool {
    let Some(ends) = state.ends.get() else { return false };
    let through = |topic: &String, last: u64| {
        replica.states().any(|(log, at, _)| log.topic == *topic && at.seq >= last)
    };
    let books = ends.iter().filter(|(topic, last)| !topic.starts_with("market.") && **last > 0);
    replica.is_whole() && books.clone().all(|(topic, last)| through(topic, *last))
}

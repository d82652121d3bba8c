//! `read URL NAME=KIND@PATTERN,… …`: subscribes and writes traces.
//!
//! Each argument is a client with one connection, each `NAME=KIND@PATTERN` in it a subscription in its own thread.
//! Kinds: `next` waits for each event, `drain` takes many at once, `poll` never waits, `task` is async, `slow` pauses
//! often and grants little credit, `registered` is a subscriber for which a reliable topic's publishers wait. `late`
//! before a kind starts at the oldest retained record.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dunlin_client::topic::{Event, Notice, Start, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions, Subscriber};

use crate::content::Content;
use crate::seed::Seed;
use crate::trace::TraceLine;

/// The timeout of a call that waits for an event.
const CALL: Duration = Duration::from_millis(300);
/// The longest duration of a call: two heartbeats, and time for a busy machine.
const CALL_MAX: Duration = Duration::from_secs(30);
/// The limit of bytes in transit to a slow subscriber. It is small, so that the sockets' buffers hold few records.
const SLOW_CREDIT: usize = 8 << 10;

/// Subscribes and reads.
pub fn run(arguments: &[String]) -> Result<()> {
    super::stop_when_told();
    let (sender, lines) = channel();
    for asked in &arguments[1..] {
        let slow = asked.contains("=slow");
        let credit_bytes = if slow { SLOW_CREDIT } else { ClientLimits::default().credit_bytes };
        let limits = ClientLimits { credit_bytes, ..ClientLimits::default() };
        let client = Client::connect(&arguments[0], ClientOptions { limits, ..ClientOptions::default() })?;
        for asked in asked.split(',') {
            let (name, rest) = asked.split_once('=').context("expected NAME=KIND@PATTERN")?;
            let (kind, pattern) = rest.split_once('@').context("expected KIND@PATTERN")?;
            let mut reader = Reader::begin(&client, name, kind, pattern, sender.clone())?;
            std::thread::spawn(move || reader.read());
        }
    }
    drop(sender);
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

struct Reader {
    subscriber: Subscriber,
    kind: String,
    writing: TraceWriter,
    seed: Seed,
}

/// Trace lines that are not written yet.
struct TraceWriter {
    name: String,
    lines: Sender<String>,
    held: Option<TraceLine>,
    done: bool,
}

impl Reader {
    fn begin(
        client: &Client,
        name: &str,
        kind: &str,
        pattern: &str,
        lines: Sender<String>,
    ) -> Result<Reader> {
        let kind = kind.strip_prefix("late-").unwrap_or(kind).to_owned();
        let options = SubscribeOptions {
            name: name.to_owned(),
            start: Start::Earliest,
            registered: kind == "registered",
            ..SubscribeOptions::default()
        };
        let subscriber = subscribe(client, pattern, &options)?;
        let mut writing = TraceWriter { name: name.to_owned(), lines, held: None, done: false };
        writing.tell(TraceLine::Up);
        let seed = Seed::new(name.bytes().map(u64::from).sum());
        Ok(Reader { subscriber, kind, writing, seed })
    }

    fn read(&mut self) {
        if self.kind == "task" {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            return runtime.expect("a runtime").block_on(self.read_as_task());
        }
        while !self.writing.done {
            let began = Instant::now();
            let outcome = match self.kind.as_str() {
                "next" => self.next(),
                "poll" => self.poll(),
                "slow" => self.slowly(),
                _ => self.drain(1_000),
            };
            self.judge(began, outcome);
        }
    }

    async fn read_as_task(&mut self) {
        while !self.writing.done {
            let began = Instant::now();
            let outcome = match tokio::time::timeout(CALL_MAX, self.subscriber.next_async()).await {
                Ok(Ok(event)) => {
                    self.writing.note(event);
                    Ok(())
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Ok(()),
            };
            self.judge(began, outcome);
        }
    }

    fn judge(&mut self, began: Instant, outcome: Result<(), SubscribeError>) {
        let took = began.elapsed();
        if took >= CALL_MAX {
            self.writing.tell(TraceLine::Wrong(format!("a call took {} ms", took.as_millis())));
        }
        match outcome {
            Ok(()) => {}
            Err(SubscribeError::Connection(why)) => self.writing.tell(TraceLine::Away(why)),
            Err(error) => {
                self.writing.tell(TraceLine::Wrong(format!("it ended: {error}")));
                self.writing.done = true;
            }
        }
    }

    fn next(&mut self) -> Result<(), SubscribeError> {
        if let Some(event) = self.subscriber.next_timeout(CALL)? {
            self.writing.note(event);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), SubscribeError> {
        while let Some(event) = self.subscriber.try_next()? {
            self.writing.note(event);
        }
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn slowly(&mut self) -> Result<(), SubscribeError> {
        std::thread::sleep(Duration::from_millis(self.seed.between(5, 40)));
        self.drain(8)
    }

    fn drain(&mut self, max: usize) -> Result<(), SubscribeError> {
        self.subscriber.wait(Some(CALL))?;
        let writing = &mut self.writing;
        self.subscriber.drain(max, |event| writing.note(event)).map(drop)
    }
}

/// Subscribes, and retries while the node is down.
fn subscribe(client: &Client, pattern: &str, options: &SubscribeOptions) -> Result<Subscriber> {
    for _ in 0..20 {
        match client.subscribe(pattern, options.clone()) {
            Ok(subscriber) => return Ok(subscriber),
            Err(SubscribeError::Connection(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("cannot subscribe to {pattern}")
}

impl TraceWriter {
    fn note(&mut self, event: Event<'_>) {
        if self.done {
            return;
        }
        match event {
            Event::Record(record) => match Content::decode(record.payload()) {
                Some(Content { writer, n, last }) => {
                    let (epoch, seq) = (record.position.epoch, record.position.seq);
                    self.tell(TraceLine::Records { writer, epoch, seqs: (seq, seq), ns: (n, n) });
                    if last {
                        self.done = true;
                        self.tell(TraceLine::Done);
                    }
                }
                None => self.tell(TraceLine::Wrong(format!("{} has other bytes", record.position))),
            },
            Event::Notice(Notice::Gap(gap)) => self.tell(TraceLine::Gap(gap.epoch, gap.first, gap.last)),
            Event::Notice(Notice::Lagging(_)) => self.tell(TraceLine::Lagging),
            Event::Notice(Notice::EpochChanged(changed)) => self.tell(TraceLine::Epoch {
                old: changed.old,
                last_seen: changed.last_seen,
                new_first: (changed.new_first.epoch, changed.new_first.seq),
            }),
            Event::Notice(other) => self.tell(TraceLine::Wrong(format!("nobody asked for {other:?}"))),
        }
    }

    fn tell(&mut self, told: TraceLine) {
        if self.held.as_mut().is_some_and(|held| held.join(&told)) {
            return;
        }
        let write_now = !matches!(told, TraceLine::Records { .. });
        if let Some(before) = self.held.replace(told) {
            self.write(&before);
        }
        if write_now && let Some(told) = self.held.take() {
            self.write(&told);
        }
    }

    fn write(&self, told: &TraceLine) {
        // Sending fails if the receiver has ended, which is no error.
        let _ = self.lines.send(format!("{} {told}", self.name));
    }
}

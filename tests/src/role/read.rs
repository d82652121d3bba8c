//! `read URL NAME=KIND@PATTERN,… …`: subscribes, and prints a trace for each subscription.
//!
//! Each argument after the URL stands for a client with one connection. Each `NAME=KIND@PATTERN` in such an argument
//! stands for a subscription of this client, with its own thread. KIND says how the subscription reads: `next` waits
//! for each event, `drain` takes many events at once, `poll` never waits, `task` is async, and `slow` pauses often and
//! grants little credit.
//!
//! Publishers of a reliable topic wait for a subscriber of the kind `registered`. The kind `late-KIND` reads as KIND
//! does, but joins after the first records. Every subscription starts at the oldest retained record.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dunlin_client::topic::{Event, Notice, Start, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions, Subscriber};

use crate::content::TestPayload;
use crate::seed::SeededRandom;
use crate::trace::TraceLine;

/// The timeout of a call that waits for an event.
const CALL_TIMEOUT: Duration = Duration::from_millis(300);
/// The longest time that a call may take: two heartbeats, and more because the machine may be busy.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How many bytes a node may send to a slow subscriber in advance. This number is small, so that the sockets' buffers
/// hold few records.
const SLOW_CREDIT: usize = 8 << 10;

/// Runs the role `read`: subscribes with all clients, and prints the traces.
pub fn run(arguments: &[String]) -> Result<()> {
    super::stop_flag();
    let (sender, lines) = channel();
    for argument in &arguments[1..] {
        let slow = argument.contains("=slow");
        let credit_bytes = if slow { SLOW_CREDIT } else { ClientLimits::default().credit_bytes };
        let limits = ClientLimits { credit_bytes, ..ClientLimits::default() };
        let client = Client::connect(&arguments[0], ClientOptions { limits, ..ClientOptions::default() })?;
        for argument in argument.split(',') {
            let (name, rest) = argument.split_once('=').context("expected NAME=KIND@PATTERN")?;
            let (kind, pattern) = rest.split_once('@').context("expected KIND@PATTERN")?;
            let mut reader = Reader::start(&client, name, kind, pattern, sender.clone())?;
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
    writer: TraceWriter,
    seed: SeededRandom,
}

/// Writes the trace of one subscription. Consecutive records share one line.
struct TraceWriter {
    name: String,
    lines: Sender<String>,
    pending: Option<TraceLine>,
    done: bool,
}

impl Reader {
    fn start(
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
        let mut writer = TraceWriter { name: name.to_owned(), lines, pending: None, done: false };
        writer.add_line(TraceLine::Up);
        let seed = SeededRandom::new(name.bytes().map(u64::from).sum());
        Ok(Reader { subscriber, kind, writer, seed })
    }

    fn read(&mut self) {
        if self.kind == "task" {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            return runtime.expect("a runtime").block_on(self.read_as_task());
        }
        while !self.writer.done {
            let start = Instant::now();
            let outcome = match self.kind.as_str() {
                "next" => self.next(),
                "poll" => self.poll(),
                "slow" => self.read_slowly(),
                _ => self.drain(1_000),
            };
            self.check_call(start, outcome);
        }
    }

    async fn read_as_task(&mut self) {
        while !self.writer.done {
            let start = Instant::now();
            let outcome = match tokio::time::timeout(CALL_MAX, self.subscriber.next_async()).await {
                Ok(Ok(event)) => {
                    self.writer.record_event(event);
                    Ok(())
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Ok(()),
            };
            self.check_call(start, outcome);
        }
    }

    fn check_call(&mut self, start: Instant, outcome: Result<(), SubscribeError>) {
        let took = start.elapsed();
        if took >= CALL_MAX {
            self.writer.add_line(TraceLine::Wrong(format!("a call took {} ms", took.as_millis())));
        }
        match outcome {
            Ok(()) => {}
            Err(SubscribeError::Connection(reason)) => self.writer.add_line(TraceLine::Away(reason)),
            Err(error) => {
                self.writer.add_line(TraceLine::Wrong(format!("it ended: {error}")));
                self.writer.done = true;
            }
        }
    }

    fn next(&mut self) -> Result<(), SubscribeError> {
        if let Some(event) = self.subscriber.next_timeout(CALL_TIMEOUT)? {
            self.writer.record_event(event);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), SubscribeError> {
        while let Some(event) = self.subscriber.try_next()? {
            self.writer.record_event(event);
        }
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn read_slowly(&mut self) -> Result<(), SubscribeError> {
        std::thread::sleep(Duration::from_millis(self.seed.between(5, 40)));
        self.drain(8)
    }

    fn drain(&mut self, max: usize) -> Result<(), SubscribeError> {
        self.subscriber.wait(Some(CALL_TIMEOUT))?;
        let writer = &mut self.writer;
        self.subscriber.drain(max, |event| writer.record_event(event)).map(drop)
    }
}

/// Subscribes to a pattern. Repeats the request while the node is down.
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
    fn record_event(&mut self, event: Event<'_>) {
        if self.done {
            return;
        }
        match event {
            Event::Record(record) => match TestPayload::decode(record.payload()) {
                Some(TestPayload { writer, n, last }) => {
                    let (epoch, seq) = (record.position.epoch, record.position.seq);
                    self.add_line(TraceLine::Records { writer, epoch, seqs: (seq, seq), ns: (n, n) });
                    if last {
                        self.done = true;
                        self.add_line(TraceLine::Done);
                    }
                }
                None => self.add_line(TraceLine::Wrong(format!("{} has other bytes", record.position))),
            },
            Event::Notice(Notice::Gap(gap)) => self.add_line(TraceLine::Gap(gap.epoch, gap.first, gap.last)),
            Event::Notice(Notice::Lagging(_)) => self.add_line(TraceLine::Lagging),
            Event::Notice(Notice::EpochChanged(changed)) => self.add_line(TraceLine::Epoch {
                old: changed.old,
                last_seen: changed.last_seen,
                new_first: (changed.new_first.epoch, changed.new_first.seq),
            }),
            Event::Notice(other) => self.add_line(TraceLine::Wrong(format!("nobody asked for {other:?}"))),
        }
    }

    fn add_line(&mut self, line: TraceLine) {
        if self.pending.as_mut().is_some_and(|pending| pending.join(&line)) {
            return;
        }
        let write_now = !matches!(line, TraceLine::Records { .. });
        if let Some(previous) = self.pending.replace(line) {
            self.write(&previous);
        }
        if write_now && let Some(line) = self.pending.take() {
            self.write(&line);
        }
    }

    fn write(&self, line: &TraceLine) {
        // Ignores the error, which means that the receiver has ended.
        let _ = self.lines.send(format!("{} {line}", self.name));
    }
}

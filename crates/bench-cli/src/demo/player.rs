//! Publishes every line of the recordings when it is due, and counts the line in the demo's ledger of published lines.

use std::ops::ControlFlow;

use anyhow::{Context, Result, ensure};
use dunlin_topic::{Position, Publish};

use super::ledger::LineLedger;
use super::recording::MarketRecording;
use super::schedule::ScheduledLine;

/// A topic to which the lines of one recording are published, and the topic's publisher.
#[derive(Debug)]
pub struct RecordingPublisher<P> {
    pub topic: String,
    /// The index of the recording whose lines are published.
    pub recording: usize,
    pub publisher: P,
}

/// Publishes all lines. Before each line, calls `wait_until_due`. This function waits until the line is due. It returns
/// `Break` to end the replay.
///
/// Returns the position of each topic's last record, as the node reports it. Fails if a position differs from the
/// number of lines that the ledger counted for the topic.
pub fn play<P: Publish>(
    recordings: &[MarketRecording],
    schedule: impl Iterator<Item = ScheduledLine>,
    streams: &mut [RecordingPublisher<P>],
    ledger: &mut LineLedger<'_>,
    mut wait_until_due: impl FnMut(ScheduledLine) -> Result<ControlFlow<()>>,
) -> Result<Vec<(String, Position)>> {
    for due in schedule {
        if wait_until_due(due)?.is_break() {
            break;
        }
        let line = recordings[due.recording].line(due.line);
        for stream in streams.iter_mut().filter(|stream| stream.recording == due.recording) {
            let published = stream.publisher.send(line);
            published.with_context(|| format!("cannot publish to {}", stream.topic))?;
            ledger.count_published(&stream.topic);
        }
    }
    streams.iter_mut().map(|stream| finish_stream(stream, ledger)).collect()
}

fn finish_stream<P: Publish>(
    stream: &mut RecordingPublisher<P>,
    ledger: &LineLedger<'_>,
) -> Result<(String, Position)> {
    let topic = &stream.topic;
    let receipt = stream.publisher.flush().with_context(|| format!("cannot publish to {topic}"))?;
    let last = receipt.map_or(Position::default(), |receipt| receipt.position);
    let published = ledger.count(topic);
    ensure!(
        last.seq == published,
        "{published} lines were published to {topic}, but the node counts {}",
        last.seq
    );
    Ok((topic.clone(), last))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;

    use dunlin_topic::{
        Clock, ConsumeMode, Cursor, MemoryBudget, OnGap, Retention, Start, SubscribeOptions, Subscriber,
        Topic, TopicConfig, WaitStrategy,
    };

    use super::super::ledger::ContentMatch;
    use super::super::reader::DemoReader;
    use super::super::recording::MarketRecordingFormat;
    use super::super::schedule::schedule;
    use super::*;
    use dunlin_cli::commands::demo::Speed;
    use dunlin_cli::commands::parse::unix_ns;

    fn recording(lines: usize) -> MarketRecording {
        let text: String =
            (0..lines).map(|at| format!("{{\"pt\":{at},\"mc\":[{{\"id\":\"1.5\"}}]}}\n")).collect();
        MarketRecording::parse("a", text.into_bytes(), MarketRecordingFormat::Betfair).unwrap()
    }

    fn topic(name: &str, bytes: u64) -> Arc<Topic> {
        let config =
            TopicConfig { retention: Retention { bytes, ..Retention::default() }, ..TopicConfig::default() };
        let budget = MemoryBudget::node(64 << 20, 0);
        let clock = Clock::new(|| unix_ns(SystemTime::now()));
        Arc::new(Topic::new(name, Arc::new(config), &budget, clock, 1).unwrap())
    }

    fn subscriber(topic: &Arc<Topic>) -> Subscriber {
        let options =
            SubscribeOptions { start: Start::Earliest, on_gap: OnGap::Oldest, ..SubscribeOptions::default() };
        let log = Arc::clone(&topic.logs()[0]);
        Subscriber::one(Cursor::new(log, &options, None, ConsumeMode::Reads).unwrap(), WaitStrategy::Default)
    }

    #[test]
    fn records_and_gaps_of_late_readers_add_up_to_the_recording() {
        let recordings = [recording(20_000)];
        let (whole, short) = (topic("whole", 16 << 20), topic("short", 64 << 10));
        let stream = |topic: &Arc<Topic>| {
            let publisher = topic.publisher(topic.name());
            RecordingPublisher { topic: topic.name().to_owned(), recording: 0, publisher }
        };
        let mut streams = [stream(&whole), stream(&short)];
        let mut ledger = LineLedger::default();
        ["whole", "short"].iter().for_each(|topic| ledger.add_topic(topic, &recordings[0]));

        // The subscribers begin to read after the last record. By then, the topic with the short retention has dropped
        // records.
        let subscribers = [&whole, &short].map(subscriber);
        let plan = schedule(&recordings, Speed::Max);
        let ends =
            play(&recordings, plan, &mut streams, &mut ledger, |_| Ok(ControlFlow::Continue(()))).unwrap();
        let ends: BTreeMap<_, _> = ends.into_iter().collect();

        let reader = DemoReader::default();
        std::thread::scope(|scope| {
            for subscriber in subscribers {
                scope.spawn(|| reader.read(subscriber, &[]));
            }
            while !reader.has_read_all(&ends) {
                std::thread::yield_now();
            }
            reader.stop();
        });
        let accounts = reader.accounts().clone();
        let [whole, short] = ["whole", "short"].map(|topic| ledger.judge(topic, &accounts[topic]));
        assert_eq!((whole.unaccounted, whole.gaps, whole.bytes), (0, 0, ContentMatch::Equal));
        assert_eq!((short.unaccounted, short.bytes), (0, ContentMatch::EqualButGaps));
        assert!(
            short.missed > 0 && short.received > 0 && short.received + short.missed == 20_000,
            "{short:?}"
        );
    }

    #[test]
    fn interrupted_demo_playback_counts_only_published_records() {
        let recordings = [recording(10)];
        let topic = topic("whole", 1 << 20);
        let mut streams =
            [RecordingPublisher { topic: "whole".into(), recording: 0, publisher: topic.publisher("whole") }];
        let mut ledger = LineLedger::default();
        ledger.add_topic("whole", &recordings[0]);
        let until = |due: ScheduledLine| {
            Ok(if due.line < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        };
        let ends =
            play(&recordings, schedule(&recordings, Speed::Max), &mut streams, &mut ledger, until).unwrap();
        assert_eq!(ends[0].1.seq, 4);
        assert_eq!(ledger.count("whole"), 4);
    }
}

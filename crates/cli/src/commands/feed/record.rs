//! The command `dunlin feed record`, which writes a state topic's current state and all later records to files.
//!
//! A recorder that falls behind receives a complete state, writes it, and continues from there. The recording then
//! lacks the records before this state. All recorded states are correct nevertheless. At the end, the command prints
//! how many records are missing.
//!
//! A recording has one log and one state for each topic. A topic with several partitions is not recorded, because each
//! partition has its own state.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::now_ns;
use dunlin_client::{Client, Subscriber};
use dunlin_feed::{ChangeCause, Replica, ReplicaReport, StateChange};
use dunlin_topic::{LogName, OnGap, Start, SubscribeError, SubscribeOptions, TopicConfig};

use super::recording::list::{self, RecordedTopic, RecordedTopics};
use super::recording::{self, RecordCounts, RecordedLog};
use super::watch::pattern_of;
use crate::arguments::GlobalOptions;
use crate::commands::parse;
use crate::connect::connect;
use crate::console::{Console, grouped};
use crate::outage::OutageReport;
use crate::outcome::CommandRefusal;
use crate::progress::TransferProgress;
use crate::signals::StopFlag;
use crate::state::State;

/// Arguments of `dunlin feed record`, which records state topics to files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed record --out rec/ 'md.>'
  dunlin feed record --out rec/ md.BTC-USD --time 10s

Ctrl-C closes the recording. `dunlin feed verify --strict rec/` checks that it is complete, and `dunlin feed replay rec/`
publishes it again.")]
pub struct Arguments {
    /// Names of the state topics to record, or patterns that match them
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Directory to create for the recording
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// End after this time [default: no end]
    #[arg(long, value_name = "DURATION", value_parser = parse::positive_duration)]
    time: Option<Duration>,
}

/// The interval at which written records are synced to disk.
const SYNC_EVERY: Duration = Duration::from_millis(200);
/// The largest number of changes to states that are processed before the buffered records are written to the files.
const CHANGES_MAX: usize = 4096;
/// The longest wait for changes to states, before the command checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    recording::create_dir(&arguments.out)?;
    let client = connect(global, "dunlin feed record")?;
    let mut recorder = Recorder::new(&arguments.out);
    let outcome = record(arguments, &client, &mut recorder, &stop, console);
    // Close the files even after an error, so that the written records stay readable.
    let closed = recorder.close(console);
    outcome.and(closed)
}

fn record(
    arguments: &Arguments,
    client: &Client,
    recorder: &mut Recorder,
    stop: &StopFlag,
    console: &Console,
) -> Result<()> {
    let mut replicas = Vec::new();
    for pattern in &arguments.patterns {
        replicas.push(follow(client, pattern)?);
    }
    let (started, mut synced) = (Instant::now(), Instant::now());
    let mut outage = OutageReport::default();
    let progress = TransferProgress::of_time("recording", arguments.time);
    while !stop.is_set() && arguments.time.is_none_or(|time| started.elapsed() < time) {
        recorder.check_states(client)?;
        for replica in &mut replicas {
            let taken = recorder.apply_changes(client, replica)?;
            let outcome =
                taken.and_then(|taken| if taken > 0 { Ok(true) } else { replica.wait(Some(POLL_INTERVAL)) });
            match outcome {
                Ok(_) => outage.report_restored(),
                Err(error) => progress.suspend(|| outage.handle_error(error, console.errors))?,
            }
        }
        for warning in recorder.warnings.drain(..) {
            let line = format!("{} {warning}", console.errors.warning("warning:"));
            progress.suspend(|| writeln!(std::io::stderr(), "{line}"))?;
        }
        progress.set_elapsed(started.elapsed(), || format!("{} records", grouped(recorder.counts().records)));
        if synced.elapsed() >= SYNC_EVERY {
            synced = Instant::now();
            recorder.sync()?;
        }
    }
    Ok(())
}

fn follow(client: &Client, subject: &str) -> Result<Replica<State, Subscriber>> {
    let pattern = &pattern_of(client, subject)?;
    let options = SubscribeOptions {
        name: "dunlin feed record".to_owned(),
        start: Start::Snapshot,
        on_gap: OnGap::Snapshot,
        ..SubscribeOptions::default()
    };
    let subscriber =
        client.subscribe(pattern, options).with_context(|| format!("cannot subscribe to {pattern}"))?;
    // The topics are state topics: the node refuses a subscription with `Start::Snapshot` to any other topic. Each
    // topic must also have only one partition.
    if let Some(topic) = client.topics(subject)?.into_iter().find(|topic| topic.partitions > 1) {
        let (name, partitions) = (topic.name, topic.partitions);
        let message = format!(
            "topic {name:?} has {partitions} partitions, each with a state of its own, but a recording has one state \
             for each topic: record other topics, or create the topic with one partition"
        );
        return Err(CommandRefusal(message).into());
    }
    let client = client.clone();
    Ok(Replica::new(subscriber, move |log| State::of_topic(&client, &log.topic)))
}

/// The topic's configuration; `None` if it is unknown, for example because the node does not respond.
fn topic_config(client: &Client, topic: &str) -> Option<TopicConfig> {
    client.describe_topic(topic).ok().map(|described| described.config)
}

/// The pattern of the topic's subjects; `None` if the topic's name is its only subject.
fn own_pattern(config: TopicConfig, topic: &str) -> Option<String> {
    config.pattern.filter(|pattern| pattern != topic)
}

fn has_own_pattern(log: &LogName) -> bool {
    log.subject_prefix != log.topic
}

/// The reason why a topic cannot be recorded; `None` if the topic can be recorded, or if `config` is `None`, that is,
/// unknown.
fn obstacle(config: Option<&TopicConfig>, log: &LogName) -> Option<&'static str> {
    if config.is_some_and(|config| config.reducer.is_none()) {
        Some("keeps no state")
    } else if log.partition > 0 || config.is_some_and(|config| config.partitions > 1) {
        Some("has several partitions, each with a state of its own")
    } else {
        None
    }
}

struct Recorder {
    out: PathBuf,
    logs: HashMap<String, RecordedLog>,
    /// The epoch of each topic's last record.
    epochs: HashMap<String, u32>,
    /// Topics whose state may be wrong, for example because a new epoch has begun.
    suspect: BTreeSet<String>,
    /// Topics that match a pattern, but cannot be recorded.
    unrecorded: BTreeSet<String>,
    /// Warnings that were not printed yet.
    warnings: Vec<String>,
    /// The number of records that are already part of a recorded state and therefore not recorded separately.
    skipped: u64,
}

impl Recorder {
    fn new(out: &Path) -> Recorder {
        Recorder {
            out: out.to_owned(),
            logs: HashMap::new(),
            epochs: HashMap::new(),
            suspect: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            warnings: Vec::new(),
            skipped: 0,
        }
    }

    fn apply_changes(
        &mut self,
        client: &Client,
        replica: &mut Replica<State, Subscriber>,
    ) -> Result<Result<usize, SubscribeError>> {
        let (mut written, mut suspect) = (Ok(()), Vec::new());
        let taken = replica.drain(now_ns(), CHANGES_MAX, |report| {
            if written.is_ok() {
                written = match &report {
                    ReplicaReport::Changed(change) => self.write(client, change),
                    ReplicaReport::Agreed { log, state, .. } => self.append_checksum(&log.topic, state),
                    ReplicaReport::Fault { log, .. } => {
                        suspect.push(log.topic.clone());
                        Ok(())
                    }
                    ReplicaReport::Deleted { log, .. } => self.end_topic(&log.topic),
                    ReplicaReport::Publishers(_) => Ok(()),
                };
            }
        });
        self.suspect.extend(suspect.into_iter().filter(|topic| !self.unrecorded.contains(topic)));
        written?;
        Ok(taken)
    }

    /// Returns an error if a recorded topic was deleted and created again without a state, because nothing could
    /// interpret the new topic's records. If a topic without a state was not recorded so far, excludes the topic from
    /// the recording instead.
    fn check_states(&mut self, client: &Client) -> Result<()> {
        for topic in std::mem::take(&mut self.suspect) {
            // If the node does not respond or the topic was deleted, the command cannot know whether the topic has a
            // state.
            if client.describe_topic(&topic).is_ok_and(|described| described.config.reducer.is_none()) {
                if self.logs.contains_key(&topic) {
                    let why = "was created again without a state, so the recording ends here";
                    return Err(CommandRefusal(format!("topic {topic:?} {why}")).into());
                }
                self.leave_out(&topic, "keeps no state");
            }
        }
        Ok(())
    }

    /// Excludes a topic from the recording, with a warning.
    fn leave_out(&mut self, topic: &str, why: &str) {
        if self.unrecorded.insert(topic.to_owned()) {
            self.warnings.push(format!("topic {topic:?} {why}, so it is not recorded"));
        }
    }

    fn write(&mut self, client: &Client, change: &StateChange<'_, State>) -> Result<()> {
        let topic = &change.log.topic;
        if self.unrecorded.contains(topic) {
            return Ok(());
        }
        let Some(log) = self.logs.get_mut(topic) else {
            let config = topic_config(client, topic);
            if let Some(why) = obstacle(config.as_ref(), change.log) {
                self.leave_out(topic, why);
                return Ok(());
            }
            // A recording without the topic's pattern could not be replayed, so the recording of this topic does not
            // begin yet. At the topic's next change, this function tries again.
            if config.is_none() && has_own_pattern(change.log) {
                return Ok(());
            }
            let pattern = config.and_then(|config| own_pattern(config, topic));
            // The first record of a recording is a complete state.
            let mut log = RecordedLog::create(&self.out, topic, pattern)?;
            log.set_min_time(now_ns());
            log.append_state(change.state)?;
            self.epochs.insert(topic.clone(), change.to.epoch);
            self.logs.insert(topic.clone(), log);
            return Ok(());
        };
        if change.log.partition > 0 {
            let why = "was created again with several partitions, so the recording ends here";
            return Err(CommandRefusal(format!("topic {topic:?} {why}")).into());
        }
        let before = self.epochs.insert(topic.clone(), change.to.epoch);
        if before.is_some_and(|before| before != change.to.epoch) {
            // The topic's new epoch begins with a state that does not follow from the recorded states.
            self.suspect.insert(topic.clone());
            let config = topic_config(client, topic);
            if config.is_some_and(|config| own_pattern(config, topic).as_deref() != log.pattern()) {
                let why = "was created again with another pattern, so the recording ends here";
                return Err(CommandRefusal(format!("topic {topic:?} {why}")).into());
            }
            return log.append_state(change.state);
        }
        // Within an epoch, positions only increase.
        self.skipped += (change.to.seq - change.from.seq).saturating_sub(1);
        match change.cause {
            ChangeCause::Record(frame) | ChangeCause::Merged(frame) => log.append_frame(&frame),
            // A subscriber that missed records receives a state in place of these records, so the recording contains
            // the state.
            ChangeCause::Snapshot => log.append_state(change.state),
        }
    }

    fn append_checksum(&mut self, topic: &str, state: &State) -> Result<()> {
        self.logs.get_mut(topic).map_or(Ok(()), |log| log.append_checksum(state))
    }

    /// Ends a topic's recording when the topic is deleted. If a topic with this name is created later, its records go
    /// to the same log.
    fn end_topic(&mut self, topic: &str) -> Result<()> {
        self.unrecorded.remove(topic);
        self.logs.get_mut(topic).map_or(Ok(()), RecordedLog::append_end)
    }

    fn counts(&self) -> RecordCounts {
        let mut all = RecordCounts::default();
        self.logs.values().for_each(|log| all += log.counts());
        all
    }

    fn sync(&mut self) -> Result<()> {
        self.logs.values_mut().try_for_each(RecordedLog::sync)
    }

    fn close(self, console: &Console) -> Result<()> {
        let counts = self.counts();
        let records: Vec<(String, u64)> =
            self.logs.iter().map(|(topic, log)| (topic.clone(), log.records())).collect();
        // Close all logs, even if one fails.
        let closed: Vec<Result<u64>> = self.logs.into_values().map(RecordedLog::close).collect();
        let bytes = closed.into_iter().sum::<Result<u64>>()?;
        let entry = |(topic, records): (String, u64)| {
            let entry = RecordedTopic::of(&recording::topic_dir(&self.out, &topic), records)?;
            Ok((topic, entry))
        };
        let topics = records.into_iter().map(entry).collect::<Result<RecordedTopics>>()?;
        list::write(&self.out, &topics)?;
        let more = match self.skipped {
            0 => String::new(),
            skipped => format!("; {} missed updates are covered by recorded states", grouped(skipped)),
        };
        recording::print_counts(counts, topics.len(), bytes, &more, console)
    }
}

//! Starts the subscription that a client's request describes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use dunlin::topic::{Filter, Log, NewLogs, Pattern, Position, Start, SubscribeOptions, WaitStrategy, Waiter};
use dunlin::wire::ErrorCode;
use dunlin::{Inbox, LogsToRead, MissingTopicPolicy, Refused, log_of_position};
use v1::start::At;

use super::connection::GrpcConnection;
use super::proto::dunlin as v1;
use super::reader::{ReaderSetup, ResumePositions, SubscriptionReader};
use super::translate::on_gap;
use crate::access::SubscriptionAccess;
use crate::session::turn::{find_logs, pause_after};

/// Size of a batch if the request states none, bytes.
const BATCH_BYTES_DEFAULT: usize = 32 << 10;
/// Smallest size of a batch that a request may state, bytes.
const BATCH_BYTES_MIN: usize = 256;

/// Starts the subscription that a request describes. Returns its reader.
pub(super) async fn reader(
    connection: &Arc<GrpcConnection>,
    request: v1::SubscribeRequest,
) -> Result<SubscriptionReader, Refused> {
    let (start, resumed) = start_of(&request)?;
    let options = SubscribeOptions {
        name: request.name.clone(),
        protocol: "grpc",
        start,
        on_gap: on_gap(request.on_gap()),
        wait: WaitStrategy::Parked,
        registered: request.registered,
        conflate: request.conflate,
        test_loss_every: None,
        local_only: false,
        is_literal: false,
        keeps_history: false,
    };
    let batch_bytes = match request.batch_bytes_max as usize {
        0 => BATCH_BYTES_DEFAULT,
        bytes => bytes.max(BATCH_BYTES_MIN),
    };
    begin(connection, &request.subjects, options, resumed, batch_bytes).await
}

pub(super) async fn begin(
    connection: &Arc<GrpcConnection>,
    subjects: &[String],
    mut options: SubscribeOptions,
    mut resumed: Option<ResumePositions>,
    batch_bytes: usize,
) -> Result<SubscriptionReader, Refused> {
    let shared = &connection.shared;
    let limits = &shared.limits;
    if subjects.is_empty() {
        return Err(Refused::new(ErrorCode::Subject, "the request has no subject"));
    }
    if subjects.len() > limits.grpc.subjects_max {
        return Err(Refused::limit("grpc.subjects_max", limits.grpc.subjects_max as u64));
    }
    let waiter = Waiter::new();
    let validity = connection.login.as_ref().map(SubscriptionAccess::of);
    let registration = connection.register_stream(&waiter)?;
    let (mut of_subjects, mut newcomers) = (LogsOfSubjects::default(), None::<Arc<NewLogs>>);
    let mut patterns = Vec::with_capacity(subjects.len());
    for subject in subjects {
        let pattern =
            Pattern::parse(subject).map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
        if Inbox::is_of_any(subject) {
            return Err(Refused::new(ErrorCode::Forbidden, "the inbox belongs to another session"));
        }
        // A resumed subscription may wait for a topic that does not exist, because another client may create it again.
        let missing = MissingTopicPolicy::of(options.start, resumed.is_some());
        let prepared = connection.node.prepare_select(&pattern, missing).await;
        prepared.map_err(|error| Refused::from(&error))?;
        let shared_newcomers =
            || Arc::clone(newcomers.get_or_insert_with(|| NewLogs::with_waiter(Arc::clone(&waiter))));
        let selected = connection.node.select_in_parts(&pattern, options.start, missing, shared_newcomers);
        let mut selected = selected.map_err(|error| Refused::from(&error))?;
        find_logs(&connection.node, &mut selected, limits.channels_max).await;
        if subjects.len() == 1 {
            of_subjects.logs = selected.logs;
        } else {
            of_subjects.add(selected.logs).await;
        }
        if of_subjects.logs.len() > limits.channels_max {
            return Err(Refused::limit("channels_max", limits.channels_max as u64));
        }
        // A request may have many subjects.
        tokio::task::yield_now().await;
        patterns.push(pattern);
    }
    let logs = of_subjects.combine(newcomers.as_deref()).await;
    options.is_literal = patterns.iter().all(Pattern::is_literal);
    if let Some(resumed) = &mut resumed
        && let Some(position) = resumed.remove(&(String::new(), 0))
    {
        let owns_all = |log: &Log| patterns.iter().all(|pattern| connection.node.owns_all_of(log, pattern));
        let owns_all = matches!(logs.as_slice(), [(log, _)] if owns_all(log));
        let log_key = log_of_position(&patterns, &logs, newcomers.is_some() && !owns_all);
        resumed.insert(log_key.map_err(|error| Refused::from(&error))?, position);
    }
    SubscriptionReader::new(ReaderSetup {
        options,
        patterns,
        logs,
        newcomers,
        resumed,
        waiter,
        validity,
        registration,
        channels_max: limits.channels_max,
        batch_bytes_max: batch_bytes.min(limits.grpc.batch_bytes_max),
    })
    .await
}

/// The logs that the subjects of a subscription select, so far. The subscription reads each log once.
#[derive(Debug, Default)]
struct LogsOfSubjects {
    /// Each log once, with the filter of the first subject that selects it, or without a filter if one of the subjects
    /// selects all its records.
    logs: LogsToRead,
    /// The index of each log in `logs`, by the log's number.
    places: HashMap<u64, usize>,
    /// The filters of further subjects, by the log's index in `logs`.
    further: HashMap<usize, Vec<Option<Filter>>>,
}

impl LogsOfSubjects {
    /// Adds the logs that another subject selects.
    async fn add(&mut self, selected: LogsToRead) {
        for (added, (log, filter)) in selected.into_iter().enumerate() {
            match self.places.entry(log.number()) {
                Entry::Occupied(place) => {
                    let place = *place.get();
                    let first = &mut self.logs[place].1;
                    if filter.is_none() {
                        *first = None;
                        self.further.remove(&place);
                    } else if first.is_some() {
                        self.further.entry(place).or_default().push(filter);
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(self.logs.len());
                    self.logs.push((log, filter));
                }
            }
            pause_after(added).await;
        }
    }

    /// Combines the filters of each log. Leaves out logs that are also among `newcomers`: their topics were created
    /// while the subjects were selected, one after another.
    async fn combine(self, newcomers: Option<&NewLogs>) -> LogsToRead {
        let LogsOfSubjects { mut logs, further, .. } = self;
        for (combined, (place, mut filters)) in further.into_iter().enumerate() {
            filters.push(logs[place].1.take());
            logs[place].1 = Filter::any_of(filters);
            pause_after(combined).await;
        }
        let new = newcomers.map(NewLogs::numbers).unwrap_or_default();
        logs.retain(|(log, _)| !new.contains(&log.number()));
        logs
    }
}

fn start_of(request: &v1::SubscribeRequest) -> Result<(Start, Option<ResumePositions>), Refused> {
    Ok(match request.start.as_ref().and_then(|start| start.at.as_ref()) {
        None | Some(At::Latest(_)) => (Start::Latest, None),
        Some(At::Earliest(_)) => (Start::Earliest, None),
        Some(At::TimeNs(ns)) => (Start::Time(*ns), None),
        Some(At::Snapshot(_)) => (Start::Snapshot, None),
        Some(At::After(positions)) => (resumed_start(request), Some(positions_of(positions)?)),
    })
}

/// The start position in a log for which a resumed subscription states no position.
fn resumed_start(request: &v1::SubscribeRequest) -> Start {
    let follows = request.conflate || request.on_gap() == v1::OnGap::Snapshot;
    if follows { Start::Snapshot } else { Start::Earliest }
}

fn positions_of(positions: &v1::Positions) -> Result<ResumePositions, Refused> {
    let mut resumed = HashMap::with_capacity(positions.logs.len());
    for log in &positions.logs {
        let partition = u16::try_from(log.partition);
        let partition =
            partition.map_err(|_| Refused::new(ErrorCode::Partition, log.partition.to_string()))?;
        resumed.insert((log.topic.clone(), partition), Position { epoch: log.epoch, seq: log.seq });
    }
    Ok(resumed)
}

//! Starts the subscriber of an event stream. If the client states positions, the subscriber continues there.

use dunlin::topic::{
    ConsumeMode, Filter, Log, MemoryCharge, NewLogs, Pattern, Position, Start, SubscribeError,
    SubscribeOptions, Subscriber,
};
use dunlin::wire::http::{LogKey, RESUME_LOGS_MAX, ResumeToken};
use dunlin::wire::{self, ErrorCode};
use dunlin::{CLOCK, Inbox, MissingTopicPolicy, Refused, SelectedLogs, log_of_position};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::request::EventsRequest;
use super::stream_positions::StreamPositions;
use crate::charging::charge_subscriptions;
use crate::http::context::Context;
use crate::http::problem::Problem;
use crate::session::turn::{find_logs, pause_after};

/// A started subscriber, with the details that its event stream needs.
#[derive(Debug)]
pub(in crate::http) struct EventSubscription {
    pub(in crate::http) subscriber: Subscriber,
    pub(in crate::http) stream_positions: StreamPositions,
    /// Number of logs for which the client stated positions, but which no longer exist.
    pub(in crate::http) deleted_logs: usize,
    pub(in crate::http) charge: MemoryCharge,
}

/// The name that errors use for the limit on the number of logs of one event stream.
pub(in crate::http) const LOGS_MAX: &str = "event_logs_max";

pub(in crate::http) async fn subscribe(
    context: &Context,
    pattern: &str,
    request: &EventsRequest,
) -> Result<EventSubscription, Problem> {
    let node = context.node();
    let pattern = Pattern::parse(pattern)?;
    if Inbox::is_of_any(pattern.as_str()) {
        return Err(Problem::from(Refused::new(
            ErrorCode::Forbidden,
            "the inbox belongs to another session",
        )));
    }
    let is_system_report = ["$tasks.", "$node."].iter().any(|start| pattern.as_str().starts_with(start));
    if pattern.as_str().starts_with('$') && !is_system_report {
        let text = format!(
            "{:?} is reserved: over HTTP every stream carries sequence numbers; subscribe to the subject itself",
            pattern.as_str()
        );
        return Err(Problem::from(Refused::new(ErrorCode::Subject, text)));
    }
    let options = SubscribeOptions { is_literal: pattern.is_literal(), ..request.options.clone() };
    let missing = MissingTopicPolicy::of(options.start, request.resume.is_some());
    node.prepare_select(&pattern, missing).await?;
    // `Start::Earliest` has no effect here, because each log gets its own start below.
    let mut selected = node.select_in_parts(&pattern, Start::Earliest, missing, NewLogs::new)?;
    find_logs(node, &mut selected, RESUME_LOGS_MAX).await;
    if selected.logs.len() > RESUME_LOGS_MAX {
        return Err(Problem::from(Refused::limit(LOGS_MAX, RESUME_LOGS_MAX as u64)));
    }
    let charge = charge_subscriptions(node, 1 + selected.logs.len(), pattern.as_str().len())?;
    let is_single_log = selected.logs.len() == 1
        && (selected.newcomers.is_none() || node.owns_all_of(&selected.logs[0].0, &pattern));
    if is_single_log {
        selected.newcomers = None;
    }
    let mut starts = StartPositions::new(request, &pattern, &selected)?;
    let mut open = |(log, filter): (Arc<Log>, Option<Filter>)| {
        let start = starts.start_of(&log, &options);
        // In a resumed subscription, the options for new logs apply to all logs.
        let late = request.resume.as_ref().map(|_| options.for_new_log(&log).0);
        node.open_cursor(log, late.as_ref().unwrap_or(&options), start, filter, ConsumeMode::Reads)
    };
    let mut opening = Vec::with_capacity(selected.logs.len());
    for (opened, log) in selected.logs.into_iter().enumerate() {
        opening.push(open(log));
        pause_after(opened).await;
    }
    let mut cursors = Vec::with_capacity(opening.len());
    for cursor in opening {
        cursors.push(cursor.await?);
    }
    let deleted_logs = starts.unused();
    let mut subscriber = match (cursors.len(), selected.newcomers) {
        (1, None) => Subscriber::one(cursors.remove(0), options.wait),
        (_, newcomers) => Subscriber::many(cursors, newcomers, options.clone(), CLOCK),
    };
    // Limits the records that are skipped at a time, because the thread also serves other connections.
    subscriber.limit_skips();
    let mut stream_positions = StreamPositions::new(is_single_log, options.start, options.follows_state());
    stream_positions.copy_from(&mut subscriber);
    Ok(EventSubscription { subscriber, stream_positions, deleted_logs, charge })
}

/// The positions that the client stated, which determine where each log is read from; `None` if it stated none.
struct StartPositions(Option<BTreeMap<LogKey, wire::Position>>);

impl StartPositions {
    /// Takes the positions from the request. Fails if a position names no log and the pattern matches several logs.
    fn new(
        request: &EventsRequest,
        pattern: &Pattern,
        selected: &SelectedLogs,
    ) -> Result<StartPositions, SubscribeError> {
        let single_log = || {
            let accepts_new_logs = selected.newcomers.is_some();
            log_of_position(std::slice::from_ref(pattern), &selected.logs, accepts_new_logs)
        };
        Ok(StartPositions(match (&request.resume, request.options.start) {
            (Some(ResumeToken::Many(positions)), _) => Some(positions.clone()),
            (Some(ResumeToken::One(position)), _) => {
                let (topic, partition) = single_log()?;
                Some([(LogKey::of(&topic, partition), *position)].into())
            }
            (None, start) => {
                if matches!(start, Start::After(_)) {
                    single_log()?;
                }
                None
            }
        }))
    }

    fn start_of(&mut self, log: &Log, options: &SubscribeOptions) -> Start {
        let Some(positions) = &mut self.0 else { return options.start };
        let name = log.name();
        match positions.remove(&LogKey::of(&name.topic, name.partition)) {
            Some(position) => Start::After(Position { epoch: position.epoch, seq: position.seq }),
            None if options.follows_state() && log.is_stateful() => Start::Snapshot,
            // The client has no position in this log and asked for a start time, so the start time applies.
            None if matches!(options.start, Start::Time(_)) => options.start,
            // The client has no position in this log because the log was created after the client received its
            // positions. The log is therefore read from its beginning.
            None => Start::Earliest,
        }
    }

    /// Number of logs for which the client stated positions, but which no longer exist. Call this after the start of
    /// each log was determined.
    fn unused(&self) -> usize {
        self.0.as_ref().map_or(0, |positions| positions.len())
    }
}

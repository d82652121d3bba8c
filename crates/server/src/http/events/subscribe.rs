//! From a pattern to a subscriber that goes on where its reader was.

use dunlin::topic::{
    Charge, Consumption, Filter, Log, Newcomers, Pattern, Position, Start, SubscribeError, Subscriber,
};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{LogKey, RESUME_LOGS_MAX, Resume};
use dunlin::{CLOCK, Missing, Refused};
use std::sync::Arc;

use super::request::EventsRequest;
use super::stands::Stands;
use crate::http::context::Context;
use crate::http::problem::Problem;

/// A subscriber, and what its reader is to know of it.
#[derive(Debug)]
pub(in crate::http) struct Subscribed {
    pub(in crate::http) subscriber: Subscriber,
    pub(in crate::http) stands: Stands,
    /// Logs in which the reader was, and which are no more.
    pub(in crate::http) gone: usize,
    /// What it takes of the node's memory.
    pub(in crate::http) charge: Charge,
}

/// The limit's name.
pub(in crate::http) const LOGS_MAX: &str = "event_logs_max";

pub(in crate::http) async fn subscribe(
    context: &Context,
    pattern: &str,
    request: &EventsRequest,
) -> Result<Subscribed, Problem> {
    let (shared, node) = (context.shared(), context.node());
    let pattern = Pattern::parse(pattern)?;
    if pattern.as_str().starts_with("_INBOX") {
        return Err(Problem::from(Refused::new(ErrorCode::Forbidden, "the inbox of another session")));
    }
    let is_told = ["$tasks.", "$node."].iter().any(|start| pattern.as_str().starts_with(start));
    if pattern.as_str().starts_with('$') && !is_told {
        let text = format!(
            "{:?} is the system's: over HTTP every stream tells its sequences; ask for the subject itself",
            pattern.as_str()
        );
        return Err(Problem::from(Refused::new(ErrorCode::Subject, text)));
    }
    let options = &request.options;
    let missing = Missing::of(options.start, request.resume.is_some());
    node.prepare_select(&pattern, missing).await?;
    // Starts are given log by log; which logs there are does not depend on them.
    let mut selected = node.select(&pattern, Start::Earliest, missing, Newcomers::new)?;
    if selected.logs.len() > RESUME_LOGS_MAX {
        return Err(Problem::from(Refused::limit(LOGS_MAX, RESUME_LOGS_MAX as u64)));
    }
    let charge = shared.charge_readers(1 + selected.logs.len(), pattern.as_str().len())?;
    let is_one = selected.logs.len() == 1
        && (selected.newcomers.is_none() || node.owns_all_of(&selected.logs[0].0, &pattern));
    if is_one {
        selected.newcomers = None;
    }
    let mut starts = Starts::new(request, &pattern, &selected.logs)?;
    let mut open = |(log, filter): (Arc<Log>, Option<Filter>)| {
        let start = starts.of(&log, request);
        node.open_cursor(log, options, start, filter, Consumption::Reads)
    };
    let opening: Vec<_> = selected.logs.into_iter().map(&mut open).collect();
    let mut cursors = Vec::with_capacity(opening.len());
    for cursor in opening {
        cursors.push(cursor.await?);
    }
    let gone = starts.left();
    let mut subscriber = match (cursors.len(), selected.newcomers) {
        (1, None) => Subscriber::one(cursors.remove(0), options.wait),
        (_, newcomers) => Subscriber::many(cursors, newcomers, options.clone(), CLOCK),
    };
    let mut stands = Stands::new(is_one, options.start, options.follows_state());
    stands.look(&mut subscriber);
    Ok(Subscribed { subscriber, stands, gone, charge })
}

/// Where each log begins.
struct Starts(Option<Resume>);

impl Starts {
    /// A position alone names one log.
    fn new(
        request: &EventsRequest,
        pattern: &Pattern,
        logs: &[(Arc<Log>, Option<Filter>)],
    ) -> Result<Starts, SubscribeError> {
        let is_position = match &request.resume {
            Some(resume) => matches!(resume, Resume::One(_)),
            None => matches!(request.options.start, Start::After(_)),
        };
        if let (Some(Resume::One(position)), []) = (&request.resume, logs)
            && pattern.is_literal()
        {
            // Its topic is gone, and may be made again.
            let key = LogKey::of(pattern.as_str(), 0);
            return Ok(Starts(Some(Resume::Many([(key, *position)].into()))));
        }
        if is_position && logs.len() != 1 {
            return Err(SubscribeError::ManyLogs { pattern: pattern.as_str().to_owned(), logs: logs.len() });
        }
        Ok(Starts(request.resume.clone()))
    }

    fn of(&mut self, log: &Log, request: &EventsRequest) -> Start {
        let after = |position: dunlin::wire::Position| {
            Start::After(Position { epoch: position.epoch, seq: position.seq })
        };
        let options = &request.options;
        let name = log.name();
        match &mut self.0 {
            None => options.start,
            Some(Resume::One(position)) => after(*position),
            Some(Resume::Many(positions)) => match positions.remove(&LogKey::of(&name.topic, name.partition))
            {
                Some(position) => after(position),
                None if options.follows_state() && log.is_stateful() => Start::Snapshot,
                // It was given nothing yet of what it asked for.
                None if matches!(options.start, Start::Time(_)) => options.start,
                // It was created since.
                None => Start::Earliest,
            },
        }
    }

    /// How many logs there were that are no more.
    fn left(&self) -> usize {
        match &self.0 {
            Some(Resume::Many(positions)) => positions.len(),
            _ => 0,
        }
    }
}

//! Reads the parameters of a subscription from an HTTP request.

use std::time::SystemTime;

use axum::http::HeaderMap;
use dunlin::topic::{OnGap, Position, Start, SubscribeOptions, WaitStrategy};
use dunlin::wire::http::ResumeToken;

use super::format::RecordFormat;
use crate::http::problem::Problem;
use crate::http::query::{QueryParameters, time_ns, unix_ns};
use crate::protocol::Protocol;

const PARAMETERS: [&str; 6] = ["from", "on_gap", "conflate", "name", "as", "last_event_id"];
/// The header in which a client that reconnects sends the id of the last event. Clients that cannot set headers use the
/// query parameter `last_event_id`.
const LAST_EVENT_ID: &str = "last-event-id";
/// Maximum length of a subscription's name, bytes.
const NAME_BYTES_MAX: usize = 255;

#[derive(Debug)]
pub(in crate::http) struct EventsRequest {
    pub(in crate::http) options: SubscribeOptions,
    /// The position after which the subscriber continues; `None` for a new subscription.
    pub(in crate::http) resume: Option<ResumeToken>,
    pub(in crate::http) format: RecordFormat,
}

/// The parameters as the client wrote them, before they are parsed.
#[derive(Debug)]
pub(in crate::http) struct RawEventsRequest<'a> {
    pub(in crate::http) from: Option<&'a str>,
    pub(in crate::http) on_gap: Option<&'a str>,
    pub(in crate::http) conflate: bool,
    pub(in crate::http) name: &'a str,
    pub(in crate::http) resume: Option<&'a str>,
    pub(in crate::http) format: RecordFormat,
    pub(in crate::http) protocol: Protocol,
}

impl EventsRequest {
    pub(in crate::http) fn read(
        query: Option<&str>,
        headers: &HeaderMap,
        peer: &str,
    ) -> Result<EventsRequest, Problem> {
        let query = QueryParameters::parse(query, &PARAMETERS)?;
        let last = headers.get(LAST_EVENT_ID).map(|value| value.to_str());
        let last = last.transpose().map_err(|_| Problem::bad_request("Last-Event-ID: not plain text"))?;
        let format = match query.get("as") {
            None | Some("payload") => RecordFormat::Payload,
            Some("json") => RecordFormat::Json,
            Some(text) => return Err(Problem::bad_request(format!("as={text}: expected payload or json"))),
        };
        EventsRequest::of(&RawEventsRequest {
            from: query.get("from"),
            on_gap: query.get("on_gap"),
            conflate: query.switch("conflate")?,
            name: query.get("name").filter(|name| !name.is_empty()).unwrap_or(peer),
            // A client that has received no id yet may send an empty one, which is ignored.
            resume: last.or(query.get("last_event_id")).filter(|text| !text.is_empty()),
            format,
            protocol: Protocol::Http,
        })
    }

    pub(in crate::http) fn of(raw: &RawEventsRequest<'_>) -> Result<EventsRequest, Problem> {
        let name = raw.name;
        if name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
            let text = format!("name: at most {NAME_BYTES_MAX} bytes, and no control characters");
            return Err(Problem::bad_request(text));
        }
        let options = SubscribeOptions {
            name: name.to_owned(),
            protocol: raw.protocol.name(),
            start: raw.from.map_or(Ok(Start::Latest), parse_start)?,
            on_gap: raw.on_gap.map_or(Ok(OnGap::Oldest), on_gap)?,
            wait: WaitStrategy::Parked,
            conflate: raw.conflate,
            ..SubscribeOptions::default()
        };
        let resume = raw.resume.map(ResumeToken::parse).transpose();
        let resume = resume
            .map_err(|error| Problem::bad_request(format!("invalid position to resume from: {error}")))?;
        Ok(EventsRequest { options, resume, format: raw.format })
    }
}

fn parse_start(text: &str) -> Result<Start, Problem> {
    match text {
        "earliest" => return Ok(Start::Earliest),
        "latest" => return Ok(Start::Latest),
        "snapshot" => return Ok(Start::Snapshot),
        _ => {}
    }
    if let Ok(position) = text.parse::<Position>() {
        return Ok(Start::After(position));
    }
    let ago = |text| SystemTime::now().checked_sub(humantime::parse_duration(text).ok()?).and_then(unix_ns);
    time_ns(text).or_else(|| ago(text)).map(Start::Time).ok_or_else(|| {
        Problem::bad_request(format!(
            "from={text}: expected earliest, latest, snapshot, a position like 7-1042, a time like \
             2026-11-20T09:30:00Z or in nanoseconds since 1970, or a duration like 5m"
        ))
    })
}

fn on_gap(text: &str) -> Result<OnGap, Problem> {
    match text {
        "oldest" => Ok(OnGap::Oldest),
        "newest" => Ok(OnGap::Newest),
        "snapshot" => Ok(OnGap::Snapshot),
        "fail" => Ok(OnGap::Fail),
        _ => Err(Problem::bad_request(format!("on_gap={text}: expected oldest, newest, snapshot or fail"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, id: Option<&'static str>) -> Result<EventsRequest, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(id) = id {
            headers.insert(LAST_EVENT_ID, axum::http::HeaderValue::from_static(id));
        }
        EventsRequest::read(Some(query), &headers, "peer")
    }

    #[test]
    fn start_parameter_accepts_positions_times_and_durations() {
        let start = |text: &str| read(&format!("from={text}"), None).unwrap().options.start;
        assert_eq!(read("", None).unwrap().options.start, Start::Latest);
        assert_eq!(start("7-1042"), Start::After(Position { epoch: 7, seq: 1042 }));
        assert_eq!(start("1970-01-01T00:00:01Z"), Start::Time(1_000_000_000));
        assert_eq!(start("1000000000"), Start::Time(1_000_000_000));
        assert!(matches!(start("5m"), Start::Time(ns) if ns > 1_000_000_000));
    }

    #[test]
    fn last_event_id_header_takes_precedence_over_the_query() {
        let one = |seq| Some(ResumeToken::One(dunlin::wire::Position { epoch: 7, seq }));
        assert_eq!(read("last_event_id=7-1", None).unwrap().resume, one(1));
        assert_eq!(read("last_event_id=7-1", Some("7-2")).unwrap().resume, one(2));
        assert_eq!(read("", Some("")).unwrap().resume, None);
    }

    #[test]
    fn event_stream_with_unknown_parameters_or_ids_is_refused() {
        for query in ["from=never", "on_gap=cry", "as=xml", "conflate=perhaps", "form=latest", "name=%01"] {
            assert_eq!(read(query, None).unwrap_err().status(), 400, "{query}");
        }
        assert_eq!(read("", Some("yesterday")).unwrap_err().status(), 400);
    }
}

//! Finds the topics that own a subject, to explain why the node refused a command.

use anyhow::Error;
use dunlin_client::{Client, TopicSummary};
use dunlin_topic::Pattern;
use dunlin_wire::ErrorCode;

use crate::outcome::{CommandRefusal, ErrorWithAdvice};

/// The maximum number of topics that an error message names.
const NAMED_MAX: usize = 3;

/// Returns the topics whose subjects overlap with the pattern; empty if the node does not respond.
fn owners_of(client: &Client, pattern: &str) -> Vec<TopicSummary> {
    let Ok(wanted) = Pattern::parse(pattern) else { return Vec::new() };
    let mut topics = client.topics("").unwrap_or_default();
    topics.retain(|topic| Pattern::parse(&topic.pattern).is_ok_and(|owned| owned.overlaps(&wanted)));
    topics
}

/// Returns the error for `--group` with a pattern instead of a topic's name. A group belongs to one topic.
pub fn group_error(client: &Client, pattern: &str, group: &str) -> Error {
    let owners = owners_of(client, pattern);
    let message = match owners.as_slice() {
        [] => format!(
            "a group belongs to one topic, and no topic owns {pattern}: create one with `dunlin topics create NAME --pattern \
             '{pattern}'`, then run `dunlin sub NAME --group {group}`"
        ),
        [owner] => format!(
            "a group needs the topic's name, and {pattern} belongs to topic {}: run `dunlin sub {} --group {group}`",
            owner.name, owner.name
        ),
        many => {
            let named: Vec<_> = many.iter().take(NAMED_MAX).map(|owner| owner.name.as_str()).collect();
            let more = if many.len() > NAMED_MAX { ", …" } else { "" };
            format!(
                "a group belongs to one topic, and {pattern} matches {} topics: {}{more}; run for example `dunlin sub {} --group {group}`",
                many.len(),
                named.join(", "),
                named[0]
            )
        }
    };
    CommandRefusal(message).into()
}

/// Returns the error for a subject that no topic owns. If a topic is named like the subject, the error gives a subject
/// that this topic owns as an example. Otherwise, returns `refused`.
pub fn no_topic_error(client: &Client, subject: &str, refused: Error) -> Error {
    let Ok(topics) = client.topics(subject) else { return refused };
    let Some(pattern) = topics.into_iter().find(|topic| topic.name == subject).map(|topic| topic.pattern)
    else {
        return refused;
    };
    let example = pattern.replace(['*', '>'], "x");
    ErrorWithAdvice {
        code: ErrorCode::NoTopic,
        message: format!(
            "no topic owns subject {subject:?}: the topic with the name {subject:?} owns the subjects \
             {pattern:?}"
        ),
        advice: format!(
            "Use one of its subjects, such as {example}; `dunlin sub '{pattern}'` subscribes to all of them."
        ),
    }
    .into()
}

//! Which topics have to do with a subject that nobody serves as it was written.

use anyhow::Error;
use dunlin_client::{Client, TopicSummary};
use dunlin_topic::Pattern;
use dunlin_wire::ErrorCode;

use crate::outcome::{Advised, Refusal};

/// Topics that are named at the most.
const NAMED_MAX: usize = 3;

/// The topics that own a subject of the pattern; none where they cannot be asked for.
fn owners_of(client: &Client, pattern: &str) -> Vec<TopicSummary> {
    let Ok(wanted) = Pattern::parse(pattern) else { return Vec::new() };
    let mut topics = client.topics("").unwrap_or_default();
    topics.retain(|topic| Pattern::parse(&topic.pattern).is_ok_and(|owned| owned.overlaps(&wanted)));
    topics
}

/// Why nobody can join a group of this: it is joined by its topic's name.
pub fn group_of(client: &Client, pattern: &str, group: &str) -> Error {
    let owners = owners_of(client, pattern);
    let said = match owners.as_slice() {
        [] => format!(
            "a group is of one topic, and no topic owns {pattern}: `dunlin topics create NAME --pattern '{pattern}'` makes \
             one, and `dunlin sub NAME --group {group}` joins its group"
        ),
        [owner] => format!(
            "groups are joined by a topic's name, and {pattern} is of topic {}: `dunlin sub {} --group {group}`",
            owner.name, owner.name
        ),
        many => {
            let named: Vec<_> = many.iter().take(NAMED_MAX).map(|owner| owner.name.as_str()).collect();
            let more = if many.len() > NAMED_MAX { ", …" } else { "" };
            format!(
                "a group is of one topic, and {pattern} is of {}: {}{more}; `dunlin sub {} --group {group}` joins the first's",
                many.len(),
                named.join(", "),
                named[0]
            )
        }
    };
    Refusal(said).into()
}

/// What was refused because no topic owns the subject: where a topic has the subject for its name, what it owns instead.
pub fn no_topic(client: &Client, subject: &str, refused: Error) -> Error {
    let Ok(topics) = client.topics(subject) else { return refused };
    let Some(owned) = topics.into_iter().find(|topic| topic.name == subject).map(|topic| topic.pattern)
    else {
        return refused;
    };
    let one = owned.replace(['*', '>'], "x");
    Advised {
        code: ErrorCode::NoTopic,
        said: format!("no topic owns the subject {subject:?}: the topic of that name owns {owned:?}"),
        advice: format!("Name one of its subjects, like {one}; `dunlin sub '{owned}'` reads all of them."),
    }
    .into()
}

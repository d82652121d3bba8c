//! Defines interest queries, by which a node asks another node whether it has subscribers to a subject. Queries and
//! responses are encoded like queries for a topic's settings.

use std::sync::Arc;

use dunlin::{Interest, InterestQuery};
use dunlin_client::Client;

use super::link::NodeLink;
use super::lock;

/// Prefix before the queried subject or pattern, in the topic name of a DESCRIBE_SETTINGS message (`docs/protocol.md`).
pub(crate) const INTEREST: &str = "$DUNLIN.interest.";

const SUBSCRIBED: &str = "subscribed";
const REPLY_INBOX: &str = "reply_inbox";
const REPLY_INBOX_PATTERN: &str = "reply_inbox.pattern";
const INBOX_USER: &str = "inbox.user";

/// Encodes the response to an interest query as settings, which are pairs of name and value.
pub(crate) fn encode_interest(interest: &Interest) -> Vec<(&str, &str)> {
    let mut settings = vec![(SUBSCRIBED, if interest.is_subscribed { "true" } else { "false" })];
    if let Some((name, pattern)) = &interest.inbox {
        settings.extend([(REPLY_INBOX, name.as_str()), (REPLY_INBOX_PATTERN, pattern.as_str())]);
    }
    settings.extend(interest.inbox_user.as_deref().map(|user| (INBOX_USER, user)));
    settings
}

fn decode_interest(settings: &[(String, String)]) -> Interest {
    let value = |name: &str| settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    Interest {
        is_subscribed: value(SUBSCRIBED).as_deref() == Some("true"),
        inbox: value(REPLY_INBOX).zip(value(REPLY_INBOX_PATTERN)),
        inbox_user: value(INBOX_USER),
    }
}

/// The interest queries to one other node.
#[derive(Default)]
pub(super) struct InterestQueries {
    /// Queries that wait until there is a connection.
    pub(super) waiting: Vec<InterestQuery>,
    /// Queries that were sent and await their responses.
    sent: Vec<Arc<InterestQuery>>,
}

impl InterestQueries {
    /// Call this when the node cannot be reached. If there was a connection to the node before (`was_connected`), fails
    /// the waiting queries. Otherwise, the node may be starting, and the queries wait until their deadlines.
    pub(super) fn fail_waiting(&mut self, was_connected: bool) {
        self.waiting.retain(|query| !was_connected && !query.is_over());
    }

    pub(super) fn remove_finished(&mut self) {
        self.sent.retain(|query| !query.is_over());
    }
}

impl NodeLink {
    pub(super) fn send_query(&self, client: &Client, query: InterestQuery) {
        let query = Arc::new(query);
        lock(&self.queries).sent.push(Arc::clone(&query));
        let topic = format!("{INTEREST}{}", query.pattern());
        client.topic_settings_nowait(&topic, move |settings| match settings {
            Ok(settings) => query.respond(decode_interest(&settings)),
            Err(_) => query.fail(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_to_an_interest_query_decodes_as_it_was_encoded() {
        let inbox = Some(("_INBOX.of-1-2".to_owned(), "acme.reply.*".to_owned()));
        let inbox_user = Some("ana".to_owned());
        for interest in [Interest::default(), Interest { is_subscribed: true, inbox, inbox_user }] {
            let settings = encode_interest(&interest);
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let settings: Vec<_> = settings.iter().map(owned).collect();
            assert_eq!(decode_interest(&settings), interest);
        }
    }
}

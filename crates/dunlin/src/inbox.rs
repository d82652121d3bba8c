//! An inbox is a set of subjects to which the replies for one client are published. An inbox is removed when the last
//! session that uses it ends. The settings `inbox_bytes_max` and `inbox_age_max` limit what an inbox keeps.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_topic::{INBOX_PREFIX, Subject, Topic};

use crate::error::TopicError;
use crate::node::Node;

/// The first token of every inbox's subjects.
pub(crate) const FIRST_TOKEN: &str = "_INBOX";

/// A session's use of an inbox. Values with the same name share one topic, which is deleted when the last of these
/// values is dropped.
#[derive(Debug)]
pub struct Inbox {
    node: Node,
    name: String,
    pattern: String,
    bytes_max: u64,
    accepts_replies: bool,
    /// Whether the inbox's memory is charged to the connections of the user's tenant, and not to the tenant's topics.
    is_of_session: bool,
    opened: Option<Arc<InboxTopic>>,
}

/// The open inboxes of a node, by name. A client that reconnects can share an inbox with its previous connection, if
/// that connection has not released the inbox yet.
#[derive(Debug, Default)]
pub(crate) struct OpenInboxes {
    by_name: Mutex<HashMap<String, Weak<InboxTopic>>>,
    /// Secret random keys from which the names of inboxes for subscriptions are computed, so that clients cannot guess
    /// the names.
    keys: RandomState,
}

/// The topic of an inbox. When the last [`Inbox`] that uses the topic is dropped, this value is dropped, too, and
/// deletes the topic.
#[derive(Debug)]
struct InboxTopic {
    node: Node,
    topic: Arc<Topic>,
}

impl OpenInboxes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<InboxTopic>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// Creates the inbox of a session under a random name.
    pub fn new(node: Node, session: u64) -> Inbox {
        // Any client that knows the name may publish to the inbox. A client must therefore not be able to guess the
        // name, for example from the name of another session's inbox.
        let secret = RandomState::new().hash_one(session);
        let name = format!("{FIRST_TOKEN}.{session:x}-{secret:x}");
        let (pattern, bytes_max) = (format!("{name}.>"), node.config().limits.inbox_bytes_max);
        Inbox { is_of_session: true, ..Inbox::unopened(node, name, pattern, bytes_max) }
    }

    /// Creates the inbox for subjects that the client has chosen: `_INBOX.<something>` for one subject, or with a
    /// trailing dot for all subjects with this prefix. The inbox keeps as much history as other topics.
    pub fn of_client(node: Node, subjects: &str) -> Inbox {
        let (name, pattern) = match subjects.strip_suffix('.') {
            Some(root) => (format!("{root}.all"), format!("{root}.>")),
            None => (subjects.to_owned(), subjects.to_owned()),
        };
        let bytes_max = node.config().topic.retention.bytes;
        Inbox::unopened(node, name, pattern, bytes_max)
    }

    /// Creates the reply inbox that subscriptions with this pattern read. The inbox owns no subjects;
    /// [`Inbox::accept_reply`] adds the subjects to which it accepts replies. Subscriptions with the same pattern share
    /// the inbox.
    pub fn of_pattern(node: Node, pattern: &str) -> Inbox {
        let bytes_max = node.config().topic.retention.bytes;
        let name = format!("{FIRST_TOKEN}.of-{:016x}", node.0.inboxes.keys.hash_one(pattern));
        Inbox { accepts_replies: true, ..Inbox::unopened(node, name, pattern.to_owned(), bytes_max) }
    }

    fn unopened(node: Node, name: String, pattern: String, bytes_max: u64) -> Inbox {
        Inbox { node, name, pattern, bytes_max, accepts_replies: false, is_of_session: false, opened: None }
    }

    /// Makes this inbox accept replies to the subject. The inbox must have been created by [`Inbox::of_pattern`], and
    /// be open.
    pub fn accept_reply(&self, reply: Subject<'_>) {
        self.node.add_reply_subject(&self.name, reply.as_str());
    }

    /// Returns two patterns for the inbox of the reply subject `reply`, whose prefix a client has chosen. The first
    /// pattern matches all subjects that have the same tokens as `reply`, except for the last token. The second pattern
    /// matches only `reply`. Returns `None` if the prefix is reserved, or if it has fewer than two tokens: two clients
    /// could choose such a short prefix by accident.
    pub fn reply_patterns(reply: &str) -> Option<[String; 2]> {
        client_prefix(reply).map(|prefix| [format!("{prefix}.*"), reply.to_owned()])
    }

    /// Whether [`reply_patterns`](Inbox::reply_patterns) returns patterns for this reply subject.
    pub fn has_client_prefix(reply: &str) -> bool {
        client_prefix(reply).is_some()
    }

    /// The common prefix of the inbox's subjects, such as `_INBOX.<something>.`.
    pub fn prefix(&self) -> String {
        self.pattern.trim_end_matches('>').to_owned()
    }

    /// The pattern of the inbox's subjects.
    pub fn pattern(&self) -> String {
        self.pattern.clone()
    }

    /// Whether the subject or pattern belongs to some inbox, that is, begins with the token `_INBOX`.
    pub fn is_of_any(pattern: &str) -> bool {
        pattern.split('.').next() == Some(FIRST_TOKEN)
    }

    /// Whether the subject or pattern begins with the inbox's name and a dot. For inboxes of sessions
    /// ([`Inbox::new`]); the subjects of other inboxes need not begin with the inbox's name.
    pub fn contains(&self, pattern: &str) -> bool {
        pattern.strip_prefix(self.name.as_str()).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Returns the inbox's topic. Creates it if it does not exist yet.
    pub fn open(&mut self) -> Result<&Arc<Topic>, TopicError> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => self.open_or_share()?.0,
        };
        Ok(&self.opened.insert(opened).topic)
    }

    /// Like [`open`](Inbox::open), but returns whether this call created the topic.
    pub fn open_new(&mut self) -> Result<bool, TopicError> {
        if self.opened.is_some() {
            return Ok(false);
        }
        let (opened, is_new) = self.open_or_share()?;
        self.opened = Some(opened);
        Ok(is_new)
    }

    fn open_or_share(&self) -> Result<(Arc<InboxTopic>, bool), TopicError> {
        let mut open = self.node.0.inboxes.lock();
        match open.get(&self.name).map(Weak::upgrade) {
            Some(Some(existing)) => return Ok((existing, false)),
            // The last `Inbox` is being dropped, but its drop has not deleted the topic yet. Delete the topic here; the
            // drop then finds nothing to delete.
            Some(None) => {
                open.remove(&self.name);
                let _ = self.node.delete(&self.name);
            }
            None => {}
        }
        let topic = if self.accepts_replies {
            self.node.create_reply_inbox(&self.name, &self.pattern, self.bytes_max)?
        } else {
            let config = self.node.config().limits.inbox(self.pattern(), self.bytes_max);
            let budget =
                if self.is_of_session { self.node.connection_budget() } else { self.node.charge_budget() };
            self.node.create_in(budget, &self.name, config, false)?
        };
        let opened = Arc::new(InboxTopic { node: self.node.clone(), topic });
        open.insert(self.name.clone(), Arc::downgrade(&opened));
        Ok((opened, true))
    }
}

/// The part of a reply subject before its last token, if that part can be a prefix that a client has chosen.
fn client_prefix(reply: &str) -> Option<&str> {
    let (prefix, _) = reply.rsplit_once('.')?;
    let is_client_prefix =
        prefix.contains('.') && !reply.starts_with('$') && !prefix.starts_with(INBOX_PREFIX);
    is_client_prefix.then_some(prefix)
}

impl Drop for InboxTopic {
    fn drop(&mut self) {
        let name = self.topic.name();
        let mut open = self.node.0.inboxes.lock();
        // Remove the name only if it still refers to this inbox. Another inbox with the same name may have been opened
        // since.
        if open.get(name).is_some_and(|other| std::ptr::eq(other.as_ptr(), self)) {
            open.remove(name);
            let _ = self.node.delete(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_subject_of_three_or_more_tokens_is_an_inbox() {
        assert_eq!(Inbox::reply_patterns("acme.reply.1").unwrap(), ["acme.reply.*", "acme.reply.1"]);
        for other in ["orders.eu", "orders", "$SRV.a.b", "_INBOX.a.b"] {
            assert!(Inbox::reply_patterns(other).is_none(), "{other}");
        }
    }

    #[test]
    fn only_subjects_with_inbox_as_first_token_are_inbox_subjects() {
        assert!(["_INBOX", "_INBOX.a", "_INBOX.>"].into_iter().all(Inbox::is_of_any));
        assert!(["_INBOXES", "_INBOX2.a", "a._INBOX", ">"].into_iter().all(|other| !Inbox::is_of_any(other)));
    }
}

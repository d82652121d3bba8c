//! Where replies go: subjects that belong to one session and end with it; of sessions that use the same, with the last.
//!
//! Limits: `inbox_bytes_max` and `inbox_age_max`.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_topic::{Subject, Topic};

use crate::error::TopicError;
use crate::node::Node;

/// The first token of every inbox.
pub(crate) const FIRST_TOKEN: &str = "_INBOX";

/// The subjects of one session. Its topic is made when it is first needed, and deleted with the last inbox of its name.
#[derive(Debug)]
pub struct Inbox {
    node: Node,
    name: String,
    pattern: String,
    bytes_max: u64,
    takes_replies: bool,
    opened: Option<Arc<Opened>>,
}

/// The open inboxes of a node, by name: a client that connects again may use one that its connection before has not left yet.
#[derive(Debug, Default)]
pub(crate) struct OpenInboxes {
    by_name: Mutex<HashMap<String, Weak<Opened>>>,
    /// Nobody is to guess the names of reply inboxes.
    keys: RandomState,
}

/// The topic of an inbox, which is deleted when nobody uses it any more.
#[derive(Debug)]
struct Opened {
    node: Node,
    topic: Arc<Topic>,
}

impl OpenInboxes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Opened>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// The inbox of a session of the node.
    pub fn new(node: Node, session: u64) -> Inbox {
        // Whoever knows the name may publish to it: nobody is to guess it from another session's.
        let unknown = RandomState::new().hash_one(session);
        let name = format!("{FIRST_TOKEN}.{session:x}-{unknown:x}");
        let (pattern, bytes_max) = (format!("{name}.>"), node.config().limits.inbox_bytes_max);
        Inbox { node, name, pattern, bytes_max, takes_replies: false, opened: None }
    }

    /// An inbox of a client that makes up its own: one subject, `_INBOX.<something>`, or with a dot at the end all
    /// that begin so. It keeps as much as other topics do.
    pub fn of_client(node: Node, subjects: &str) -> Inbox {
        let (name, pattern) = match subjects.strip_suffix('.') {
            Some(root) => (format!("{root}.all"), format!("{root}.>")),
            None => (subjects.to_owned(), subjects.to_owned()),
        };
        let bytes_max = node.config().topic.retention.bytes;
        Inbox { node, name, pattern, bytes_max, takes_replies: false, opened: None }
    }

    /// The [reply inbox](crate::reply) of subscriptions to this pattern, which owns no subject; those to the same pattern share it.
    pub fn of_pattern(node: Node, pattern: &str) -> Inbox {
        let bytes_max = node.config().topic.retention.bytes;
        let name = format!("{FIRST_TOKEN}.of-{:016x}", node.0.inboxes.keys.hash_one(pattern));
        Inbox { node, name, pattern: pattern.to_owned(), bytes_max, takes_replies: true, opened: None }
    }

    /// A reply inbox that is open takes replies to this subject from now on.
    pub fn expect(&self, reply: Subject<'_>) {
        self.node.name_reply(&self.name, reply.as_str());
    }

    /// The patterns of inboxes with a prefix of the client's own that hold this reply subject: all subjects that differ from it
    /// in the last token, or the subject itself. The prefix is two tokens at least, so that it is nobody else's by accident.
    pub fn patterns_of(reply: &str) -> Option<[String; 2]> {
        own_prefix(reply).map(|prefix| [format!("{prefix}.*"), reply.to_owned()])
    }

    /// Whether there are such patterns.
    pub fn has_own_prefix(reply: &str) -> bool {
        own_prefix(reply).is_some()
    }

    /// What all its subjects begin with, `_INBOX.<something>.`.
    pub fn prefix(&self) -> String {
        self.pattern.trim_end_matches('>').to_owned()
    }

    /// All its subjects.
    pub fn pattern(&self) -> String {
        self.pattern.clone()
    }

    /// Whether the subject or pattern lies within it.
    pub fn holds(&self, pattern: &str) -> bool {
        pattern.strip_prefix(self.name.as_str()).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Makes its topic, if that was not done before.
    pub fn open(&mut self) -> Result<&Arc<Topic>, TopicError> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => self.open_or_share()?.0,
        };
        Ok(&self.opened.insert(opened).topic)
    }

    /// [`open`](Inbox::open); whether its topic was made by this.
    pub fn open_new(&mut self) -> Result<bool, TopicError> {
        if self.opened.is_some() {
            return Ok(false);
        }
        let (opened, is_new) = self.open_or_share()?;
        self.opened = Some(opened);
        Ok(is_new)
    }

    fn open_or_share(&self) -> Result<(Arc<Opened>, bool), TopicError> {
        let mut open = self.node.0.inboxes.lock();
        match open.get(&self.name).map(Weak::upgrade) {
            Some(Some(there)) => return Ok((there, false)),
            // The last that used it is about to delete its topic, and finds this done.
            Some(None) => {
                open.remove(&self.name);
                let _ = self.node.delete(&self.name);
            }
            None => {}
        }
        let topic = if self.takes_replies {
            self.node.create_reply_inbox(&self.name, &self.pattern, self.bytes_max)?
        } else {
            let config = self.node.config().limits.inbox(self.pattern(), self.bytes_max);
            self.node.create(&self.name, config, false)?
        };
        let opened = Arc::new(Opened { node: self.node.clone(), topic });
        open.insert(self.name.clone(), Arc::downgrade(&opened));
        Ok((opened, true))
    }
}

/// All but the last token of a reply subject that may be of an inbox with a prefix of the client's own.
fn own_prefix(reply: &str) -> Option<&str> {
    let (prefix, _) = reply.rsplit_once('.')?;
    let is_own = prefix.contains('.') && !reply.starts_with('$') && !prefix.starts_with("_INBOX.");
    is_own.then_some(prefix)
}

impl Drop for Opened {
    fn drop(&mut self) {
        let name = self.topic.name();
        let mut open = self.node.0.inboxes.lock();
        // There may be the next one of its name.
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
    fn inbox_of_own_prefix_has_two_tokens_before_the_last() {
        assert_eq!(Inbox::patterns_of("acme.reply.1").unwrap(), ["acme.reply.*", "acme.reply.1"]);
        for other in ["orders.eu", "orders", "$SRV.a.b", "_INBOX.a.b"] {
            assert!(Inbox::patterns_of(other).is_none(), "{other}");
        }
    }
}

//! The permissions of one user.

use dunlin_topic::{Filter, LogName, Pattern, TailPattern};

use super::keys::KeyRule;
use super::rule::{AccessExtent, SubjectRule};
use super::tasks::TaskRule;
use crate::control::KV;
use crate::inbox::FIRST_TOKEN as INBOX;
use crate::node_topic::NODE_TOPIC;
use crate::tasks::TASKS;

/// An action that needs permission, such as publishing to a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish to the subject.
    Publish,
    /// Subscribe to the subject.
    Subscribe,
    /// Create a topic that owns the subject.
    Create,
    /// Delete the topic of this name.
    Delete,
    /// Join a group of this name.
    Join,
    /// Read the keys.
    ReadKeys,
    /// Write the keys.
    WriteKeys,
    /// Submit, run or manage tasks.
    Tasks,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Action::Publish => "publish to",
            Action::Subscribe => "subscribe to",
            Action::Create => "create topic",
            Action::Delete => "delete topic",
            Action::Join => "join group",
            Action::ReadKeys => "read keys",
            Action::WriteKeys => "write keys",
            Action::Tasks => "use tasks",
        })
    }
}

/// The permissions of one user: subjects, groups, keys and tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The subjects that users of the tenant may use. The user may act on a subject only if both this rule and the
    /// action's own rule allow the subject. Publishing to an inbox is an exception: it needs only
    /// [`publish`](Permissions::publish) not to deny the subject.
    pub tenant: SubjectRule,
    /// The subjects to which the user may publish.
    pub publish: SubjectRule,
    /// The subjects to which the user may subscribe.
    pub subscribe: SubjectRule,
    /// The subjects that may belong to a topic that the user creates.
    pub create: SubjectRule,
    /// The names of the topics that the user may delete.
    pub delete: SubjectRule,
    /// The names of the groups that the user may join.
    pub groups: SubjectRule,
    /// The keys that the user may read or write. The rule `tenant` does not apply to keys.
    pub keys: KeyRule,
    /// The user's permissions to submit, run and manage tasks.
    pub tasks: TaskRule,
    /// Whether the user may read metrics and lists of subscriptions.
    pub surveys: bool,
}

impl Permissions {
    /// Whether the user may do `action` on all, some or none of the pattern's subjects.
    pub fn extent(&self, action: Action, pattern: &Pattern) -> AccessExtent {
        let rule = self.rule(action);
        match action {
            Action::Join => rule.extent(pattern),
            Action::Publish if is_inbox(pattern.as_str()) => rule.not_denied(pattern),
            _ => rule.extent(pattern).min(self.tenant.extent(pattern)),
        }
    }

    /// Whether the user may do `action` on the subject that consists of `prefix`, the common prefix of the topic's
    /// subjects, and `tail`, the rest.
    pub fn allows_parts(&self, action: Action, prefix: &str, tail: &str) -> bool {
        let rule = self.rule(action);
        if action == Action::Publish && is_inbox(prefix) {
            return !rule.denies_parts(prefix, tail);
        }
        rule.allows_parts(prefix, tail) && self.tenant.allows_parts(prefix, tail)
    }

    /// Whether the user may publish to, subscribe to, create or delete at least some subjects of the pattern.
    pub fn overlaps(&self, pattern: &Pattern) -> bool {
        let rules = [&self.publish, &self.subscribe, &self.create, &self.delete];
        self.tenant.overlaps(pattern) && rules.iter().any(|rule| rule.overlaps(pattern))
    }

    /// Adds the user's permissions to `filter`, the filter of a subscriber to the log. Returns `None` if the user may
    /// read nothing of the log.
    pub fn restrict(&self, log: &LogName, filter: Option<Filter>) -> Option<Option<Filter>> {
        let mut denied = Vec::new();
        let topic = pattern_of(log)?;
        if !self.subscribe.denied_tails(&topic, &mut denied) || !self.tenant.denied_tails(&topic, &mut denied)
        {
            return None;
        }
        let filter = if denied.is_empty() { filter } else { Some(without(denied, filter)) };
        match log.topic.as_str() {
            KV => self.keys.restrict(filter),
            // The records of this topic concern all tenants. A user may read them only if the user's tenant may use all
            // subjects.
            NODE_TOPIC => (self.surveys && self.tenant.is_everything()).then_some(filter),
            TASKS => Some(match self.tasks.readable_tenant()? {
                None => filter,
                Some(tenant) => Some(restrict_to_tenant(tenant, filter)),
            }),
            _ => Some(filter),
        }
    }

    /// Whether a subscriber with these permissions may read the same records as a subscriber with the permissions
    /// `other`.
    pub fn reads_same_as(&self, other: &Permissions) -> bool {
        // All fields are named, so that the compiler reports a new field here.
        let Permissions {
            tenant,
            subscribe,
            keys,
            tasks,
            surveys,
            publish: _,
            create: _,
            delete: _,
            groups: _,
        } = self;
        (tenant, subscribe, keys, tasks.readable_tenant(), surveys)
            == (&other.tenant, &other.subscribe, &other.keys, other.tasks.readable_tenant(), &other.surveys)
    }

    fn rule(&self, action: Action) -> &SubjectRule {
        /// A rule that allows no subject. It applies to actions on keys and tasks, whose permissions do not name
        /// subjects.
        static NONE: SubjectRule = SubjectRule { allow: Vec::new(), deny: Vec::new() };
        match action {
            Action::ReadKeys | Action::WriteKeys | Action::Tasks => &NONE,
            Action::Publish => &self.publish,
            Action::Subscribe => &self.subscribe,
            Action::Create => &self.create,
            Action::Delete => &self.delete,
            Action::Join => &self.groups,
        }
    }
}

/// Narrows `filter` so that it accepts only events of this tenant's tasks.
fn restrict_to_tenant(tenant: String, filter: Option<Filter>) -> Filter {
    match filter {
        None => Filter::new(move |tail| tail == tenant),
        Some(Filter { accepts: wants, tails: within, payload_filter }) => {
            Filter { tails: within, payload_filter, ..Filter::new(move |tail| tail == tenant && wants(tail)) }
        }
    }
}

/// Returns a pattern that matches all subjects of the log, and possibly other subjects.
fn pattern_of(log: &LogName) -> Option<Pattern> {
    let prefix = log.subject_prefix.as_str();
    let owns_many = prefix.is_empty() || prefix.ends_with('.');
    if owns_many { Pattern::parse(&format!("{prefix}>")).ok() } else { Pattern::parse(prefix).ok() }
}

fn without(denied: Vec<TailPattern>, filter: Option<Filter>) -> Filter {
    let payload_filter = filter.as_ref().and_then(|filter| filter.payload_filter.clone());
    let accepts = move |tail: &str| {
        filter.as_ref().is_none_or(|filter| (filter.accepts)(tail))
            && !denied.iter().any(|denied| denied.matches(tail))
    };
    Filter { payload_filter, ..Filter::new(accepts) }
}

fn is_inbox(subject: &str) -> bool {
    subject.strip_prefix(INBOX).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: &str, deny: &str) -> SubjectRule {
        let read = |text: &str| text.split_whitespace().map(|one| Pattern::parse(one).unwrap()).collect();
        SubjectRule { allow: read(allow), deny: read(deny) }
    }

    fn log(prefix: &str) -> LogName {
        LogName { topic: "t".to_owned(), subject_prefix: prefix.to_owned(), partition: 0 }
    }

    #[test]
    fn user_is_never_allowed_more_than_its_tenant() {
        let permissions = Permissions {
            tenant: rule("acme.>", "acme.audit.>"),
            publish: rule(">", ""),
            subscribe: rule("acme.>", ""),
            ..Permissions::default()
        };
        for (action, text, extent) in [
            (Action::Publish, "acme.x", AccessExtent::All),
            (Action::Publish, "other.x", AccessExtent::Nothing),
            (Action::Publish, ">", AccessExtent::Nothing),
            (Action::Publish, "acme.audit.x", AccessExtent::Nothing),
            (Action::Subscribe, "acme.>", AccessExtent::Part),
            (Action::Create, "acme.x", AccessExtent::Nothing),
            (Action::Publish, "_INBOX.a.b", AccessExtent::All),
            (Action::Subscribe, "_INBOX.a.b", AccessExtent::Nothing),
            (Action::Publish, "_INBOXES", AccessExtent::Nothing),
        ] {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(permissions.extent(action, &pattern), extent, "{action} {text}");
        }
        let shut = Permissions { publish: rule("", "_INBOX.>"), ..permissions };
        assert_eq!(shut.extent(Action::Publish, &Pattern::parse("_INBOX.a").unwrap()), AccessExtent::Nothing);
    }

    #[test]
    fn log_is_readable_except_for_denied_subjects() {
        let permissions = Permissions {
            tenant: rule(">", ""),
            subscribe: rule(">", "secret.> *.private"),
            ..Permissions::default()
        };
        assert!(permissions.restrict(&log("orders"), None).unwrap().is_none(), "no check for each record");
        assert!(permissions.restrict(&log("secret.x"), None).is_none());
        assert!(permissions.restrict(&log("secret."), None).is_none());
        let filter = permissions.restrict(&log("orders."), None).unwrap().unwrap();
        assert!((filter.accepts)("eu") && (filter.accepts)("eu.private") && !(filter.accepts)("private"));
        let filter = Filter::new(|tail: &str| tail.starts_with('e'));
        let filter = permissions.restrict(&log("orders."), Some(filter)).unwrap().unwrap();
        assert!((filter.accepts)("eu") && !(filter.accepts)("us") && !(filter.accepts)("private"));
        let all = permissions.restrict(&log(""), None).unwrap().unwrap();
        assert!((all.accepts)("secret") && !(all.accepts)("secret.a") && !(all.accepts)("a.private"));
    }
}

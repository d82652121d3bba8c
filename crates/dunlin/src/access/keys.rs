//! Permissions for keys.
//!
//! A pattern is a key, or a prefix with a trailing `*`. Deny wins. A range of keys is allowed if a single pattern
//! allows the whole range and no pattern denies any part of it. A watch shows only the changes of keys that the user
//! may read.

use dunlin_control::{ControlCommand, ControlQuery, KeyOperation, LOCKS, prefix_end, visible_events};
use dunlin_topic::{Filter, PayloadFilter};

use super::permissions::Action;

/// A pattern of keys: a key, or a prefix with a trailing `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern(String);

impl KeyPattern {
    /// Makes a pattern of this text. Every text is a valid pattern.
    pub fn new(text: impl Into<String>) -> KeyPattern {
        KeyPattern(text.into())
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first key of the range that the pattern covers, and the first key after the range. If the key after the
    /// range is empty, the range has no end.
    fn range(&self) -> (Vec<u8>, Vec<u8>) {
        match self.0.strip_suffix('*') {
            Some(prefix) => (prefix.as_bytes().to_vec(), prefix_end(prefix.as_bytes())),
            None => (self.0.as_bytes().to_vec(), key_after(self.0.as_bytes())),
        }
    }

    fn covers(&self, start: &[u8], end: &[u8]) -> bool {
        let (first, last) = self.range();
        *first <= *start && (last.is_empty() || !end.is_empty() && *end <= *last)
    }

    fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        let (first, last) = self.range();
        (end.is_empty() || *first < *end) && (last.is_empty() || *start < *last)
    }
}

/// The first key after `key`: the excluded end of a range that contains only `key`.
fn key_after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The keys that a user may only read, and the keys that the user may also write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRule {
    /// Keys that may be read and written, except for denied keys.
    pub allow: Vec<KeyPattern>,
    /// Keys that may only be read, except for denied keys.
    pub read: Vec<KeyPattern>,
    /// Keys that may be neither read nor written.
    pub deny: Vec<KeyPattern>,
}

/// An action for which the user lacks the permission, and the keys of this action.
type MissingPermission = (Action, String);

impl KeyRule {
    /// Whether the user may read all keys from `start` up to, not including, `end`. An empty `end` means no end.
    pub fn may_read(&self, start: &[u8], end: &[u8]) -> bool {
        self.allows(Action::ReadKeys, start, end)
    }

    /// Whether the user may write all keys from `start` up to, not including, `end`. An empty `end` means no end.
    pub fn may_write(&self, start: &[u8], end: &[u8]) -> bool {
        self.allows(Action::WriteKeys, start, end)
    }

    fn allows(&self, action: Action, start: &[u8], end: &[u8]) -> bool {
        let read: &[KeyPattern] = if action == Action::ReadKeys { &self.read } else { &[] };
        self.allow.iter().chain(read).any(|allowed| allowed.covers(start, end))
            && !self.deny.iter().any(|denied| denied.overlaps(start, end))
    }

    /// Whether some patterns allow the user to read keys.
    fn reads_any(&self) -> bool {
        !self.allow.is_empty() || !self.read.is_empty()
    }

    /// Adds the user's permissions to `filter`, the filter of a subscriber to the topic of key changes. If only some
    /// keys are readable, the new filter reduces each revision to the changes of readable keys. Returns `None` if no
    /// key is readable.
    pub(super) fn restrict(&self, filter: Option<Filter>) -> Option<Option<Filter>> {
        if !self.reads_any() {
            return None;
        }
        if self.may_read(b"", b"") {
            return Some(filter);
        }
        let rule = self.clone();
        // If a change cannot be decoded, the filter hides it.
        let payload_filter = PayloadFilter::new(move |change| {
            visible_events(change, |key| rule.may_read(key, &key_after(key))).ok().flatten()
        });
        let payload_filter = Some(payload_filter);
        Some(Some(Filter { payload_filter, ..filter.unwrap_or_else(|| Filter::new(|_| true)) }))
    }

    fn check_key(&self, action: Action, key: &[u8]) -> Result<(), MissingPermission> {
        if self.allows(action, key, &key_after(key)) { Ok(()) } else { Err((action, display_key(key))) }
    }

    fn check_range(&self, action: Action, start: &[u8], end: &[u8]) -> Result<(), MissingPermission> {
        if self.allows(action, start, end) {
            Ok(())
        } else {
            Err((action, format!("{}…{}", display_key(start), display_key(end))))
        }
    }

    fn check_operation(&self, operation: &KeyOperation<'_>) -> Result<(), MissingPermission> {
        match *operation {
            KeyOperation::Put { key, .. } | KeyOperation::Delete { key } => {
                self.check_key(Action::WriteKeys, key)
            }
            KeyOperation::Get { key } => self.check_key(Action::ReadKeys, key),
            KeyOperation::DeleteRange { start, end } => self.check_range(Action::WriteKeys, start, end),
            KeyOperation::Range { start, end, .. } => self.check_range(Action::ReadKeys, start, end),
        }
    }

    /// Checks the permission for a command without keys: the user must have permission to write some key. `what` names
    /// the command in the error.
    fn require_key_permission(&self, what: &str) -> Result<(), MissingPermission> {
        if self.allow.is_empty() { Err((Action::WriteKeys, what.to_owned())) } else { Ok(()) }
    }

    /// Checks the permission for a command; the error names the keys. A command for a lock needs the permission to
    /// write the key that consists of [`LOCKS`] and the lock's name. When the command is applied, the cluster also
    /// checks that the command's lease belongs to the user.
    pub fn command(&self, command: &ControlCommand<'_>) -> Result<(), (Action, String)> {
        match command {
            ControlCommand::Put { key, .. }
            | ControlCommand::PutIf { key, .. }
            | ControlCommand::Delete { key }
            | ControlCommand::DeleteIf { key, .. } => self.check_key(Action::WriteKeys, key),
            ControlCommand::DeleteRange { start, end } => self.check_range(Action::WriteKeys, start, end),
            ControlCommand::Transaction { compare, then, otherwise } => {
                compare.iter().try_for_each(|compare| self.check_key(Action::ReadKeys, compare.key))?;
                then.iter().chain(otherwise).try_for_each(|operation| self.check_operation(operation))?;
                // Even a transaction without keys needs a permission, because it adds a log entry and reveals the
                // revision.
                self.require_key_permission("transactions")
            }
            ControlCommand::Acquire { name, .. }
            | ControlCommand::Release { name, .. }
            | ControlCommand::Proclaim { name, .. } => {
                self.check_key(Action::WriteKeys, &[LOCKS, name].concat())
            }
            ControlCommand::Grant { .. }
            | ControlCommand::KeepAlive { .. }
            | ControlCommand::Revoke { .. } => self.require_key_permission("leases"),
            // The remaining commands are for operators of the cluster.
            _ => Err((Action::WriteKeys, "the cluster".to_owned())),
        }
    }

    /// Checks the permission for a query; the error names the keys.
    pub fn query(&self, query: &ControlQuery<'_>) -> Result<(), (Action, String)> {
        match *query {
            ControlQuery::Get { key } => self.check_key(Action::ReadKeys, key),
            ControlQuery::Range { start, end, .. } => self.check_range(Action::ReadKeys, start, end),
            ControlQuery::Lease { .. } | ControlQuery::Status if self.reads_any() => Ok(()),
            ControlQuery::Lease { .. } | ControlQuery::Status | ControlQuery::Leases { .. } => {
                self.check_range(Action::ReadKeys, b"", b"")
            }
        }
    }
}

fn display_key(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: &str, deny: &str) -> KeyRule {
        let read = |text: &str| text.split_whitespace().map(KeyPattern::new).collect();
        KeyRule { allow: read(allow), deny: read(deny), ..KeyRule::default() }
    }

    #[test]
    fn key_rule_denies_by_default_and_deny_overrides_allow() {
        for (allow, deny, key, allowed) in [
            ("", "", "a", false),
            ("a", "", "a", true),
            ("a", "", "ab", false),
            ("a/*", "", "a/b", true),
            ("a/*", "", "a", false),
            ("*", "a/*", "a/b", false),
            ("*", "a/*", "a", true),
            ("*", "*", "a", false),
        ] {
            assert_eq!(
                rule(allow, deny).check_key(Action::WriteKeys, key.as_bytes()).is_ok(),
                allowed,
                "{allow} but {deny}: {key}"
            );
        }
    }

    #[test]
    fn key_range_is_allowed_only_if_all_its_keys_are_allowed() {
        for (allow, deny, start, end, allowed) in [
            ("a/*", "", "a/", "a0", true),
            ("a/*", "", "a/b", "a/c", true),
            ("a/*", "", "a/", "a1", false),
            ("a/*", "", "a/", "", false),
            ("*", "", "", "", true),
            ("*", "b", "", "", false),
            ("*", "b", "a", "b", true),
            ("*", "b", "a", "c", false),
        ] {
            let rule = rule(allow, deny);
            assert_eq!(
                rule.may_write(start.as_bytes(), end.as_bytes()),
                allowed,
                "{allow} but {deny}: {start} {end}"
            );
        }
    }

    #[test]
    fn key_command_is_allowed_only_if_all_its_keys_are_allowed() {
        let rule = rule("a/* $lock/a/*", "a/secret*");
        let get = |key: &'static [u8]| KeyOperation::Get { key };
        let transaction = |then| ControlCommand::Transaction { compare: vec![], then, otherwise: vec![] };
        assert!(rule.command(&transaction(vec![get(b"a/1"), get(b"a/2")])).is_ok());
        assert!(rule.command(&transaction(vec![get(b"a/1"), get(b"a/secret")])).is_err());
        assert!(
            rule.command(&ControlCommand::Acquire { name: b"a/x", lease: 1, value: b"", wait: true }).is_ok()
        );
        assert!(
            rule.command(&ControlCommand::Acquire { name: b"b", lease: 1, value: b"", wait: true }).is_err()
        );
        assert!(rule.command(&ControlCommand::Limit { limits: Default::default() }).is_err());
        assert!(rule.query(&ControlQuery::Leases { after: 0, limit: 0 }).is_err());
    }

    #[test]
    fn permission_to_read_keys_allows_no_writing_command() {
        let read = Vec::from(["w/*", "$lock/w"].map(KeyPattern::new));
        let reader = KeyRule { read, ..rule("a", "w/secret") };
        let write = (Action::WriteKeys, "w/hold".to_owned());
        let (key, value, name) = (b"w/hold", b"", b"w");
        let transaction = |then| ControlCommand::Transaction { compare: vec![], then, otherwise: vec![] };
        let otherwise = vec![KeyOperation::Delete { key }];
        for command in [
            ControlCommand::Put { key, value, lease: 0 },
            ControlCommand::PutIf { key, value, lease: 0, expect: 0 },
            ControlCommand::Delete { key },
            ControlCommand::DeleteIf { key, expect: 1 },
            transaction(vec![KeyOperation::Put { key, value, lease: 0 }]),
            transaction(vec![KeyOperation::Get { key }, KeyOperation::Delete { key }]),
            ControlCommand::Transaction { compare: vec![], then: vec![], otherwise },
        ] {
            assert_eq!(reader.command(&command), Err(write.clone()), "{command:?}");
        }
        for command in [
            ControlCommand::DeleteRange { start: b"w/a", end: b"w/b" },
            transaction(vec![KeyOperation::DeleteRange { start: b"w/a", end: b"w/b" }]),
            ControlCommand::Acquire { name, lease: 1, value, wait: false },
            ControlCommand::Acquire { name, lease: 1, value, wait: true },
            ControlCommand::Release { name, lease: 1 },
            ControlCommand::Proclaim { name, lease: 1, value },
        ] {
            assert!(reader.command(&command).is_err(), "{command:?}");
        }
        assert_eq!(reader.command(&transaction(vec![KeyOperation::Get { key }])), Ok(()));
        assert_eq!(reader.query(&ControlQuery::Range { start: b"w/a", end: b"w/b", limit: 0 }), Ok(()));
        let secret = Err((Action::ReadKeys, "w/secret".to_owned()));
        assert_eq!(reader.query(&ControlQuery::Get { key: b"w/secret" }), secret);
        let only_reads = KeyRule { allow: vec![], ..reader };
        assert_eq!(only_reads.query(&ControlQuery::Status), Ok(()));
        for command in [
            ControlCommand::Grant { ttl_ms: 1 },
            ControlCommand::KeepAlive { leases: vec![1] },
            ControlCommand::Revoke { lease: 1 },
            transaction(vec![]),
            transaction(vec![KeyOperation::Get { key }]),
        ] {
            assert!(only_reads.command(&command).is_err(), "{command:?}");
        }
    }

    #[test]
    fn user_without_key_permissions_reaches_no_key() {
        let (none, some) = (rule("", "secret"), rule("a", ""));
        let (get, key, name, value) = (KeyOperation::Get { key: b"a" }, b"a", b"a", b"");
        let transaction = |then| ControlCommand::Transaction { compare: vec![], then, otherwise: vec![] };
        for (command, needs_any_key) in [
            (transaction(vec![]), true),
            (ControlCommand::Grant { ttl_ms: 1 }, true),
            (ControlCommand::KeepAlive { leases: vec![] }, true),
            (ControlCommand::Revoke { lease: 1 }, true),
            (transaction(vec![get]), false),
            (ControlCommand::Put { key: b"", value, lease: 0 }, false),
            (ControlCommand::Put { key, value, lease: 0 }, false),
            (ControlCommand::Delete { key }, false),
            (ControlCommand::DeleteRange { start: b"b", end: b"a" }, false),
            (ControlCommand::DeleteRange { start: b"a", end: b"a" }, false),
            (ControlCommand::Acquire { name, lease: 1, value, wait: false }, false),
            (ControlCommand::Release { name, lease: 1 }, false),
        ] {
            assert!(none.command(&command).is_err(), "{command:?}");
            assert!(!needs_any_key || some.command(&command).is_ok(), "{command:?}");
        }
        for query in [
            ControlQuery::Status,
            ControlQuery::Lease { lease: 1 },
            ControlQuery::Range { start: b"b", end: b"a", limit: 0 },
        ] {
            assert!(none.query(&query).is_err(), "{query:?}");
        }
    }
}

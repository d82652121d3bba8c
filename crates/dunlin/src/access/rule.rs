//! A [`SubjectRule`] says for which subjects a user has a permission.

use dunlin_topic::{Pattern, Selection, TailPattern};

/// The part of a pattern that a user may access: no subject, some subjects, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessExtent {
    /// The user may access no subject of the pattern.
    Nothing,
    /// The user may access the pattern's subjects except for those that a denying pattern matches.
    Part,
    /// The user may access every subject of the pattern.
    All,
}

/// The subjects for which a user has a permission: all that match an allowed pattern and no denied pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubjectRule {
    /// A subject or pattern is allowed only if one of these patterns covers it completely.
    pub allow: Vec<Pattern>,
    /// The subjects of these patterns are not allowed.
    pub deny: Vec<Pattern>,
}

impl SubjectRule {
    /// Whether the rule allows everything.
    pub fn is_everything(&self) -> bool {
        self.deny.is_empty() && self.allow.iter().any(|allowed| allowed.as_str() == ">")
    }

    /// Whether all, some or none of the pattern's subjects are allowed. If no single pattern of `allow` covers the
    /// whole pattern, no subject counts as allowed.
    pub fn extent(&self, pattern: &Pattern) -> AccessExtent {
        if !self.allow.iter().any(|allowed| allowed.covers(pattern)) {
            AccessExtent::Nothing
        } else {
            self.not_denied(pattern)
        }
    }

    /// Whether all, some or none of the pattern's subjects remain after those of `deny` are removed; `allow` is not
    /// considered.
    pub fn not_denied(&self, pattern: &Pattern) -> AccessExtent {
        if self.deny.iter().any(|denied| denied.covers(pattern)) {
            AccessExtent::Nothing
        } else if self.deny.iter().any(|denied| denied.overlaps(pattern)) {
            AccessExtent::Part
        } else {
            AccessExtent::All
        }
    }

    /// Whether at least some subjects of the pattern are allowed.
    pub fn overlaps(&self, pattern: &Pattern) -> bool {
        self.allow.iter().any(|allowed| allowed.overlaps(pattern))
            && self.not_denied(pattern) > AccessExtent::Nothing
    }

    /// Whether the rule allows the subject that consists of `prefix`, the common prefix of the topic's subjects, and
    /// `tail`, the rest.
    pub fn allows_parts(&self, prefix: &str, tail: &str) -> bool {
        self.allow.iter().any(|allowed| allowed.matches_parts(prefix, tail))
            && !self.denies_parts(prefix, tail)
    }

    pub(super) fn denies_parts(&self, prefix: &str, tail: &str) -> bool {
        self.deny.iter().any(|denied| denied.matches_parts(prefix, tail))
    }

    /// For the topic's subjects that are denied, adds patterns of their tails to `tails`. A tail is the part of a
    /// subject after the prefix that all subjects of the topic have in common. Returns `false` if all of the topic's
    /// subjects are denied.
    pub(super) fn denied_tails(&self, topic: &Pattern, tails: &mut Vec<TailPattern>) -> bool {
        for denied in &self.deny {
            match denied.select(topic) {
                Selection::Nothing => {}
                Selection::Everything => return false,
                Selection::Tails(tail) => tails.push(tail),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: &str, deny: &str) -> SubjectRule {
        let read = |text: &str| text.split_whitespace().map(|one| Pattern::parse(one).unwrap()).collect();
        SubjectRule { allow: read(allow), deny: read(deny) }
    }

    #[test]
    fn subject_rule_denies_by_default_and_deny_overrides_allow() {
        use AccessExtent::{All, Nothing, Part};
        for (allow, deny, text, extent) in [
            ("", "", "a", Nothing),
            ("a", "", "a", All),
            ("a.*", "", "a.b", All),
            ("a.*", "", "a.b.c", Nothing),
            ("a.*", "", "a.>", Nothing),
            ("a.>", "", "a.*.c", All),
            ("a.> b", "", "b", All),
            ("a.*", "", ">", Nothing),
            (">", "secret.>", ">", Part),
            (">", "secret.>", "secret.x", Nothing),
            (">", "secret.>", "secret.*", Nothing),
            (">", "secret.>", "secret", All),
            (">", "*.x", "a.*", Part),
            (">", "*.x", "a.x", Nothing),
            ("secret.a", "secret.>", "secret.a", Nothing),
            (">", ">", "a", Nothing),
        ] {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(rule(allow, deny).extent(&pattern), extent, "{allow:?} but {deny:?}: {text}");
        }
    }

    #[test]
    fn subject_in_two_parts_is_checked_as_one_subject() {
        for (allow, deny, prefix, tail, allowed) in [
            ("a.>", "", "a.", "b", true),
            ("a.>", "a.b", "a.", "b", false),
            ("a.>", "a.b", "a.", "c", true),
            ("a", "", "a", "", true),
            (">", "*.x", "", "q.x", false),
        ] {
            assert_eq!(rule(allow, deny).allows_parts(prefix, tail), allowed, "{prefix}{tail}");
        }
    }
}

//! An index of patterns: a tree of tokens that maps patterns of subjects to values. The index finds the topic that owns
//! a subject, and the patterns that overlap another pattern.
//!
//! Invariants:
//! - A pattern has at most one value. Callers decide whether patterns may overlap. The registry of topics, for example,
//!   calls [`PatternIndex::find_overlapping`] before it inserts a topic, because topics may not overlap.
//! - There are no empty nodes: removing an entry frees its memory.
//!
//! The index has no limits of its own. A search for a pattern or subject needs at most one hash lookup for each node
//! that it visits. If a node has both a child for a token and a child for `*`, the search visits both. It visits at
//! most as many branches as there are entries.
//!
//! Rejected alternatives: a single hash table of all prefixes, because a search for a wildcard needs all children of a
//! node; and a tree with compressed paths, because real names have few tokens.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::subject::{Pattern, Subject};

/// A map from patterns of subjects to values. It finds the patterns that match a subject or overlap a pattern.
#[derive(Debug)]
pub struct PatternIndex<V> {
    root: Node<V>,
    len: usize,
}

#[derive(Debug)]
struct Node<V> {
    children: Children<V>,
    star: Option<Box<Node<V>>>,
    /// The value of the pattern that ends at this node.
    value: Option<V>,
    /// The value of the pattern that ends with `>` after this node.
    rest_value: Option<V>,
}

/// A node's children, each with its literal token. Most nodes have one child or none, but a node may also have a child
/// for each of many topics.
#[derive(Debug)]
enum Children<V> {
    Few(Vec<(Box<str>, Node<V>)>),
    #[expect(
        clippy::box_collection,
        reason = "an inline vector would make each leaf 24 bytes larger, and nearly all nodes are leaves"
    )]
    Many(Box<HashMap<Box<str>, Node<V>>>),
}

const FEW_MAX: usize = 8;

impl<V> Default for PatternIndex<V> {
    fn default() -> PatternIndex<V> {
        PatternIndex { root: Node::new(), len: 0 }
    }
}

impl<V> PatternIndex<V> {
    /// Creates an empty index.
    pub fn new() -> PatternIndex<V> {
        PatternIndex::default()
    }

    /// Number of patterns.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the value of a pattern. Returns the pattern's previous value.
    pub fn insert(&mut self, pattern: &Pattern, value: V) -> Option<V> {
        let before = self.root.slot(pattern.as_str()).replace(value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Mutable access to the value of a pattern.
    pub fn get_mut(&mut self, pattern: &Pattern) -> Option<&mut V> {
        self.root.existing_slot(pattern.as_str())?.as_mut()
    }

    /// Removes a pattern and returns its value.
    pub fn remove(&mut self, pattern: &Pattern) -> Option<V> {
        let removed = self.root.remove(pattern.as_str());
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Removes the patterns for whose value `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        self.len -= self.root.retain(&mut keep);
    }

    /// The value of a pattern that matches the subject. If several patterns match, the pattern whose first differing
    /// token is most literal wins: a literal token before `*`, and `*` before `>`.
    pub fn owner(&self, subject: Subject<'_>) -> Option<&V> {
        self.root.owner(subject.as_str())
    }

    /// The value of one pattern in the index that overlaps `pattern`; `None` if there is no such pattern. Two patterns
    /// overlap if some subject matches both.
    pub fn find_overlapping(&self, pattern: &Pattern) -> Option<&V> {
        let mut each = |visited| match visited {
            Some(value) => ControlFlow::Break(value),
            None => ControlFlow::Continue(()),
        };
        self.root.visit(pattern.as_str(), &mut each).break_value()
    }

    /// Calls `each` with the value of each pattern that matches the subject, in no particular order.
    pub(crate) fn for_each_matching<'a>(&'a self, subject: &str, mut each: impl FnMut(&'a V)) {
        let mut each = |visited: Option<&'a V>| {
            visited.into_iter().for_each(&mut each);
            ControlFlow::<()>::Continue(())
        };
        let _ = self.root.visit(subject, &mut each);
    }

    /// Calls `each` with the value of each pattern in the index that overlaps `pattern`, in no particular order.
    pub fn for_each_overlapping<'a>(&'a self, pattern: &Pattern, mut each: impl FnMut(&'a V)) {
        let mut each = |visited: Option<&'a V>| {
            visited.into_iter().for_each(&mut each);
            ControlFlow::<()>::Continue(())
        };
        let _ = self.root.visit(pattern.as_str(), &mut each);
    }

    /// Like [`for_each_overlapping`](PatternIndex::for_each_overlapping), but visits at most `nodes_max` nodes of the
    /// tree. Returns whether all overlapping patterns were visited.
    pub fn for_each_overlapping_within<'a>(
        &'a self,
        pattern: &Pattern,
        nodes_max: usize,
        mut each: impl FnMut(&'a V),
    ) -> bool {
        let mut nodes_left = nodes_max;
        let mut each = |visited: Option<&'a V>| {
            match visited {
                Some(value) => each(value),
                None if nodes_left == 0 => return ControlFlow::Break(()),
                None => nodes_left -= 1,
            }
            ControlFlow::Continue(())
        };
        self.root.visit(pattern.as_str(), &mut each).is_continue()
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('.') {
        Some((token, rest)) => (token, Some(rest)),
        None => (text, None),
    }
}

impl<V> Node<V> {
    fn new() -> Node<V> {
        Node { children: Children::Few(Vec::new()), star: None, value: None, rest_value: None }
    }

    fn is_empty(&self) -> bool {
        self.value.is_none() && self.rest_value.is_none() && self.star.is_none() && self.children.is_empty()
    }

    /// The place for the value of this pattern. Creates the nodes that are missing on the path to it.
    fn slot(&mut self, pattern: &str) -> &mut Option<V> {
        let (token, after) = split(pattern);
        let child = match token {
            ">" => return &mut self.rest_value,
            "*" => &mut **self.star.get_or_insert_with(|| Box::new(Node::new())),
            token => self.children.get_or_add(token),
        };
        match after {
            Some(after) => child.slot(after),
            None => &mut child.value,
        }
    }

    fn existing_slot(&mut self, pattern: &str) -> Option<&mut Option<V>> {
        let (token, after) = split(pattern);
        let child = match token {
            ">" => return Some(&mut self.rest_value),
            "*" => self.star.as_deref_mut()?,
            token => self.children.get_mut(token)?,
        };
        match after {
            Some(after) => child.existing_slot(after),
            None => Some(&mut child.value),
        }
    }

    fn remove(&mut self, pattern: &str) -> Option<V> {
        let (token, after) = split(pattern);
        let child = match token {
            ">" => return self.rest_value.take(),
            "*" => self.star.as_deref_mut()?,
            token => self.children.get_mut(token)?,
        };
        let removed = match after {
            Some(after) => child.remove(after),
            None => child.value.take(),
        };
        if child.is_empty() {
            match token {
                "*" => self.star = None,
                token => self.children.remove(token),
            }
        }
        removed
    }

    /// Removes the values for which `keep` returns `false`, here and below this node. Returns their number.
    fn retain(&mut self, keep: &mut impl FnMut(&mut V) -> bool) -> usize {
        let mut removed = 0;
        for value in [&mut self.value, &mut self.rest_value] {
            if value.as_mut().is_some_and(|value| !keep(value)) {
                *value = None;
                removed += 1;
            }
        }
        let mut is_needed = |child: &mut Node<V>| {
            removed += child.retain(keep);
            !child.is_empty()
        };
        if self.star.as_deref_mut().is_some_and(|star| !is_needed(star)) {
            self.star = None;
        }
        self.children.retain(is_needed);
        removed
    }

    fn owner(&self, subject: &str) -> Option<&V> {
        let (token, after) = split(subject);
        let literal = self.children.get(token).and_then(|child| child.owner_below(after));
        literal
            .or_else(|| self.star.as_deref().and_then(|child| child.owner_below(after)))
            .or(self.rest_value.as_ref())
    }

    fn owner_below(&self, after: Option<&str>) -> Option<&V> {
        match after {
            Some(after) => self.owner(after),
            None => self.value.as_ref(),
        }
    }

    /// Passes to `each` the value of every pattern below this node that overlaps the tokens in `pattern`, and `None` for
    /// every node that is visited.
    fn visit<'a, B>(
        &'a self,
        pattern: &str,
        each: &mut impl FnMut(Option<&'a V>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let (token, after) = split(pattern);
        if token == ">" {
            return self.visit_below(each);
        }
        if let Some(value) = &self.rest_value {
            each(Some(value))?;
        }
        if let Some(star) = &self.star {
            star.visit_after(after, each)?;
        }
        if token == "*" {
            return self.children.try_for_each(&mut |child| child.visit_after(after, each));
        }
        match self.children.get(token) {
            Some(child) => child.visit_after(after, each),
            None => ControlFlow::Continue(()),
        }
    }

    fn visit_after<'a, B>(
        &'a self,
        after: Option<&str>,
        each: &mut impl FnMut(Option<&'a V>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        each(None)?;
        match (after, &self.value) {
            (Some(after), _) => self.visit(after, each),
            (None, Some(value)) => each(Some(value)),
            (None, None) => ControlFlow::Continue(()),
        }
    }

    /// Passes to `each` the value of every pattern that has at least one more token after this node.
    fn visit_below<'a, B>(
        &'a self,
        each: &mut impl FnMut(Option<&'a V>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if let Some(value) = &self.rest_value {
            each(Some(value))?;
        }
        let mut visit_child = |child: &'a Node<V>| {
            each(None)?;
            if let Some(value) = &child.value {
                each(Some(value))?;
            }
            child.visit_below(each)
        };
        if let Some(star) = &self.star {
            visit_child(star)?;
        }
        self.children.try_for_each(&mut visit_child)
    }
}

impl<V> Children<V> {
    fn is_empty(&self) -> bool {
        match self {
            Children::Few(few) => few.is_empty(),
            Children::Many(many) => many.is_empty(),
        }
    }

    fn get(&self, token: &str) -> Option<&Node<V>> {
        match self {
            Children::Few(few) => few.iter().find(|(known, _)| **known == *token).map(|(_, child)| child),
            Children::Many(many) => many.get(token),
        }
    }

    fn get_mut(&mut self, token: &str) -> Option<&mut Node<V>> {
        match self {
            Children::Few(few) => few.iter_mut().find(|(known, _)| **known == *token).map(|(_, child)| child),
            Children::Many(many) => many.get_mut(token),
        }
    }

    fn get_or_add(&mut self, token: &str) -> &mut Node<V> {
        if let Children::Few(few) = self
            && few.len() == FEW_MAX
        {
            *self = Children::Many(Box::new(few.drain(..).collect()));
        }
        match self {
            Children::Few(few) => {
                let known = few.iter().position(|(known, _)| **known == *token);
                let at = known.unwrap_or_else(|| {
                    // Most nodes have a single child, so room for further children would waste memory.
                    few.reserve_exact(1);
                    few.push((token.into(), Node::new()));
                    few.len() - 1
                });
                &mut few[at].1
            }
            Children::Many(many) => many.entry(token.into()).or_insert_with(Node::new),
        }
    }

    fn remove(&mut self, token: &str) {
        match self {
            Children::Few(few) => few.retain(|(known, _)| **known != *token),
            Children::Many(many) => {
                many.remove(token);
            }
        }
        if self.is_empty() {
            *self = Children::Few(Vec::new());
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&mut Node<V>) -> bool) {
        match self {
            Children::Few(few) => few.retain_mut(|(_, child)| keep(child)),
            Children::Many(many) => many.retain(|_, child| keep(child)),
        }
        if self.is_empty() {
            *self = Children::Few(Vec::new());
        }
    }

    fn try_for_each<'a, B>(&'a self, each: &mut impl FnMut(&'a Node<V>) -> ControlFlow<B>) -> ControlFlow<B> {
        match self {
            Children::Few(few) => few.iter().try_for_each(|(_, child)| each(child)),
            Children::Many(many) => many.values().try_for_each(each),
        }
    }
}

#[cfg(test)]
mod tests;

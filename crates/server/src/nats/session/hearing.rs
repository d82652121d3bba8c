//! Whether somebody in the cluster subscribes to a subject: what is published next may wait until the other nodes have
//! answered.

use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::TopicFuture;
use dunlin::topic::Pattern;

use super::Session;
use super::access::Entrance;
use super::publish::Full;

/// The answers that what is published next needs, and the one that is waited for.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    known: Vec<(Pattern, Scope, bool)>,
    query: Option<(Pattern, Scope, TopicFuture<bool>)>,
}

/// Whose subscriptions are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Those at other nodes.
    Others,
    /// Those of other users, to an inbox, at other nodes.
    OtherUsers,
}

impl Hearing {
    pub(super) fn is_waiting(&self) -> bool {
        self.query.is_some()
    }

    /// Whether the answer that was waited for has just come.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, _, query)) = &mut self.query else { return Poll::Ready(()) };
        let Poll::Ready(is_heard) = Pin::new(query).poll(cx) else { return Poll::Pending };
        if let Some((pattern, scope, _)) = self.query.take() {
            self.known.push((pattern, scope, is_heard.unwrap_or(true)));
        }
        Poll::Ready(())
    }

    /// It is published.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

impl Session {
    /// Whether somebody subscribes to a subject of the pattern. Where that has to be queried, what begins at `from` comes again.
    pub(super) fn is_heard(&mut self, pattern: &Pattern, from: usize) -> Result<bool, Full> {
        self.query(pattern, Scope::All, from)
    }

    /// The same of other nodes alone.
    pub(super) fn is_heard_elsewhere(&mut self, pattern: &Pattern, from: usize) -> Result<bool, Full> {
        self.query(pattern, Scope::Others, from)
    }

    /// Whether another user has the inbox at another node.
    pub(super) fn is_inbox_of_another(&mut self, inbox: &Pattern, from: usize) -> Result<bool, Full> {
        self.query(inbox, Scope::OtherUsers, from)
    }

    fn query(&mut self, pattern: &Pattern, scope: Scope, from: usize) -> Result<bool, Full> {
        let mut known = self.hearing.known.iter();
        if let Some((_, _, is_heard)) = known.find(|(of, within, _)| of == pattern && *within == scope) {
            return Ok(*is_heard);
        }
        let mut query = match scope {
            Scope::All => self.node.is_heard_async(pattern),
            Scope::Others => self.node.is_heard_elsewhere_async(pattern),
            Scope::OtherUsers => match &self.entrance {
                Entrance::Known(login) => {
                    self.node.is_inbox_of_another_async(pattern, login.account().name())
                }
                _ => return Ok(false),
            },
        };
        match query.take_now() {
            // A node that cannot know takes it that somebody subscribes.
            Some(is_heard) => Ok(is_heard.unwrap_or(true)),
            None => {
                self.hearing.query = Some((pattern.clone(), scope, query));
                Err(Full { from })
            }
        }
    }
}

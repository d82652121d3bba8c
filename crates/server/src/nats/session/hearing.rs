//! Queries whether the cluster has a subscriber to a subject. The next publish may wait until the other nodes
//! respond.

use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::TopicFuture;
use dunlin::topic::Pattern;

use super::Session;
use super::access::Entrance;
use super::publish::Full;

/// Results that the next publish needs, and the pending query.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    known: Vec<(Pattern, Scope, bool)>,
    query: Option<(Pattern, Scope, TopicFuture<bool>)>,
}

/// Which subscriptions a query covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Subscriptions at other nodes.
    Others,
    /// Subscriptions of other users to an inbox, at other nodes.
    OtherUsers,
}

impl Hearing {
    pub(super) fn is_waiting(&self) -> bool {
        self.query.is_some()
    }

    /// Ready when the pending query has its result.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, _, query)) = &mut self.query else { return Poll::Ready(()) };
        let Poll::Ready(is_heard) = Pin::new(query).poll(cx) else { return Poll::Pending };
        if let Some((pattern, scope, _)) = self.query.take() {
            self.known.push((pattern, scope, is_heard.unwrap_or(true)));
        }
        Poll::Ready(())
    }

    /// Drops the results after the publish.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

impl Session {
    /// Whether a subject of the pattern has a subscriber. If a query is needed, reading starts again at `from`.
    pub(super) fn is_heard(&mut self, pattern: &Pattern, from: usize) -> Result<bool, Full> {
        self.query(pattern, Scope::All, from)
    }

    /// The same for other nodes alone.
    pub(super) fn is_heard_elsewhere(&mut self, pattern: &Pattern, from: usize) -> Result<bool, Full> {
        self.query(pattern, Scope::Others, from)
    }

    /// Whether another user has the inbox, at another node.
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
            // A node that cannot query assumes a subscriber.
            Some(is_heard) => Ok(is_heard.unwrap_or(true)),
            None => {
                self.hearing.query = Some((pattern.clone(), scope, query));
                Err(Full { from })
            }
        }
    }
}

//! Asks other nodes whether they have a subscriber to a subject. A publish may have to wait for their responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::TopicFuture;
use dunlin::topic::Pattern;

use super::Session;
use super::access::LoginState;
use super::publish::RetryFrom;

/// Queries to other nodes for subscribers of a subject: the results that the next publish needs, and the query whose
/// result is pending.
#[derive(Debug, Default)]
pub(super) struct SubscriberQueries {
    known: Vec<(Pattern, QueryScope, bool)>,
    query: Option<(Pattern, QueryScope, TopicFuture<bool>)>,
}

/// Which subscriptions a query looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryScope {
    All,
    /// Subscriptions at other nodes to which a reply may go.
    ReplyOthers,
    /// Subscriptions of other users to an inbox, at other nodes.
    OtherUsers,
}

impl SubscriberQueries {
    pub(super) fn is_waiting(&self) -> bool {
        self.query.is_some()
    }

    /// Returns `Ready` when the pending query has its result.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, _, query)) = &mut self.query else { return Poll::Ready(()) };
        let Poll::Ready(has_subscriber) = Pin::new(query).poll(cx) else { return Poll::Pending };
        if let Some((pattern, scope, _)) = self.query.take() {
            self.known.push((pattern, scope, has_subscriber.unwrap_or(true)));
        }
        Poll::Ready(())
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

impl Session {
    /// Whether any subject of the pattern has a subscriber. If other nodes must be asked, fails; the operations from
    /// offset `from` are then handled again after the query.
    pub(super) fn has_subscriber(&mut self, pattern: &Pattern, from: usize) -> Result<bool, RetryFrom> {
        self.query(pattern, QueryScope::All, from)
    }

    /// Whether another node has a subscriber that may receive replies. A node that does not respond is assumed to have
    /// none.
    pub(super) fn has_reply_subscriber_elsewhere(
        &mut self,
        pattern: &Pattern,
        from: usize,
    ) -> Result<bool, RetryFrom> {
        self.query(pattern, QueryScope::ReplyOthers, from)
    }

    /// Whether the inbox belongs to another user's connection at another node.
    pub(super) fn is_inbox_of_another(&mut self, inbox: &Pattern, from: usize) -> Result<bool, RetryFrom> {
        self.query(inbox, QueryScope::OtherUsers, from)
    }

    fn query(&mut self, pattern: &Pattern, scope: QueryScope, from: usize) -> Result<bool, RetryFrom> {
        let mut known = self.subscriber_queries.known.iter();
        if let Some((_, _, has_subscriber)) =
            known.find(|(known_pattern, known_scope, _)| known_pattern == pattern && *known_scope == scope)
        {
            return Ok(*has_subscriber);
        }
        let mut query = match scope {
            QueryScope::All => self.node.has_subscriber_async(pattern),
            QueryScope::ReplyOthers => self.node.has_remote_reply_subscriber_async(pattern),
            QueryScope::OtherUsers => match &self.login_state {
                LoginState::LoggedIn(login) => {
                    self.node.is_inbox_of_other_user_async(pattern, login.account().name())
                }
                _ => return Ok(false),
            },
        };
        match query.try_take() {
            // If the node cannot send the query, it assumes that there is a subscriber.
            Some(has_subscriber) => Ok(has_subscriber.unwrap_or(true)),
            None => {
                self.subscriber_queries.query = Some((pattern.clone(), scope, query));
                Err(RetryFrom { from })
            }
        }
    }
}

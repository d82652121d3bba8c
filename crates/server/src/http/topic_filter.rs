//! Filters a list of topics by a pattern, by a part of the name, and by the kind of state.
//!
//! Limit: one request examines about [`EXAMINED_MAX`] topics, in pages between which other tasks run. If more topics
//! remain, the response has the name after which the next request must continue.

use std::sync::Arc;

use dunlin::STATES;
use dunlin::topic::{Pattern, Topic};

use super::context::Context;
use super::problem::Problem;
use super::query::QueryParameters;
use crate::session::turn::SEARCHED_TOPICS;

/// Number of topics after which a request stops, at the end of a page.
const EXAMINED_MAX: usize = 200_000;
/// The value of the parameter `state` that matches topics with any kind of state.
const ANY_STATE: &str = "any";

/// The filter of a list of topics. A topic must match all parts of the filter.
pub(super) struct TopicFilter {
    pattern: Option<Pattern>,
    /// A text, in lower case, that the topic's name must contain.
    contains: Option<String>,
    state: Option<String>,
}

/// One page of topics, in the order of their names.
pub(super) struct TopicPage {
    pub(super) topics: Vec<Arc<Topic>>,
    /// Whether there may be more topics after `next`.
    pub(super) more: bool,
    pub(super) next: Option<String>,
}

impl TopicFilter {
    /// Parses the filter from the query parameters `pattern`, `contains` and `state`.
    pub(super) fn of(query: &QueryParameters) -> Result<TopicFilter, Problem> {
        Ok(TopicFilter {
            pattern: query.get("pattern").map(Pattern::parse).transpose()?,
            contains: query.get("contains").map(str::to_lowercase).filter(|text| !text.is_empty()),
            state: query.get("state").map(parse_state).transpose()?,
        })
    }

    pub(super) fn accepts_all(&self) -> bool {
        self.pattern.is_none() && self.contains.is_none() && self.state.is_none()
    }

    /// Returns at most `limit` matching topics whose names come after `after`.
    pub(super) async fn page(&self, context: &Context, after: &str, limit: usize) -> TopicPage {
        let (mut topics, mut examined) = (Vec::new(), 0);
        let mut next = after.to_owned();
        loop {
            // Each request has a turn of its own, even if a client sends many requests at once.
            tokio::task::yield_now().await;
            let topics_max = self.page_topics(context, limit);
            let page =
                context.node().topics_within(self.pattern.as_ref(), &next, topics_max, SEARCHED_TOPICS);
            examined += SEARCHED_TOPICS;
            for (at, topic) in page.topics.iter().enumerate() {
                next = topic.name().to_owned();
                if self.accepts(topic) {
                    topics.push(Arc::clone(topic));
                }
                if topics.len() == limit {
                    let more = page.more || at + 1 < page.topics.len();
                    return TopicPage { topics, more, next: more.then_some(next) };
                }
            }
            if !page.more {
                return TopicPage { topics, more: false, next: None };
            }
            next = page.next.unwrap_or(next);
            if examined >= EXAMINED_MAX {
                return TopicPage { topics, more: true, next: Some(next) };
            }
        }
    }

    /// How many topics to examine at once: the maximum if the filter may reject most topics, otherwise `limit`.
    fn page_topics(&self, context: &Context, limit: usize) -> usize {
        let topics_max = context.node().config().limits.page_topics_max;
        if self.contains.is_none() && self.state.is_none() { limit } else { topics_max }
    }

    fn accepts(&self, topic: &Topic) -> bool {
        let contains =
            self.contains.as_ref().is_none_or(|text| topic.name().to_lowercase().contains(text.as_str()));
        contains
            && self.state.as_ref().is_none_or(|state| {
                state_of(topic).is_some_and(|kind| state == ANY_STATE || kind == state.as_str())
            })
    }
}

fn parse_state(text: &str) -> Result<String, Problem> {
    if text == ANY_STATE || STATES.contains(&text) {
        return Ok(text.to_owned());
    }
    let names = STATES.join(", ");
    Err(Problem::bad_request(format!("state={text}: expected one of {ANY_STATE}, {names}")))
}

/// The kind of the topic's state; `None` for a plain topic.
pub(super) fn state_of(topic: &Topic) -> Option<&str> {
    topic.config().reducer.as_ref().map(|reducer| reducer.kind.as_str())
}

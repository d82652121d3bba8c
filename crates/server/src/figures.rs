//! Collects topic counters from all nodes: the owners' retained records, and the publishers and subscribers
//! at each node.
//!
//! Each node knows only its own part of the figures. One request to each other live node covers all topics; the
//! requests run in parallel. The figures of a node that does not respond within [`ANSWER_WITHIN`] are unknown, never 0.
//!
//! Limits: a response has the requested topics, at most [`FiguresRequest::topics_max`] and
//! [`FiguresRequest::subscribers_max`] further topics, and [`SUBSCRIBERS_SHOWN`] subscribers of each topic.

mod form;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::{LogInfo, LossCounters, SubscriberInfo, Topic};
use dunlin::{GroupInfo, Node, Ownership, is_mirror, subscribers_of};
use serde::{Deserialize, Serialize};

use crate::shared::SharedServer;
use form::{GroupForm, LogForm, LossesForm, SubscriberForm};

/// Time limit for another node's response.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Number of subscribers of a topic that are shown; the slowest are shown.
pub(crate) const SUBSCRIBERS_SHOWN: usize = 20;

/// A request for one node's figures: the topics to report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FiguresRequest {
    /// Names of topics to report.
    pub(crate) names: Vec<String>,
    /// Maximum number of further topics to report: the busiest topics that the node owns.
    pub(crate) topics_max: usize,
    /// Maximum number of further topics to report: the topics of the node's slowest subscribers.
    pub(crate) subscribers_max: usize,
}

/// One node's figures of the requested topics.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FiguresResponse {
    topics: Vec<NodeTopicFigures>,
    /// Number of subscriptions at the node; set only if subscribers were requested.
    subscriptions: usize,
}

/// One node's figures of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct NodeTopicFigures {
    topic: String,
    /// The owner's figures; `None` if another node owns the topic.
    owned: Option<OwnedFigures>,
    publishers: u32,
    subscribers_total: u32,
    waiting: u32,
    subscribers: Vec<SubscriberForm>,
    losses: LossesForm,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OwnedFigures {
    logs: Vec<LogForm>,
    groups: Vec<GroupForm>,
}

/// A topic's figures from all nodes.
#[derive(Debug, Clone)]
pub(crate) struct TopicFigures {
    /// The figures of the topic's logs and groups at its owner; `None` while the owner does not respond.
    pub(crate) owner: Option<OwnerFigures>,
    /// The topic's subscribers and publishers; `None` if a node did not respond.
    pub(crate) clients: Option<TopicClients>,
}

/// A topic's logs and groups, as its owner reports them.
#[derive(Debug, Clone)]
pub(crate) struct OwnerFigures {
    /// The logs of the topic, each with its partition number.
    pub(crate) logs: Vec<(u16, LogInfo)>,
    pub(crate) groups: Vec<GroupInfo>,
}

/// Publishers and subscribers of a topic at all nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopicClients {
    pub(crate) publishers: u32,
    pub(crate) subscribers_total: u32,
    /// Number of subscribers that have read all records.
    pub(crate) waiting: u32,
    /// The slowest subscribers, largest lag first. In a cluster, each has the number of its node.
    pub(crate) subscribers: Vec<(Option<u64>, SubscriberInfo)>,
    pub(crate) losses: LossCounters,
}

/// The figures that the other nodes returned.
#[derive(Debug, Default)]
pub(crate) struct ClusterFigures {
    parts: HashMap<String, BTreeMap<u64, NodeTopicFigures>>,
    subscriptions: usize,
    /// Numbers of the live nodes that did not respond.
    pub(crate) silent: BTreeSet<u64>,
}

impl OwnerFigures {
    /// Number of retained records.
    pub(crate) fn records(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.next_seq - info.oldest_seq).sum()
    }

    /// Number of retained bytes; for a durable topic, the bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.stored.map_or(info.bytes, |stored| stored.bytes)).sum()
    }

    /// Bytes of memory that the retained records take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.bytes).sum()
    }

    /// Number of records that were appended in the logs' current epochs.
    pub(crate) fn appended(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.next_seq - 1).sum()
    }

    /// Number of bytes that were appended since the owner started.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.appended_bytes).sum()
    }

    /// Time at which the last record was appended, ns since the Unix epoch; 0 for never.
    pub(crate) fn last_append_ns(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.last_append_ns).max().unwrap_or(0)
    }
}

impl FiguresResponse {
    /// This node's figures for the request; `None` outside a cluster.
    pub(crate) fn of(shared: &SharedServer, request: &FiguresRequest) -> Option<FiguresResponse> {
        let node = &shared.node;
        let ownership = shared.cluster.get()?.ownership()?;
        let mut topics: BTreeMap<String, Arc<Topic>> = BTreeMap::new();
        let named = request.names.iter().filter_map(|name| node.topic(name));
        topics.extend(named.map(|topic| (topic.name().to_owned(), topic)));
        let mut subscriptions = 0;
        if request.topics_max > 0 || request.subscribers_max > 0 {
            let survey = node.survey(request.topics_max, request.subscribers_max);
            subscriptions = survey.subscriptions;
            let found = survey.busiest.into_iter().map(|busy| busy.topic);
            let found = found.chain(survey.slowest.into_iter().map(|subscription| subscription.topic));
            topics.extend(found.map(|topic| (topic.name().to_owned(), topic)));
        }
        let part = |topic: &Arc<Topic>| NodeTopicFigures::of(node, Some(&ownership), topic);
        Some(FiguresResponse { topics: topics.values().map(part).collect(), subscriptions })
    }
}

impl NodeTopicFigures {
    fn of(node: &Node, ownership: Option<&Ownership>, topic: &Arc<Topic>) -> NodeTopicFigures {
        let is_owned = ownership.is_none_or(|ownership| ownership.owner_of(topic).0 == ownership.id());
        let infos: Vec<(u16, LogInfo)> =
            topic.logs().iter().map(|log| (log.name().partition, log.info())).collect();
        let mirrors = topic
            .subscribers()
            .iter()
            .filter(|subscriber| is_mirror(subscriber) && subscriber.lag == 0)
            .count();
        let waiting =
            infos.iter().map(|(_, info)| info.waiting).sum::<usize>().saturating_sub(mirrors) as u32;
        let subscribers = subscribers_of(topic);
        let mut losses = LossCounters::default();
        for (_, info) in &infos {
            losses.add(info.losses);
        }
        NodeTopicFigures {
            topic: topic.name().to_owned(),
            publishers: topic.publishers(),
            subscribers_total: (subscribers.len() as u32).max(waiting),
            waiting,
            subscribers: subscribers.into_iter().take(SUBSCRIBERS_SHOWN).map(SubscriberForm::from).collect(),
            losses: LossesForm(losses),
            owned: is_owned.then(|| OwnedFigures {
                logs: infos.into_iter().map(|(partition, info)| LogForm { partition, info }).collect(),
                groups: node.groups(topic).into_iter().map(GroupForm).collect(),
            }),
        }
    }
}

impl ClusterFigures {
    /// Adds the response of node `node`; `None` if it did not respond.
    pub(crate) fn add_response(&mut self, node: u64, response: Option<FiguresResponse>) {
        let Some(response) = response else {
            self.silent.insert(node);
            return;
        };
        self.subscriptions += response.subscriptions;
        for part in response.topics {
            self.parts.entry(part.topic.clone()).or_default().insert(node, part);
        }
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// Takes all subscribers from the responses, each with its node and its topic.
    pub(crate) fn take_subscribers(&mut self) -> Vec<(u64, String, SubscriberInfo)> {
        let mut all = Vec::new();
        for (topic, parts) in &mut self.parts {
            for (node, part) in parts {
                let subscribers = std::mem::take(&mut part.subscribers);
                all.extend(
                    subscribers.into_iter().map(|subscriber| (*node, topic.clone(), subscriber.into())),
                );
            }
        }
        all
    }

    /// Number of subscriptions at the other nodes that responded.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// The figures of a topic, summed over this node and the other nodes that responded.
    pub(crate) fn of(&self, shared: &SharedServer, topic: &Arc<Topic>) -> TopicFigures {
        let ownership = shared.cluster.get().and_then(|seat| seat.ownership());
        let local = NodeTopicFigures::of(&shared.node, ownership.as_deref(), topic);
        let node_id = ownership.as_ref().map(|ownership| ownership.id());
        let owner_id = ownership.as_ref().map(|ownership| ownership.owner_of(topic).0);
        let elsewhere = self.parts.get(topic.name());
        let owner = match (local.owned.clone(), owner_id) {
            (Some(owned), _) => Some(owned),
            (None, Some(owner_id)) => elsewhere.and_then(|parts| parts.get(&owner_id)?.owned.clone()),
            (None, None) => None,
        };
        let clients = self.silent.is_empty().then(|| {
            let mut clients = TopicClients::default();
            clients.add(node_id, local);
            for (node, part) in elsewhere.into_iter().flatten() {
                clients.add(Some(*node), part.clone());
            }
            clients.subscribers.sort_by_key(|(_, subscriber)| std::cmp::Reverse(subscriber.lag));
            clients
        });
        TopicFigures { owner: owner.map(OwnerFigures::from), clients }
    }
}

impl TopicClients {
    fn add(&mut self, node: Option<u64>, part: NodeTopicFigures) {
        self.publishers += part.publishers;
        self.subscribers_total += part.subscribers_total;
        self.waiting += part.waiting;
        self.subscribers.extend(part.subscribers.into_iter().map(|subscriber| (node, subscriber.into())));
        self.losses.add(part.losses.0);
    }
}

impl From<OwnedFigures> for OwnerFigures {
    fn from(owned: OwnedFigures) -> OwnerFigures {
        OwnerFigures {
            logs: owned.logs.into_iter().map(|log| (log.partition, log.info)).collect(),
            groups: owned.groups.into_iter().map(|group| group.0).collect(),
        }
    }
}

impl SharedServer {
    /// Sends requests for figures to the other nodes; returns a future of their responses, or `None` if there are no
    /// other nodes.
    pub(crate) fn request_figures(
        &self,
        request: impl FnOnce() -> FiguresRequest,
    ) -> Option<impl Future<Output = ClusterFigures> + Send + 'static> {
        let seat = self.cluster.get()?;
        let others = seat.others();
        if others.is_empty() {
            return None;
        }
        let responses = seat.request_figures(others, request());
        Some(async move {
            let mut figures = ClusterFigures::default();
            for (node, response) in responses {
                figures.add_response(node, response.await.ok().flatten());
            }
            figures
        })
    }

    /// Requests the figures of `topics` from the other nodes.
    pub(crate) async fn figures_of(&self, topics: &[Arc<Topic>]) -> ClusterFigures {
        let names = || topics.iter().map(|topic| topic.name().to_owned()).collect();
        match self.request_figures(|| FiguresRequest { names: names(), ..FiguresRequest::default() }) {
            Some(responses) => responses.await,
            None => ClusterFigures::default(),
        }
    }
}

//! Collects counters of topics from all nodes: the retained records from each topic's owner, and the publishers and
//! subscribers from every node.
//!
//! These counters are called figures. Each node knows only its own part of them. One request to each other live node
//! asks for all topics, and the requests run concurrently. If a node does not respond within [`ANSWER_WITHIN`], its
//! figures are reported as unknown, never as 0.
//!
//! Limits: a response has the requested topics and at most [`FiguresRequest::topics_max`] plus
//! [`FiguresRequest::subscribers_max`] other topics. It lists at most [`SUBSCRIBERS_SHOWN`] subscribers of each topic.

mod form;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::{LogInfo, LossCounters, SubscriberInfo, Topic};
use dunlin::{GroupInfo, Node, Ownership, is_mirror, subscribers_of};
use serde::{Deserialize, Serialize};

use crate::shared::SharedServer;
use form::{GroupForm, LogForm, LossesForm, SubscriberForm};

/// Time limit for another node's response to a request for figures.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of a topic's subscribers that a response lists; the slowest are listed.
pub(crate) const SUBSCRIBERS_SHOWN: usize = 20;

/// A request for the figures of one node. The fields state which topics the response reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FiguresRequest {
    /// Topics that are reported in any case.
    pub(crate) names: Vec<String>,
    /// The response also reports the node's busiest topics, at most this many.
    pub(crate) topics_max: usize,
    /// The response also reports the topics of the node's slowest subscribers, at most this many.
    pub(crate) subscribers_max: usize,
}

/// The figures that one node has of the requested topics.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FiguresResponse {
    topics: Vec<NodeTopicFigures>,
    /// Number of subscriptions at the node; 0 unless the request asked for busiest topics or slowest subscribers.
    subscriptions: usize,
}

/// The figures that one node has of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct NodeTopicFigures {
    topic: String,
    /// The figures that only the topic's owner has; `None` if this node is not the owner.
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

/// The figures of a topic, collected from all nodes.
#[derive(Debug, Clone)]
pub(crate) struct TopicFigures {
    /// The figures of the topic's logs and groups, as the owner reports them; `None` if the owner did not respond.
    pub(crate) owner: Option<OwnerFigures>,
    /// The topic's subscribers and publishers at all nodes; `None` if any node did not respond.
    pub(crate) clients: Option<TopicClients>,
}

/// The logs and groups of a topic, as the topic's owner reports them.
#[derive(Debug, Clone)]
pub(crate) struct OwnerFigures {
    /// The topic's logs, each with its partition number.
    pub(crate) logs: Vec<(u16, LogInfo)>,
    pub(crate) groups: Vec<GroupInfo>,
}

/// The publishers and subscribers of a topic at all nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopicClients {
    pub(crate) publishers: u32,
    pub(crate) subscribers_total: u32,
    /// Number of subscribers that have read all records, and wait for the next one.
    pub(crate) waiting: u32,
    /// The slowest subscribers, each with the number of its node, or `None` outside a cluster. The subscriber with the
    /// largest lag comes first.
    pub(crate) subscribers: Vec<(Option<u64>, SubscriberInfo)>,
    pub(crate) losses: LossCounters,
}

/// The figures from the other nodes' responses.
#[derive(Debug, Default)]
pub(crate) struct ClusterFigures {
    parts: HashMap<String, BTreeMap<u64, NodeTopicFigures>>,
    subscriptions: usize,
    /// Numbers of those live nodes that did not respond.
    pub(crate) silent: BTreeSet<u64>,
}

impl OwnerFigures {
    /// Number of records that the logs retain.
    pub(crate) fn records(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.next_seq - info.oldest_seq).sum()
    }

    /// Number of bytes that the logs retain. For a durable topic, the bytes on disk count.
    pub(crate) fn bytes(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.stored.map_or(info.bytes, |stored| stored.bytes)).sum()
    }

    /// Memory that the retained records take, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.bytes).sum()
    }

    /// The number of the owner's records that the subscriber has not read; `None` if the subscriber reads another epoch
    /// than the owner's. The lag that the subscriber's own node knows may be lower, because that node may not have
    /// received all of the owner's records yet.
    fn lag_of(&self, subscriber: &SubscriberInfo) -> Option<u64> {
        let SubscriberInfo { partition, position, .. } = subscriber;
        let is_read = |(of, info): &&(u16, LogInfo)| of == partition && info.epoch == position.epoch;
        let (_, info) = self.logs.iter().find(is_read)?;
        let last = info.stored.map_or(info.next_seq - 1, |stored| stored.synced_seq);
        Some(last.saturating_sub(position.seq))
    }

    /// Number of records appended to the logs since the beginning of each log's present epoch.
    pub(crate) fn appended(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.next_seq - 1).sum()
    }

    /// Number of bytes appended to the logs since the owner started.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.appended_bytes).sum()
    }

    /// Time of the last append to any of the logs, ns since the Unix epoch; 0 if there was none.
    pub(crate) fn last_append_ns(&self) -> u64 {
        self.logs.iter().map(|(_, info)| info.last_append_ns).max().unwrap_or(0)
    }
}

impl FiguresResponse {
    /// Collects this node's figures for the request; `None` if the node is not in a cluster.
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
    /// Adds the response of a node. `None` means that the node did not respond.
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

    /// Removes all subscribers from the responses, and returns each with its node and its topic.
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

    /// Total number of subscriptions at the nodes that responded.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Combines this node's figures of a topic with those from the other nodes' responses.
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
        let owner = owner.map(OwnerFigures::from);
        let clients = self.silent.is_empty().then(|| {
            let mut clients = TopicClients::default();
            clients.add(node_id, local);
            for (node, part) in elsewhere.into_iter().flatten() {
                clients.add(Some(*node), part.clone());
            }
            for (_, subscriber) in &mut clients.subscribers {
                let lag_at_owner = owner.as_ref().and_then(|owner| owner.lag_of(subscriber));
                subscriber.lag = subscriber.lag.max(lag_at_owner.unwrap_or(0));
            }
            clients.subscribers.sort_by_key(|(_, subscriber)| std::cmp::Reverse(subscriber.lag));
            clients
        });
        TopicFigures { owner, clients }
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
    /// Sends a request for figures to each other live node. Returns a future for the responses, or `None` if there are
    /// no other nodes.
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

    /// Requests the figures of `topics` from the other nodes, and waits for the responses.
    pub(crate) async fn figures_of(&self, topics: &[Arc<Topic>]) -> ClusterFigures {
        let names = || topics.iter().map(|topic| topic.name().to_owned()).collect();
        match self.request_figures(|| FiguresRequest { names: names(), ..FiguresRequest::default() }) {
            Some(responses) => responses.await,
            None => ClusterFigures::default(),
        }
    }
}

//! The network between the nodes, and between nodes and clients. Each pair of nodes has two proxies: one for the
//! connections that the first node opens, and one for the connections that the second node opens.
//!
//! Node 1 connects to node 2 through proxy `1-2`, and clients connect to node 1 through proxy `c-1`. To cut the
//! direction from node 1 to node 2, the proxies discard two kinds of messages: requests of node 1 to node 2, and node
//! 1's responses to requests of node 2.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::Result;
use serde_json::json;

use crate::toxiproxy::{ProxyDirection, Toxiproxy};

/// A direction between two nodes: from the first node of the tuple to the second.
pub type NodePair = (u64, u64);

/// The proxies between the nodes of a cluster, and between nodes and clients.
#[derive(Debug)]
pub struct ProxyNetwork {
    proxies: Toxiproxy,
    ids: Vec<u64>,
    /// For each direction, the address of the proxy through which the first node reaches the second.
    pub links: BTreeMap<NodePair, SocketAddr>,
    /// For each node, the address of the proxy through which clients reach the node.
    pub listeners: BTreeMap<u64, SocketAddr>,
    cut: BTreeSet<NodePair>,
    /// The present faults of proxies; toxiproxy's word for a fault is "toxic". Each entry contains the names of the
    /// proxy and of the toxic. Toxics that cut a direction are not in this list, but in `cut`.
    toxics: Vec<(String, String)>,
    closed: Vec<String>,
}

impl ProxyNetwork {
    /// Starts the proxies. `nodes` contains two addresses for each node: the first is for other nodes, the second for
    /// clients.
    pub fn start(program: &str, nodes: &BTreeMap<u64, (SocketAddr, SocketAddr)>) -> Result<ProxyNetwork> {
        let proxies = Toxiproxy::start(program)?;
        let (mut links, mut listeners) = (BTreeMap::new(), BTreeMap::new());
        for (&to, &(peers, clients)) in nodes {
            for &from in nodes.keys().filter(|from| **from != to) {
                links.insert((from, to), proxies.add(&format!("{from}-{to}"), peers)?);
            }
            listeners.insert(to, proxies.add(&format!("c-{to}"), clients)?);
        }
        let ids = nodes.keys().copied().collect();
        Ok(ProxyNetwork {
            proxies,
            ids,
            links,
            listeners,
            cut: BTreeSet::new(),
            toxics: vec![],
            closed: vec![],
        })
    }

    /// Cuts the directions in `cut`, and restores all other directions. If a direction is cut, its bytes are discarded,
    /// and the sender gets no error.
    pub fn cut(&mut self, cut: BTreeSet<NodePair>) -> Result<()> {
        for &(from, to) in cut.difference(&self.cut) {
            let nothing = json!({"timeout": 0});
            self.proxies.add_toxic(
                &format!("{from}-{to}"),
                "cut_up",
                ProxyDirection::Up,
                "timeout",
                nothing.clone(),
            )?;
            self.proxies.add_toxic(
                &format!("{to}-{from}"),
                "cut_down",
                ProxyDirection::Down,
                "timeout",
                nothing,
            )?;
        }
        for &(from, to) in self.cut.difference(&cut) {
            self.proxies.remove_toxic(&format!("{from}-{to}"), "cut_up")?;
            self.proxies.remove_toxic(&format!("{to}-{from}"), "cut_down")?;
        }
        self.cut = cut;
        Ok(())
    }

    /// Delays requests and responses between nodes. Each message is delayed by `latency_ms`, plus or minus a random
    /// time of up to `jitter_ms`.
    pub fn delay(&mut self, latency_ms: u64, jitter_ms: u64) -> Result<()> {
        self.add_toxic_everywhere("latency", &json!({"latency": latency_ms, "jitter": jitter_ms}))
    }

    /// Limits each connection between nodes to this many kB per second in each direction. Also splits the data into
    /// small pieces.
    pub fn limit_rate(&mut self, rate_kb: u64) -> Result<()> {
        self.add_toxic_everywhere("bandwidth", &json!({"rate": rate_kb}))?;
        let pieces = json!({"average_size": 700, "size_variation": 600, "delay": 100});
        self.add_toxic_everywhere("slicer", &pieces)
    }

    /// Adds a toxic (a fault of a proxy) to all connections between nodes, in both directions.
    fn add_toxic_everywhere(&mut self, kind: &str, attributes: &serde_json::Value) -> Result<()> {
        for (from, to) in self.links.keys() {
            for (direction, suffix) in [(ProxyDirection::Up, "up"), (ProxyDirection::Down, "down")] {
                let (proxy, name) = (format!("{from}-{to}"), format!("{kind}_{suffix}"));
                self.proxies.add_toxic(&proxy, &name, direction, kind, attributes.clone())?;
                self.toxics.push((proxy, name));
            }
        }
        Ok(())
    }

    /// Closes all connections between nodes. New connections are possible at once.
    pub fn break_connections(&mut self) -> Result<()> {
        for (from, to) in self.links.keys() {
            let proxy = format!("{from}-{to}");
            self.proxies.enable(&proxy, false)?;
            self.proxies.enable(&proxy, true)?;
        }
        Ok(())
    }

    /// Closes clients' connections to a node, and refuses new connections.
    pub fn close_listener(&mut self, id: u64) -> Result<()> {
        let proxy = format!("c-{id}");
        self.proxies.enable(&proxy, false)?;
        self.closed.push(proxy);
        Ok(())
    }

    /// Discards all responses of a node to clients. The clients therefore do not learn the results of their requests.
    pub fn mute_listener(&mut self, id: u64) -> Result<()> {
        let proxy = format!("c-{id}");
        self.proxies.add_toxic(&proxy, "mute", ProxyDirection::Down, "timeout", json!({"timeout": 0}))?;
        self.toxics.push((proxy, "mute".to_owned()));
        Ok(())
    }

    /// Ends all faults of the network.
    pub fn heal(&mut self) -> Result<()> {
        self.cut(BTreeSet::new())?;
        for (proxy, toxic) in std::mem::take(&mut self.toxics) {
            self.proxies.remove_toxic(&proxy, &toxic)?;
        }
        for proxy in std::mem::take(&mut self.closed) {
            self.proxies.enable(&proxy, true)?;
        }
        Ok(())
    }

    /// Returns the directions between these nodes and all other nodes, both from and to these nodes.
    pub fn links_around(&self, inside: &[u64]) -> BTreeSet<NodePair> {
        self.links_where(|a, b| inside.contains(&a) != inside.contains(&b))
    }

    /// Returns the directions for which `condition` returns `true`.
    pub fn links_where(&self, condition: impl Fn(u64, u64) -> bool) -> BTreeSet<NodePair> {
        self.links.keys().copied().filter(|&(from, to)| condition(from, to)).collect()
    }

    /// The nodes' numbers.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }
}

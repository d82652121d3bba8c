//! Creates the network of a run. Each node has its own network namespace. A namespace has two links: one to the other
//! nodes, and one to the clients.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, bail};
use dunlin_replica::seed::SeededRandom;

/// The network namespaces and links of a run. Dropping the value removes the namespaces and links.
#[derive(Debug)]
pub struct NamespaceNetwork {
    /// The prefix of the names of all namespaces and links.
    name: String,
    subnet: u8,
    nodes: usize,
}

impl NamespaceNetwork {
    /// Creates the network for `nodes` nodes. Fails if the user may not create network namespaces.
    pub fn create(nodes: usize) -> Result<NamespaceNetwork> {
        let mut seed = SeededRandom::new(SeededRandom::fresh());
        let (name, subnet) = (format!("dl{:06x}", seed.draw() & 0xff_ffff), seed.between(60, 250) as u8);
        let network = NamespaceNetwork { name, subnet, nodes };
        network.set_up().context("cannot create network namespaces; this needs root and iproute2")?;
        Ok(network)
    }

    fn set_up(&self) -> Result<()> {
        for side in [Side::Clients, Side::Nodes] {
            let bridge_name = self.bridge_name(side);
            ip(&["link", "add", &bridge_name, "type", "bridge"])?;
            ip(&["addr", "add", &format!("{}/24", self.address(side, 0)), "dev", &bridge_name])?;
            ip(&["link", "set", &bridge_name, "up"])?;
        }
        for node in 1..=self.nodes {
            let namespace = self.namespace(node);
            ip(&["netns", "add", &namespace])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            for side in [Side::Clients, Side::Nodes] {
                let (outer, inner) = (self.link_name(side, node), format!("{}i", self.link_name(side, node)));
                ip(&["link", "add", &outer, "type", "veth", "peer", "name", &inner])?;
                ip(&["link", "set", &inner, "netns", &namespace])?;
                ip(&["link", "set", &outer, "master", &self.bridge_name(side), "up"])?;
                let address = format!("{}/24", self.address(side, node));
                ip(&["-n", &namespace, "addr", "add", &address, "dev", &inner])?;
                ip(&["-n", &namespace, "link", "set", &inner, "up"])?;
            }
        }
        Ok(())
    }

    /// Returns the address at which clients reach a node. Nodes are counted from 0.
    pub fn client_address(&self, node: usize) -> Ipv4Addr {
        self.address(Side::Clients, node + 1)
    }

    /// Returns the address at which the other nodes reach a node. Nodes are counted from 0.
    pub fn node_address(&self, node: usize) -> Ipv4Addr {
        self.address(Side::Nodes, node + 1)
    }

    /// Returns the first words of a command line that runs a program in a node's namespace. The program and its
    /// arguments are to be added.
    pub fn command_in(&self, node: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(node + 1)].map(str::to_owned).to_vec()
    }

    /// If `cut` is set, cuts a node off from the other nodes; otherwise reconnects the node.
    pub fn cut(&self, node: usize, cut: bool) -> Result<()> {
        ip(&["link", "set", &self.link_name(Side::Nodes, node + 1), if cut { "down" } else { "up" }])
    }

    fn address(&self, side: Side, host: usize) -> Ipv4Addr {
        let host = if host == 0 { 1 } else { 10 + host as u8 };
        Ipv4Addr::new(10, self.subnet, side as u8, host)
    }

    fn bridge_name(&self, side: Side) -> String {
        format!("{}b{}", self.name, side as u8)
    }

    fn namespace(&self, node: usize) -> String {
        format!("{}n{node}", self.name)
    }

    fn link_name(&self, side: Side, node: usize) -> String {
        format!("{}v{}{node}", self.name, side as u8)
    }
}

impl Drop for NamespaceNetwork {
    fn drop(&mut self) {
        // Ignores errors, because a namespace or link may not exist.
        for node in 1..=self.nodes {
            let _ = ip(&["netns", "del", &self.namespace(node)]);
        }
        for side in [Side::Clients, Side::Nodes] {
            (1..=self.nodes).for_each(|node| drop(ip(&["link", "del", &self.link_name(side, node)])));
            let _ = ip(&["link", "del", &self.bridge_name(side)]);
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Clients = 1,
    Nodes = 2,
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot start the program `ip`")?;
    if !output.status.success() {
        bail!("`ip {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

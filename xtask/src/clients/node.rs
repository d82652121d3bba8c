//! A node against which the gRPC clients are tested.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use crate::workspace;

/// A node in a process of its own. Dropping the value kills the process.
pub struct Node {
    child: Child,
    grpc: String,
}

impl Node {
    /// Starts a node on free ports.
    pub fn start() -> Result<Node> {
        let mut command = workspace::build_dunlin()?;
        command.args(["serve", "--listen", "off", "--grpc-listen", "127.0.0.1:0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let lines = child.stdout.take().context("the node has no standard output")?;
        BufReader::new(lines).read_line(&mut line)?;
        let grpc = line.split_whitespace().find_map(|word| word.strip_prefix("grpc="));
        let grpc = grpc.map(str::to_owned);
        let mut node = Node { child, grpc: String::new() };
        node.grpc =
            grpc.with_context(|| format!("expected a READY line with a gRPC address, read {line:?}"))?;
        Ok(node)
    }

    /// Returns the address of the gRPC listener.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ignores the error, which means that the node has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

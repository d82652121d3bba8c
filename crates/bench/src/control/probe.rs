//! The client process that measures failovers of Dunlin. The process writes to every node at a fixed interval, and
//! responds to each [`ProbeCommand`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::state::ControlCommand;
use tokio::sync::{mpsc, oneshot};

use super::clients::{self, StoreConnection};
use super::failover::{ProbeCommand, ProbeReply};
use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::role::print_line;

/// The interval at which each node gets a new write, even if earlier writes have no result yet.
const WRITE_INTERVAL: Duration = Duration::from_millis(7);
const WRITE_MAX: Duration = Duration::from_secs(5);

/// A pending [`ProbeCommand::AfterNs`]. The response is sent when a write that began after `after_ns` is acknowledged.
#[derive(Default)]
struct PendingProbe {
    after_ns: Cell<u64>,
    sender: RefCell<Option<oneshot::Sender<u64>>>,
}

/// Writes to all nodes, and responds to commands until standard input ends.
pub async fn run(nodes: Vec<StoreConnection>) -> Result<()> {
    let pending = Rc::<PendingProbe>::default();
    for (nth, node) in nodes.iter().enumerate() {
        tokio::task::spawn_local(write(nth, node.clone(), Rc::clone(&pending)));
    }
    let mut commands = read_commands();
    while let Some(command) = commands.recv().await {
        match command? {
            ProbeCommand::Leader(_) => {
                print_line(&ProbeReply::Leader(clients::wait_for_leader(&nodes, None).await?))?
            }
            ProbeCommand::AfterNs(after_ns) => {
                let (sender, receiver) = oneshot::channel();
                pending.sender.replace(Some(sender));
                pending.after_ns.set(after_ns);
                let answered_ns = tokio::time::timeout(TIMEOUT, receiver).await;
                print_line(&ProbeReply::AnsweredNs(answered_ns.context("no write succeeded")??))?;
            }
            ProbeCommand::Elections(_) => {
                // Only the present leader's last election counts: the election after the kill.
                let mut won = Vec::new();
                for (nth, node) in nodes.iter().enumerate() {
                    let Ok(usage) = node.usage().await else { continue };
                    won.extend(usage.elections_ns.last().filter(|_| usage.leader == Some(nth as u64 + 1)));
                }
                print_line(&ProbeReply::Elections(won))?;
            }
        }
    }
    Ok(())
}

async fn write(nth: usize, node: StoreConnection, pending: Rc<PendingProbe>) {
    let key = format!("probe-{nth}");
    let mut interval = tokio::time::interval(WRITE_INTERVAL);
    loop {
        interval.tick().await;
        let (node, key, pending) = (node.clone(), key.clone(), Rc::clone(&pending));
        tokio::task::spawn_local(async move {
            let start_ns = monotonic_ns();
            let command = ControlCommand::Put { key: key.as_bytes(), value: b"probe", lease: 0 };
            let written = tokio::time::timeout(WRITE_MAX, node.propose(&command)).await;
            if matches!(written, Ok(Ok(_)))
                && start_ns > pending.after_ns.get()
                && let Some(sender) = pending.sender.take()
            {
                let _ = sender.send(monotonic_ns());
            }
        });
    }
}

/// Starts a thread that reads commands from standard input. Returns the channel to which the thread sends the commands.
fn read_commands() -> mpsc::UnboundedReceiver<Result<ProbeCommand>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let command = serde_json::from_str(&line).with_context(|| format!("cannot parse {line}"));
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    receiver
}

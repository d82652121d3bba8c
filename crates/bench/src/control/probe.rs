//! Our clients' responses to [`ProbeCommand`]: they write to every node at a fixed interval and report the results.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::state::ControlCommand;
use tokio::sync::{mpsc, oneshot};

use super::clients::{self, StoreConnection};
use super::failover::{ProbeCommand, ProbeReply};
use crate::child::PATIENCE;
use crate::clock::monotonic_ns;
use crate::role::say;

/// Time between writes to each node, which does not depend on the results of earlier writes.
const PACE: Duration = Duration::from_millis(7);
const WRITE_MAX: Duration = Duration::from_secs(5);

/// A request for the first acknowledged write that was started after a given time; it waits until there is such a
/// write.
#[derive(Default)]
struct PendingProbe {
    after_ns: Cell<u64>,
    told: RefCell<Option<oneshot::Sender<u64>>>,
}

/// Writes to the nodes, and responds to commands until standard input ends.
pub async fn answer(nodes: Vec<StoreConnection>) -> Result<()> {
    let waiting = Rc::<PendingProbe>::default();
    for (nth, node) in nodes.iter().enumerate() {
        tokio::task::spawn_local(write(nth, node.clone(), Rc::clone(&waiting)));
    }
    let mut asked = asked();
    while let Some(ask) = asked.recv().await {
        match ask? {
            ProbeCommand::Leader(_) => say(&ProbeReply::Leader(clients::leader(&nodes, None).await?))?,
            ProbeCommand::AfterNs(after_ns) => {
                let (sender, told) = oneshot::channel();
                waiting.told.replace(Some(sender));
                waiting.after_ns.set(after_ns);
                let told = tokio::time::timeout(PATIENCE, told).await;
                say(&ProbeReply::AnsweredNs(told.context("no write succeeded")??))?;
            }
            ProbeCommand::Elections(_) => {
                // The last election that the present leader won is the one after the kill.
                let mut won = Vec::new();
                for (nth, node) in nodes.iter().enumerate() {
                    let Ok(seen) = node.seen().await else { continue };
                    won.extend(seen.elections_ns.last().filter(|_| seen.leader == Some(nth as u64 + 1)));
                }
                say(&ProbeReply::Elections(won))?;
            }
        }
    }
    Ok(())
}

async fn write(nth: usize, node: StoreConnection, waiting: Rc<PendingProbe>) {
    let key = format!("probe-{nth}");
    let mut beat = tokio::time::interval(PACE);
    loop {
        beat.tick().await;
        let (node, key, waiting) = (node.clone(), key.clone(), Rc::clone(&waiting));
        tokio::task::spawn_local(async move {
            let asked_ns = monotonic_ns();
            let command = ControlCommand::Put { key: key.as_bytes(), value: b"probe", lease: 0 };
            let written = tokio::time::timeout(WRITE_MAX, node.propose(&command)).await;
            if matches!(written, Ok(Ok(_)))
                && asked_ns > waiting.after_ns.get()
                && let Some(told) = waiting.told.take()
            {
                let _ = told.send(monotonic_ns());
            }
        });
    }
}

/// Reads commands from standard input in a thread that may block, and returns their receiver.
fn asked() -> mpsc::UnboundedReceiver<Result<ProbeCommand>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let ask = serde_json::from_str(&line).with_context(|| format!("cannot parse {line}"));
            if sender.send(ask).is_err() {
                return;
            }
        }
    });
    receiver
}

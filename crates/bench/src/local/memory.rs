//! Measures the memory of an idle subscriber or topic. A process creates many subscribers or topics, and its resident
//! memory is read before and after.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dunlin::topic::{Publish, WaitStrategy};
use rustix::param::page_size;
use serde::{Deserialize, Serialize};

use crate::child::TIMEOUT;
use crate::local::node::LocalNode;
use crate::point::{BenchContext, RunSample};
use crate::role::{RoleArgs, print_line};

/// The values of the parameter `of`: the kinds of objects that are measured.
pub const KINDS: [&str; 3] = ["subscriber", "topic", "topic_with_a_record"];

const HISTORY_BYTES: u64 = 4 << 20;
const RECORD: &[u8] = &[7; 64];

#[derive(Serialize, Deserialize)]
struct Grown {
    bytes: u64,
}

/// Starts a process that creates `count` objects of one kind. Returns the growth of the process's resident memory,
/// divided by `count`.
pub fn measure(bench: &BenchContext, of: &str, count: u64) -> Result<RunSample> {
    let mut child =
        bench.child.start("local-memory", &[("of", of.to_owned()), ("count", count.to_string())])?;
    let grown: Grown = child.read_line(TIMEOUT)?;
    Ok(RunSample::new().with("rss_bytes", grown.bytes as f64 / count as f64))
}

pub(crate) fn run_child(args: &RoleArgs) -> Result<()> {
    let count: usize = args.get("count")?;
    let local_node = LocalNode::start()?;
    local_node.volatile("bench", HISTORY_BYTES)?;
    let before = resident_bytes()?;
    let after = match args.text("of")? {
        "subscriber" => {
            resident_bytes_with(count, |_| local_node.subscriber("bench", WaitStrategy::Default))?
        }
        "topic" => {
            resident_bytes_with(count, |nth| local_node.volatile(&format!("bench.{nth}"), HISTORY_BYTES))?
        }
        "topic_with_a_record" => resident_bytes_with(count, |nth| {
            let topic = local_node.volatile(&format!("bench.{nth}"), HISTORY_BYTES)?;
            topic.publisher(topic.name()).publish(RECORD)?;
            Ok(Arc::clone(&topic))
        })?,
        other => bail!("unknown kind of memory to measure: `{other}`"),
    };
    print_line(&Grown { bytes: after.saturating_sub(before) })
}

/// Creates `count` objects. Returns the resident memory of this process while the objects exist, in bytes.
fn resident_bytes_with<T>(count: usize, make: impl Fn(usize) -> Result<T>) -> Result<u64> {
    let mut all = Vec::with_capacity(count);
    for nth in 0..count {
        all.push(make(nth)?);
    }
    let resident = resident_bytes();
    drop(all);
    resident
}

/// Returns the resident memory of this process, in bytes.
pub fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.context("/proc/self/statm has an unknown format")? * page_size() as u64)
}

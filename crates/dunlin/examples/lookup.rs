//! How long it takes to find one of 100,000 topics by name, drawn at random, beside std's hash map; and
//! what a topic weighs that nobody has published to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dunlin::topic::{Subject, Topic, TopicConfig};
use dunlin::{Config, Node};

const TOPICS: usize = 100_000;
const LOOKUPS: usize = 200_000;
const ROUNDS: usize = 7;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() {
    let names: Vec<String> = (0..TOPICS).map(|n| format!("bench.topic.{n:06}")).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % TOPICS
    };
    let asked: Vec<String> = (0..LOOKUPS).map(|_| names[draw()].clone()).collect();

    let node = Node::start(Config::default()).expect("the default is sound");
    let (before, start) = (ALLOCATED.load(Ordering::Relaxed), Instant::now());
    for name in &names {
        node.create_topic(name, TopicConfig::default(), false).expect("each name is new");
    }
    println!("create              {:8.1} ns", start.elapsed().as_nanos() as f64 / TOPICS as f64);
    println!("topic, unpublished  {:8} B", (ALLOCATED.load(Ordering::Relaxed) - before) / TOPICS);

    let topic = |name: &String| (name.clone(), node.topic(name).expect("it was created"));
    let std: HashMap<String, Arc<Topic>> = names.iter().map(topic).collect();
    time("std, look", &asked, |name| std.contains_key(name));
    time("std, take", &asked, |name| std.get(name).cloned().is_some());
    time("node, look", &asked, |name| node.with_topic(name, |_| ()).is_some());
    time("node, take", &asked, |name| node.topic(name).is_some());
    time("node, owner", &asked, |name| Subject::parse(name).is_ok_and(|subject| node.owner(subject).is_ok()));
}

fn time(what: &str, asked: &[String], mut find: impl FnMut(&str) -> bool) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            assert!(asked.iter().all(|name| find(black_box(name))));
            start.elapsed().as_nanos() as f64 / asked.len() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "{what:20}{:8.1} ns, at least {:.1}, at most {:.1}",
        rounds[ROUNDS / 2],
        rounds[0],
        rounds[ROUNDS - 1]
    );
}

//! Tests that subscribers of simulated order books miss no record, and that a book is the same in every node.

use dunlin::topic::Reducer;
use dunlin::topic::{ReducerConfig, Start, Subscribe, SubscribeOptions, TopicConfig};
use dunlin::{Config, Node, Simulation, now_ns};
use dunlin_feed::{Book, Instruments, Notation, Replica, Scale};

const TWO: &str = r#"{"instruments": [
    {"instrumentId": "A", "publishDepth": 5, "tickSize": 1, "basePrice": 1000, "updatesPerSec": 3000},
    {"instrumentId": "B", "publishDepth": 5, "tickSize": 5, "basePrice": 9000, "updatesPerSec": 1000}
]}"#;

fn node() -> (Node, Instruments) {
    let node = Node::start(Config::default()).unwrap();
    let instruments = Instruments::parse(TWO, Notation::Json).unwrap();
    for instrument in instruments.list() {
        let reducer = Some(ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() });
        node.create_topic(&instrument.topic(), TopicConfig { reducer, ..TopicConfig::default() }, false)
            .unwrap();
    }
    (node, instruments)
}

fn run(seed: u64) -> Vec<(u64, u64)> {
    let (node, instruments) = node();
    let publishers = instruments.list().iter().map(|one| node.publisher(&one.topic()).unwrap()).collect();
    let start_ns = now_ns();
    let mut simulation = Simulation::open(&instruments, seed, start_ns, publishers).unwrap();
    let progress = simulation.run_until(start_ns + 100_000_000, || false).unwrap();
    assert_eq!(progress.records, 400);
    assert_eq!((simulation.published(0), simulation.published(1)), (301, 101));
    let options = SubscribeOptions { start: Start::Snapshot, ..SubscribeOptions::default() };
    let mut replica =
        Replica::new(node.subscribe("md.>", &options).unwrap(), |_| Book::new(Scale::default()));
    while replica.states().count() < 2 {
        replica.drain(now_ns(), 64, |_| {}).unwrap();
    }
    replica.states().map(|(_, at, book)| (at.seq, book.checksum())).collect()
}

#[test]
fn simulations_with_equal_seeds_yield_equal_books() {
    let books = run(7);
    assert_eq!(books.iter().map(|book| book.0).collect::<Vec<_>>(), [301, 101]);
    assert_eq!(books, run(7));
    assert_ne!(books, run(8));
}

#[test]
fn simulation_ends_on_a_stop_request() {
    let (node, instruments) = node();
    let publishers = instruments.list().iter().map(|one| node.publisher(&one.topic()).unwrap()).collect();
    let start_ns = now_ns();
    let mut simulation = Simulation::open(&instruments, 1, start_ns, publishers).unwrap();
    let mut calls = 0;
    simulation
        .run_until(u64::MAX, || {
            calls += 1;
            calls == 3
        })
        .unwrap();
    let mut all =
        node.subscribe("md.A", &SubscribeOptions { start: Start::Earliest, ..Default::default() }).unwrap();
    let mut records = 0;
    all.drain(usize::MAX, |_| records += 1).unwrap();
    assert_eq!(records, simulation.published(0));
}

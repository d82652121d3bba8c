//! Tests that a subscriber's copy of a durable topic's state always equals the state that follows from the topic's
//! records, even after crashes of the node.

use std::path::Path;
use std::sync::Arc;

use dunlin::journal::{Disk, FakeDisk};
use dunlin::topic::*;
use dunlin::{Config, Node};
use dunlin_feed::{Book, BookEntry, Scale, Side};

const SEEDS: u64 = 12;
const CRASHES: usize = 3;
/// The number of records between two crashes. It is so high that, in each round, a state is saved and older records are
/// removed.
const ROUND: u64 = 700;
const ENTRIES: u64 = 12;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The expected state of the order book: its checksum after each record, from a node that does not crash.
struct Truth {
    payloads: Vec<Vec<u8>>,
    checksums: Vec<u64>,
    book: Arc<Topic>,
    node: Node,
}

impl Truth {
    fn new() -> Truth {
        let node = Node::start(Config::default()).unwrap();
        let book = node.create_topic("truth", stateful(), false).unwrap();
        let empty = checksum_of(&book);
        Truth { payloads: Vec::new(), checksums: vec![empty], book, node }
    }

    fn add(&mut self, payload: Vec<u8>) {
        self.node.publisher("truth").unwrap().publish(&payload[..]).unwrap();
        self.checksums.push(checksum_of(&self.book));
        self.payloads.push(payload);
    }

    /// Keeps only the first `kept` records, because the others were lost in a crash.
    fn cut(&mut self, kept: usize) {
        let mut payloads = std::mem::take(&mut self.payloads);
        payloads.truncate(kept);
        *self = Truth::new();
        payloads.into_iter().for_each(|payload| self.add(payload));
    }

    fn check(&self, at: Position, checksum: u64, how: &str) {
        assert_eq!(checksum, self.checksums[at.seq as usize], "{how}, at {at}");
    }
}

/// A subscriber's copy of the order book. The subscriber resumes at its last position.
struct Reader {
    book: Book,
    at: Option<Position>,
}

impl Reader {
    fn new() -> Reader {
        Reader { book: Book::new(Scale::default()), at: None }
    }

    /// Reads all available records. After each, compares the checksum of the book with the expected one.
    fn read(&mut self, node: &Node, truth: &Truth) {
        let start = self.at.map_or(Start::Snapshot, Start::After);
        let options = SubscribeOptions { start, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() };
        let mut subscriber = node.subscribe("book", &options).unwrap();
        while let Some(event) = subscriber.try_next().unwrap() {
            match event {
                Event::Record(record) => {
                    self.book.apply(record.seq(), &record.frame).unwrap();
                    truth.check(record.position, self.book.checksum(), "by records");
                    self.at = Some(record.position);
                }
                Event::Notice(Notice::Snapshot(snapshot)) => {
                    let mut book = Book::new(Scale::default());
                    book.restore(snapshot.position.seq, &snapshot.bytes).unwrap();
                    truth.check(snapshot.position, book.checksum(), "by the state");
                    assert_eq!(snapshot.checksum, book.checksum(), "the checksum of the state");
                    (self.book, self.at) = (book, Some(snapshot.position));
                }
                Event::Notice(Notice::Checksum(sum)) => truth.check(sum.position, sum.checksum, "by the sum"),
                Event::Notice(Notice::EpochChanged(changed)) => {
                    // If the log retains no record of the epoch, it does not know where the epoch ends. If the log
                    // knows the end, this end must not be before a record that was read.
                    let is_kept = changed.known_through.is_none_or(|last| last >= changed.last_seen);
                    assert!(is_kept, "records already read are lost: {changed:?}, from {start:?}");
                }
                Event::Notice(Notice::Lagging(_) | Notice::Gap(_) | Notice::Publishers(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        if let Some(at) = self.at {
            truth.check(at, self.book.checksum(), "at rest");
        }
    }
}

fn stateful() -> TopicConfig {
    let reducer = ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() };
    TopicConfig { reducer: Some(reducer), ..TopicConfig::default() }
}

fn checksum_of(topic: &Topic) -> u64 {
    topic.logs()[0].state_info().unwrap().1.checksum
}

fn open(disk: &FakeDisk) -> Node {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Node::open(Config::default(), disk, Path::new("/data")).unwrap().0
}

fn payload(random: &mut Random) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..=random.below(ENTRIES) {
        let side = if random.below(2) == 0 { Side::Bid } else { Side::Ask };
        let price = 1_000 + random.below(60) as i64;
        let entry = match random.below(40) {
            0 => BookEntry::Clear { side },
            1..=12 => BookEntry::Remove { side, price },
            _ => BookEntry::Set { side, price, size: 1 + random.below(500) as i64 },
        };
        entry.encode(&mut payload);
    }
    payload
}

#[test]
fn states_after_crashes_equal_a_replay_of_the_records() {
    for seed in 1..=SEEDS {
        compare_with_the_truth(seed);
    }
}

fn compare_with_the_truth(seed: u64) {
    let (disk, mut random, mut truth) = (FakeDisk::new(seed), Random(seed * 7_919), Truth::new());
    let mut readers = [Reader::new(), Reader::new()];
    let mut node = open(&disk);
    let durable = DurableOptions { memory_bytes: 64 << 10, ..DurableOptions::default() };
    let retention = Retention { bytes: 128 << 10, ..Retention::default() };
    node.create_topic("book", TopicConfig { durable: Some(durable), retention, ..stateful() }, false)
        .unwrap();
    for crash in 0..=CRASHES {
        let mut publisher = node.publisher("book").unwrap();
        for _ in 0..ROUND {
            let payload = payload(&mut random);
            publisher.send(&payload[..]).unwrap();
            truth.add(payload);
            if random.below(25) == 0 {
                publisher.flush().unwrap();
            }
            if random.below(40) == 0 {
                readers[0].read(&node, &truth);
            }
            if random.below(200) == 0 {
                Reader::new().read(&node, &truth);
            }
        }
        if crash == CRASHES {
            publisher.flush().unwrap();
            break;
        }
        disk.crash();
        drop((publisher, node));
        node = open(&disk);
        let info = node.topic("book").unwrap().logs()[0].info();
        let kept = info.next_seq - 1;
        truth.cut(kept as usize);
        assert_eq!(checksum_of(&node.topic("book").unwrap()), truth.checksums[kept as usize], "seed {seed}");
        // Three kinds of subscribers: `readers[0]` resumes after each crash, `joined` is new, and `readers[1]` resumes
        // only after every second crash.
        readers[0].read(&node, &truth);
        let mut joined = Reader::new();
        joined.read(&node, &truth);
        // `joined` is at the position before the first record of the new epoch, which continues after the previous
        // epoch's last record.
        assert_eq!(joined.at, Some(Position { epoch: info.epoch, seq: kept }));
        if crash % 2 == 1 {
            readers[1].read(&node, &truth);
        }
    }
    readers.iter_mut().for_each(|reader| reader.read(&node, &truth));
    Reader::new().read(&node, &truth);
    assert!(
        node.topic("book").unwrap().logs()[0].info().oldest_seq > 1,
        "no state was saved and nothing given up"
    );
    node.stop();
}

/// In this test, the saved state includes records that the log lacks, because the log was removed or replaced by an
/// older one.
#[test]
fn records_continue_after_the_saved_state_if_the_log_is_lost() {
    let (disk, mut random) = (FakeDisk::new(5), Random(7_919));
    let node = open(&disk);
    let durable = DurableOptions { memory_bytes: 64 << 10, ..DurableOptions::default() };
    let retention = Retention { bytes: 128 << 10, ..Retention::default() };
    let config = TopicConfig { durable: Some(durable), retention, ..stateful() };
    node.create_topic("book", config, false).unwrap();
    let mut publisher = node.publisher("book").unwrap();
    let mut last = Position::default();
    for _ in 0..4 * ROUND {
        last = publisher.publish(&payload(&mut random)[..]).unwrap().position;
    }
    node.stop();
    drop((publisher, node));
    let dir = Path::new("/data/logs/00000001-0");
    let names = disk.list(dir).unwrap();
    let saved =
        names.iter().find_map(|name| name.strip_suffix(".snapshot")?.split_once('-')?.1.parse::<u64>().ok());
    let saved = saved.expect("a state was saved");
    names.iter().filter(|name| name.ends_with(".log")).for_each(|name| disk.remove(&dir.join(name)).unwrap());
    disk.remove(Path::new("/data/topics/00000001-0.stored")).unwrap();

    let node = open(&disk);
    let next = node.publisher("book").unwrap().publish(&payload(&mut random)[..]).unwrap().position;
    assert!(next.epoch > last.epoch && next.seq == saved + 1, "{next}, saved {saved}");
    let options = SubscribeOptions { start: Start::After(last), ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("book", &options).unwrap();
    let event = subscriber.try_next().unwrap();
    assert!(
        matches!(&event, Some(Event::Notice(Notice::EpochChanged(changed))) if changed.known_through.is_none()),
        "{event:?}"
    );
    drop(subscriber);
    let checksum = checksum_of(&node.topic("book").unwrap());
    node.stop();
    drop(node);
    let node = open(&disk);
    assert_eq!(checksum_of(&node.topic("book").unwrap()), checksum, "the same state after another start");
}

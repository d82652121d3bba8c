//! Tests of logs to which several threads write: the storing thread, and publishers that store their own records.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;

use dunlin::journal::{DirLock, Disk, DiskFile, FakeDisk};
use dunlin::scheduler::TaskStage;
use dunlin::topic::*;
use dunlin::{Config, Node};
use dunlin_wait::{PATIENCE, until};

use crate::publishing_tasks::{stage, submit};

/// A disk with a gate for each topic. While a topic's gate is shut, writes to the topic's logs wait.
#[derive(Debug, Clone)]
struct GatedDisk {
    disk: FakeDisk,
    gates: Arc<(Mutex<Gates>, Condvar)>,
}

#[derive(Debug, Default)]
struct Gates {
    /// The numbers of the topics whose gates are shut. Topics are numbered in the order of their creation.
    shut: BTreeSet<u64>,
    waiting_topic: Option<u64>,
}

#[derive(Debug)]
struct GatedFile {
    file: Box<dyn DiskFile>,
    topic: Option<u64>,
    disk: GatedDisk,
}

/// Opens all gates when a test ends. With closed gates, a node could not stop, because it first waits until its records
/// are written.
struct OpenAtEnd(GatedDisk);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.gates.0.lock().unwrap_or_else(PoisonError::into_inner).shut.clear();
        self.0.gates.1.notify_all();
    }
}

impl GatedDisk {
    fn new(seed: u64) -> GatedDisk {
        GatedDisk { disk: FakeDisk::new(seed), gates: Arc::default() }
    }

    fn shut(&self, topics: &[u64]) {
        self.gates.0.lock().unwrap().shut.extend(topics);
    }

    fn open_gate(&self, topic: u64) {
        self.gates.0.lock().unwrap().shut.remove(&topic);
        self.gates.1.notify_all();
    }

    /// Waits until a thread that writes to the topic waits at the topic's gate.
    fn wait_for(&self, topic: u64) {
        let gates = self.gates.0.lock().unwrap();
        let elsewhere = |gates: &mut Gates| gates.waiting_topic != Some(topic);
        let (_gates, timeout) = self.gates.1.wait_timeout_while(gates, PATIENCE, elsewhere).unwrap();
        assert!(!timeout.timed_out(), "no thread writes to topic {topic}");
    }

    fn pass_gate(&self, topic: u64) {
        let mut gates = self.gates.0.lock().unwrap();
        while gates.shut.contains(&topic) {
            gates.waiting_topic = Some(topic);
            self.gates.1.notify_all();
            gates = self.gates.1.wait(gates).unwrap();
            gates.waiting_topic = None;
        }
    }

    fn file(&self, path: &Path, file: io::Result<Box<dyn DiskFile>>) -> io::Result<Box<dyn DiskFile>> {
        let log = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let topic = log.and_then(|log| u64::from_str_radix(log.split_once('-')?.0, 16).ok());
        Ok(Box::new(GatedFile { file: file?, topic, disk: self.clone() }))
    }
}

impl Disk for GatedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.file(path, self.disk.create(path))
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        self.file(path, self.disk.open(path, write))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_bytes(dir)
    }
    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.disk.lock(dir)
    }
    fn identity(&self) -> u64 {
        self.disk.identity()
    }
}

impl DiskFile for GatedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(out, at)
    }
    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        self.topic.iter().for_each(|&topic| self.disk.pass_gate(topic));
        self.file.write_at(parts, at)
    }
    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.file.set_bytes(bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Starts a node with durable topics that are named `1`, `2` and so on.
fn node(disk: &GatedDisk, topics: u64) -> Node {
    let (node, _) = Node::open(Config::default(), Arc::new(disk.clone()), &PathBuf::from("/data")).unwrap();
    let durable = DurableOptions { memory_bytes: 64 << 10, ..DurableOptions::default() };
    let retention = Retention { bytes: 1 << 30, ..Retention::default() };
    let config = TopicConfig { durable: Some(durable), retention, ..TopicConfig::default() };
    for topic in 1..=topics {
        node.create_topic(&topic.to_string(), config.clone(), false).unwrap();
    }
    node
}

fn reader(node: &Node, topic: &str) -> Subscriber {
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    node.subscribe(topic, &options).unwrap()
}

/// Reads all available records, and checks that they follow one another, beginning with `next`. Returns the last
/// sequence number.
fn read(subscriber: &mut Subscriber, next: u64) -> u64 {
    let mut last = next - 1;
    while let Some(event) = subscriber.try_next().unwrap() {
        match event {
            Event::Record(record) => {
                assert_eq!(record.seq(), last + 1);
                last = record.seq();
            }
            Event::Notice(Notice::Lagging(_)) => {}
            Event::Notice(notice) => panic!("{notice:?}"),
        }
    }
    last
}

#[test]
fn flush_stores_records_during_a_slow_sync_of_another_topic() {
    let disk = GatedDisk::new(1);
    let node = node(&disk, 3);
    let mut publishers = ["1", "2", "3"].map(|topic| node.publisher(topic).unwrap());
    let record = [7; 1_000];
    let mut concurrent_reader = reader(&node, "1");
    publishers[0].publish(&record).unwrap();
    assert_eq!(read(&mut concurrent_reader, 1), 1);
    let _open = OpenAtEnd(disk.clone());
    disk.shut(&[2, 3]);
    publishers[2].send(&record).unwrap();
    disk.wait_for(3);
    // Send more than one segment to topic 1 before the thread visits this topic. The thread then writes these segments,
    // and waits at the gate of topic 2.
    (0..300).for_each(|_| publishers[0].send(&record).unwrap());
    publishers[1].send(&record).unwrap();
    disk.open_gate(3);
    disk.wait_for(2);
    publishers[0].send(&record).unwrap();
    let receipt = publishers[0].flush().unwrap().unwrap();
    assert_eq!((receipt.position.seq, receipt.acknowledged), (302, AckLevel::Synced));
    assert_eq!((read(&mut concurrent_reader, 2), read(&mut reader(&node, "1"), 1)), (302, 302));
    disk.open_gate(2);
    for publisher in &mut publishers {
        publisher.flush().unwrap();
    }
    assert_eq!(["2", "3"].map(|topic| read(&mut reader(&node, topic), 1)), [1, 1]);
    node.stop();
}

#[test]
fn records_sent_after_the_last_flush_are_stored_as_well() {
    let disk = GatedDisk::new(2);
    let node = node(&disk, 1);
    let mut publisher = node.publisher("1").unwrap();
    let mut subscriber = reader(&node, "1");
    let mut seen = 0;
    for round in 1..=50 {
        for _ in 0..10 {
            for _ in 0..8 {
                publisher.send(&[1; 100]).unwrap();
            }
            publisher.flush().unwrap();
        }
        publisher.send(&[2; 100]).unwrap();
        while seen < round * 81 {
            assert!(
                subscriber.next_timeout(PATIENCE).unwrap().is_some(),
                "record {} is not stored",
                seen + 1
            );
            seen += 1;
        }
    }
    node.stop();
}

#[test]
fn records_of_publishers_with_and_without_flush_are_all_stored() {
    let disk = GatedDisk::new(3);
    let node = node(&disk, 1);
    thread::scope(|scope| {
        for waits in [true, true, false] {
            let mut publisher = node.publisher("1").unwrap();
            scope.spawn(move || {
                for n in 1..=3_000 {
                    publisher.send(&[0; 500]).unwrap();
                    if waits && n % 7 == 0 {
                        publisher.flush().unwrap();
                    }
                }
                publisher.flush().unwrap();
            });
        }
    });
    assert_eq!(read(&mut reader(&node, "1"), 1), 9_000);
    node.stop();
}

#[test]
fn tasks_with_unsynced_records_delay_no_other_task() {
    let disk = GatedDisk::new(4);
    let node = node(&disk, 1);
    node.create_topic("free", TopicConfig::default(), false).unwrap();
    node.publisher("1").unwrap().publish(b"0").unwrap();
    let _open = OpenAtEnd(disk.clone());
    disk.shut(&[1]);
    // If the node waited for each of these tasks separately, the test would time out.
    let pending: Vec<u64> = (0..200).map(|_| submit(&node, "1", b"1")).collect();
    disk.wait_for(1);
    let other = submit(&node, "free", b"2");
    until("the other task has published", || stage(&node, other) == TaskStage::Completed);
    assert!(pending.iter().all(|&task| stage(&node, task) == TaskStage::Running));
    disk.open_gate(1);
    until("all tasks have published", || {
        pending.iter().all(|&task| stage(&node, task) == TaskStage::Completed)
    });
    assert_eq!(read(&mut reader(&node, "1"), 1), 201, "each record is appended once");
    node.stop();
}

#[test]
fn responder_does_not_wait_until_its_reply_is_on_disk() {
    let disk = GatedDisk::new(5);
    let node = node(&disk, 1);
    node.create_topic("service", TopicConfig::default(), false).unwrap();
    node.publisher("1").unwrap().publish(b"0").unwrap();
    let (sender, replied) = mpsc::channel();
    let allowed = [Pattern::parse("1").unwrap()];
    let handler = move |mut request: dunlin::Request<'_, '_>| {
        sender.send(request.reply_within(&allowed, "reply")).unwrap()
    };
    let _responder = node.respond("service", handler).unwrap();
    let _open = OpenAtEnd(disk.clone());
    disk.shut(&[1]);
    let meta = RecordMeta { reply: Some("1"), ..RecordMeta::default() };
    let request = Draft { meta, payload: Payload::Copied(b"request") };
    node.publisher("service").unwrap().publish(request).unwrap();
    let receipt = replied.recv_timeout(PATIENCE).unwrap().unwrap().unwrap();
    assert_eq!((receipt.position.seq, receipt.acknowledged), (2, AckLevel::Memory));
    disk.open_gate(1);
    let mut subscriber = reader(&node, "1");
    (0..2).for_each(|_| assert!(subscriber.next_timeout(PATIENCE).unwrap().is_some()));
    node.stop();
}

//! Tests of `dunlin feed`, which serves, watches, records, verifies and replays order books and other states.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use dunlin_wait::until;

use crate::dunlin::{
    Node, Outcome, RunningProgram, dunlin, read_stderr_until, record_until, run, run_with, signal,
};

/// A running `dunlin feed serve`, which is killed when the value is dropped.
struct Source {
    child: Child,
    url: String,
}

impl Source {
    fn start(arguments: &[&str]) -> Source {
        let words = [&["feed", "serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child =
            dunlin(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut ready).expect("the READY line");
        let tcp = ready.split_whitespace().find_map(|word| word.strip_prefix("tcp=")).expect("READY tcp=…");
        Source { url: format!("dunlin://{tcp}"), child }
    }

    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut command = dunlin(arguments);
        command.env("DUNLIN_URL", &self.url);
        run_with(command, input)
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, b"")
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // The call fails only if the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BASELINE: [&str; 4] = ["--config", "baseline_1x1_10k", "--rate", "500"];

fn objects(out: &str) -> Vec<serde_json::Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn updates_of_a_simulated_book_arrive_in_order() {
    let source = Source::start(&BASELINE);
    let watch = ["feed", "watch", "md.BTC-USD", "--every-update", "--json", "--count", "40", "--depth", "3"];
    let changes = objects(&source.run(&watch).done());
    assert_eq!(changes.len(), 40);
    assert!(["snapshot", "record"].contains(&changes[0]["by"].as_str().unwrap()), "{}", changes[0]);
    let seqs: Vec<u64> = changes
        .iter()
        .map(|change| change["position"].as_str().unwrap().split_once('-').unwrap().1.parse().unwrap())
        .collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    assert!(changes.iter().all(|change| change["bids"].as_array().unwrap().len() == 3), "{changes:?}");
}

#[test]
fn unknown_or_repeated_instrument_is_refused() {
    let source = Source::start(&BASELINE);
    let outcome = source.run(&["feed", "watch", "md.NOPE"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("unknown instrument md.NOPE; there are md.BTC-USD"), "{outcome:?}");
    let outcome = source.run(&["feed", "watch", "md.BTC-USD", "md.BTC-USD"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("already in the list"), "{outcome:?}");
}

#[test]
fn dunlin_feed_watch_prints_the_partition_of_each_book() {
    let node = Node::start();
    node.run(&["topics", "create", "md.P", "--reducer", "book", "--partitions", "2"]).done();
    let events = objects(&node.run(&["feed", "watch", "md.P", "--json", "--count", "2"]).done());
    let books = events.iter().filter(|event| event["by"].is_string());
    let mut partitions: Vec<_> = books.map(|book| book["partition"].as_u64()).collect();
    partitions.sort();
    assert_eq!(partitions, [Some(0), Some(1)], "{events:?}");
    let lines = node.run(&["feed", "watch", "md.P", "--count", "2"]).done();
    assert!(lines.contains("md.P/1 "), "{lines}");
}

#[test]
fn topic_with_a_pattern_is_watched_and_recorded_by_name() {
    let node = Node::start();
    node.run(&["topics", "create", "P", "--reducer", "last", "--pattern", "p.>"]).done();
    let values = node.run(&["feed", "watch", "P", "--count", "1"]).done();
    assert!(values.starts_with("P "), "{values}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rec");
    let record = ["feed", "record", "--out", out.to_str().unwrap(), "P"];
    let spawned = node.command(&record).stderr(Stdio::null()).spawn().expect("the program starts");
    let _recorder = RunningProgram::from(spawned);
    until("the recorder creates the topic's log", || out.join("P").is_dir());
}

#[test]
fn topic_with_a_pattern_is_replayed_to_its_subjects() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rec");
    let source = Node::start();
    source.run(&["topics", "create", "P", "--reducer", "last", "--pattern", "p.*.>"]).done();
    source.run(&["pub", "p.eu.a", "--key", "before", "1"]).done();
    let publish = || source.run(&["pub", "p.us.b.c", "--key", "k", "2"]).done();
    let mut has_published = false;
    record_until(&source.url, "P", &out, |found| {
        // The recording must begin with a state, so the next record is published only after the state was recorded.
        if !std::mem::replace(&mut has_published, true) {
            publish();
        }
        found["records"] == 1 && found["pattern"] == "p.*.>"
    });
    let verified = verify(&out, true).done();
    assert!(
        verified.starts_with("P has the pattern p.*.>\nok: 1 record and 1 state of 1 topic"),
        "{verified}"
    );
    let subjects = |dumped: &str| -> Vec<String> {
        objects(dumped).iter().filter_map(|record| record["subject"].as_str().map(str::to_owned)).collect()
    };
    let dumped = run(&["log", "dump", out.join("P").to_str().unwrap(), "--json"]).done();
    assert!(subjects(&dumped).contains(&"p.us.b.c".to_owned()), "{dumped}");

    let node = Node::start();
    node.run(&["feed", "replay", out.to_str().unwrap(), "--speed", "max"]).done();
    let dumped = node.run(&["log", "dump", "P", "--json"]).done();
    assert_eq!(subjects(&dumped), ["p._._", "p.us.b.c"], "{dumped}");
    let checksum = |node: &Node| {
        let events = objects(&node.run(&["feed", "watch", "P", "--json", "--count", "1"]).done());
        let checksum = events.iter().find_map(|event| event["checksum"].as_str());
        checksum.expect("a state").to_owned()
    };
    assert_eq!(checksum(&node), checksum(&source));
}

#[test]
fn dunlin_feed_watch_answers_typed_commands() {
    let source = Source::start(&BASELINE);
    let typed = "sub md.BTC-USD\nsub md.NOPE\nunsub md.OTHER\nhelp\ndance\nunsub md.BTC-USD\nquit\n";
    let outcome = source.run_with(&["feed", "watch", "md.BTC-USD", "--interactive"], typed.as_bytes());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for text in [
        "md.BTC-USD is already in the list",
        "unknown instrument md.NOPE",
        "md.OTHER is not in the list",
        "unsub SUBJECT",
        "\"dance\" is not a command",
        "no longer subscribed to md.BTC-USD",
    ] {
        assert!(outcome.err.contains(text), "{text}: {outcome:?}");
    }
}

#[test]
fn refusal_of_an_invalid_feed_configuration_names_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("instruments.json");
    let refusal = |text: &str| {
        fs::write(&path, text).unwrap();
        let outcome = run(&["feed", "serve", "--config", path.to_str().unwrap()]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        outcome.err
    };
    assert!(refusal(r#"{"instruments": []}"#).contains("at least one instrument"));
    assert!(
        refusal(r#"{"instruments": [{"instrumentId": "A"}]}"#).contains("publish_depth must be > 0 for A")
    );
    assert!(refusal("{").contains("json parse failure"));
    let outcome = run(&["feed", "serve", "--config", "/nonexistent.json"]);
    assert!(outcome.err.contains("(built-in files: "), "{outcome:?}");
}

/// Makes a short recording of a simulated order book.
fn record(folder: &Path) -> (PathBuf, Source) {
    let source = Source::start(&BASELINE);
    let out = folder.join("rec");
    record_until(&source.url, "md.>", &out, |found| found["records"].as_u64() >= Some(500));
    (out, source)
}

/// Returns the path of the log file in a short recording.
fn log_path(recording: &Path) -> PathBuf {
    let entries = fs::read_dir(recording.join("md.BTC-USD")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "log")).unwrap()
}

fn verify(recording: &Path, strict: bool) -> Outcome {
    let more: &[&str] = if strict { &["--strict"] } else { &[] };
    run(&[&["feed", "verify", recording.to_str().unwrap()], more].concat())
}

#[test]
fn every_replay_of_a_valid_recording_gives_the_same_book() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, source) = record(folder.path());
    let again = source.run(&["feed", "record", "--out", recording.to_str().unwrap(), "md.>"]);
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("is not empty"), "{again:?}");
    drop(source);
    let out = verify(&recording, true).done();
    assert!(out.starts_with("ok: ") && out.contains(" of 1 topic, 0 gaps"), "{out}");

    let checksums: Vec<String> = (0..2)
        .map(|_| {
            let node = Node::start();
            node.run(&["feed", "replay", recording.to_str().unwrap(), "--speed", "max"]).done();
            let watch = ["feed", "watch", "md.BTC-USD", "--json", "--count", "1"];
            objects(&node.run(&watch).done())[0]["checksum"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(checksums[0], checksums[1]);
}

#[test]
fn recording_of_a_topic_with_partitions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rec");
    let node = Node::start();
    node.run(&["topics", "create", "md.P", "--reducer", "last", "--partitions", "3"]).done();
    for pattern in ["md.P", "md.>"] {
        let out = out.join(pattern.replace('>', "all"));
        let refused = node.run(&["feed", "record", "--out", out.to_str().unwrap(), pattern]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("\"md.P\" has 3 partitions, each with a state"), "{refused:?}");
    }
}

#[test]
fn recorder_leaves_out_new_topics_that_it_cannot_record() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rec");
    let node = Node::start();
    node.run(&["topics", "create", "md.1", "--reducer", "last"]).done();
    let record = ["feed", "record", "--out", out.to_str().unwrap(), "md.>"];
    let spawned = node.command(&record).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut recorder = RunningProgram::from(spawned);
    let describe = ["topics", "describe", "md.1", "--json"];
    until("the recorder subscribes", || node.run(&describe).done().contains("dunlin feed record"));
    node.run(&["topics", "create", "md.2", "--reducer", "last", "--partitions", "2"]).done();
    read_stderr_until(&mut recorder, "\"md.2\" has several partitions, each with a state of its own");
    node.run(&["pub", "md.plain", "text"]).done();
    read_stderr_until(&mut recorder, "\"md.plain\" keeps no state, so it is not recorded");
    signal("INT", recorder.id());
    let recorded = Outcome::of(recorder);
    assert!(recorded.code == Some(0) && recorded.err.contains(" of 1 topic"), "{recorded:?}");
    verify(&out, true).done();
}

#[test]
fn feed_is_recorded_verified_and_replayed_with_equal_counts() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::start(&BASELINE);
    let out = folder.path().join("rec");
    let out = out.to_str().unwrap();
    let recorded =
        record_until(&source.url, "md.>", Path::new(out), |found| found["records"].as_u64() >= Some(100));
    let counts = |output: &str| {
        let output = output.lines().find(|line| line.contains(" of 1 topic")).unwrap();
        let start = output.find(|c: char| c.is_ascii_digit()).unwrap();
        output[start..output.find(" of 1 topic").unwrap()].to_owned()
    };
    let expected = counts(&recorded.err);
    assert!(expected.ends_with(" records and 1 state"), "{recorded:?}");
    assert_eq!(counts(&run(&["feed", "verify", out]).done()), expected);
    let replayed = Node::start().run(&["feed", "replay", out, "--speed", "max"]);
    assert_eq!(counts(&replayed.err), expected, "{replayed:?}");
}

#[test]
fn replay_into_a_topic_with_a_publisher_needs_option_force() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, source) = record(folder.path());
    let replay = ["feed", "replay", recording.to_str().unwrap(), "--speed", "max"];
    let refused = source.run(&replay);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("topic md.BTC-USD has another publisher"), "{refused:?}");
    let forced = source.run(&[&replay[..], &["--force"]].concat());
    assert!(!forced.err.contains("has another publisher"), "{forced:?}");
}

#[test]
fn damaged_emptied_or_reordered_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, _source) = record(folder.path());
    let log = log_path(&recording);
    let original = fs::read(&log).unwrap();
    let assert_refused = |bytes: &[u8], what: &str| {
        fs::write(&log, bytes).unwrap();
        let outcome = verify(&recording, true);
        assert_eq!(outcome.code, Some(2), "{what}: {outcome:?}");
    };
    assert_refused(&original[..original.len() / 2], "cut in half");
    let lenient = verify(&recording, false).done();
    assert!(lenient.starts_with("ok, but not closed: ") && lenient.contains("--strict"), "{lenient}");
    assert_refused(b"", "emptied");
    let mut overwritten = original.clone();
    overwritten[original.len() / 2..][..4].fill(0xab);
    assert_refused(&overwritten, "overwritten");
    let doubled = [&original[..], &original[4096..]].concat();
    assert_refused(&doubled, "doubled");
    let (first, second) = (512..512 + original.len() / 4, 512 + original.len() / 4..512 + original.len() / 2);
    let reordered =
        [&original[..512], &original[second.clone()], &original[first], &original[second.end..]].concat();
    assert_refused(&reordered, "reordered");
    fs::write(&log, &original).unwrap();
    verify(&recording, true).done();
    let (topic, list) = (recording.join("md.BTC-USD"), recording.join("topics"));
    for (from, to, text) in [
        (&topic, recording.join("md.OTHER"), "copied or renamed"),
        (&topic, folder.path().join("away"), "has no recording"),
        (&list, folder.path().join("list"), "not closed"),
    ] {
        fs::rename(from, &to).unwrap();
        let outcome = verify(&recording, true);
        assert!(outcome.code != Some(0) && outcome.err.contains(text), "{text}: {outcome:?}");
        fs::rename(&to, from).unwrap();
    }
    verify(&recording, true).done();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(verify(&empty, true).code, Some(1));
}

#[test]
fn recording_cut_off_by_a_full_disk_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::start(&["--config", "baseline_1x1_10k"]);
    let out = folder.path().join("rec");
    // The limit for the size of files is 256 KiB. Beyond it, writes fail as they do on a full disk.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 512; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dunlin")]);
    command.args(["feed", "record", "md.>", "--out", out.to_str().unwrap(), "--url", &source.url]);
    let outcome = run_with(command, b"");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("the disk is full"), "{outcome:?}");
    let verified = verify(&out, false).done();
    assert!(verified.starts_with("ok, but not closed: "), "{verified}");
    assert!(verified.contains(" of 1 topic, 0 gaps"), "{verified}");
    let strict = verify(&out, true);
    assert!(
        strict.code == Some(2) && strict.err.contains("was not closed, is still being written"),
        "{strict:?}"
    );
    assert!(!strict.err.contains("is damaged"), "{strict:?}");
    let node = Node::start();
    let replayed = node.run(&["feed", "replay", out.to_str().unwrap(), "--speed", "max"]);
    assert!(replayed.err.contains("may be missing: the recording was not closed"), "{replayed:?}");
    replayed.done();
    let watch = ["feed", "watch", "md.BTC-USD", "--json", "--count", "1"];
    assert!(objects(&node.run(&watch).done())[0]["checksum"].is_string());
}

#[test]
fn replay_of_a_truncated_recording_warns() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, _source) = record(folder.path());
    let replay = |directory: &Path| {
        let replayed = Node::start().run(&["feed", "replay", directory.to_str().unwrap(), "--speed", "max"]);
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
        replayed.err
    };
    let topic = recording.join("md.BTC-USD");
    for directory in [&recording, &topic] {
        let err = replay(directory);
        assert!(!err.contains("warning:"), "{err}");
    }
    let log = log_path(&recording);
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    let err = replay(&recording);
    assert!(err.contains("may be missing: topic md.BTC-USD has "), "{err}");
    let err = replay(&topic);
    assert!(err.contains("may be missing: not closed: "), "{err}");
}

#[test]
fn refusal_of_a_newer_recording_names_its_format_version() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, _source) = record(folder.path());
    let log = log_path(&recording);
    let mut bytes = fs::read(&log).unwrap();
    bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
    let sum = crc32c(&[&bytes[..56], &bytes[60..512]].concat());
    bytes[56..60].copy_from_slice(&sum.to_le_bytes());
    fs::write(&log, &bytes).unwrap();
    for strict in [false, true] {
        let outcome = verify(&recording, strict);
        assert!(matches!(outcome.code, Some(1 | 2)), "{outcome:?}");
        assert!((outcome.out + &outcome.err).contains("in format 2; this build reads"));
    }
    let node = Node::start();
    let replayed = node.run(&["feed", "replay", recording.to_str().unwrap()]);
    assert!(
        replayed.code != Some(0) && replayed.err.contains("in format 2; this build reads"),
        "{replayed:?}"
    );
    assert_eq!(fs::read(&log).unwrap(), bytes, "nothing was repaired");
}

fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), bit))
}

#[test]
fn simulator_publishes_to_an_external_node() {
    let node = Node::start();
    let serve = ["feed", "serve", "--config", "fanout_1x100_1k", "--rate", "200"];
    let spawned = node.command(&serve).stderr(Stdio::piped()).spawn().expect("the program starts");
    let simulator = RunningProgram::from(spawned);
    let describe = ["topics", "describe", "md.BTC-USD"];
    until("the simulator creates the topic", || node.run(&describe).code == Some(0));
    let updates = ["feed", "watch", "md.BTC-USD", "--every-update", "--json", "--count", "50"];
    node.run(&updates).done();
    signal("INT", simulator.id());
    let simulated = Outcome::of(simulator);
    assert!(simulated.code == Some(0) && simulated.err.contains("published "), "{simulated:?}");
    let watch = ["feed", "watch", "md.BTC-USD", "--json", "--count", "1"];
    let book = &objects(&node.run(&watch).done())[0];
    assert_eq!(book["by"], "snapshot");
    assert_eq!(book["touch"], "apart");
}

#[test]
fn subscriber_of_a_lossy_source_recovers_and_reports_gaps() {
    let source = Source::start(&["--config", "loss_1x10_1k", "--test-loss-every", "50"]);
    let watch = ["feed", "watch", "md.BTC-USD", "--every-update", "--json", "--count", "400"];
    let events = objects(&source.run(&watch).done());
    let (notices, changes): (Vec<_>, Vec<_>) = events.iter().partition(|object| object["notice"].is_string());
    assert!(
        notices.iter().any(|notice| notice["notice"].as_str().unwrap().contains("are missing; requesting")),
        "{events:?}"
    );
    let seqs = changes.iter().map(|change| {
        change["position"].as_str().unwrap().split_once('-').unwrap().1.parse::<u64>().unwrap()
    });
    let seqs: Vec<u64> = seqs.collect();
    assert!(seqs.windows(2).all(|pair| pair[1] > pair[0]), "{seqs:?}");
}

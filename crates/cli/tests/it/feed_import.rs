//! Tests of `dunlin feed import`.

use serde_json::Value;

use crate::dunlin::{Node, dunlin, run, run_with};

const STREAM: &str = concat!(
    r#"{"op":"mcm","pt":1500,"mc":[{"id":"1.5","img":true,"marketDefinition":{"runners":[{"id":7},{"id":8}]}}]}"#,
    "\n",
    r#"{"op":"mcm","pt":1600,"mc":[{"id":"1.5","rc":[{"id":7,"atb":[[1.01,20]]},{"id":8,"atl":[[3,1]]}]}]}"#,
    "\n",
    r#"{"op":"mcm","pt":1700,"mc":[{"id":"1.5","rc":[{"id":7,"atb":[[1.01,0.5]]}]}]}"#,
    "\n",
);
const ROWS: &str = "id,timestamp,exchange_timestamp,price,volume,action,direction\n\
    1,9,5,78318.0,1.5,created,bid\n2,60,50,78319.0,0.5,created,ask\n9,61,51,78319.0,0.5,deleted,ask\n";

#[test]
fn betfair_import_creates_a_topic_for_each_runner() {
    let node = Node::start();
    let output = node.run_with(&["feed", "import", "-"], STREAM.as_bytes()).done();
    assert!(output.contains("published 3 records to 2 topics"), "{output}");
    let dumped = node.run(&["log", "dump", "md.1.5.7", "--json"]).done();
    let records: Vec<Value> = dumped.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2, "{dumped}");
    assert_eq!(node.run(&["log", "dump", "md.1.5.8", "--json"]).done().lines().count(), 1);
}

#[test]
fn feed_import_fails_at_a_defect_only_with_option_strict() {
    let check = |more: &[&str], input: &str| {
        run_with(dunlin(&[&["feed", "import", "--check", "-"], more].concat()), input.as_bytes())
    };
    let lenient = check(&["--json"], ROWS);
    assert!(lenient.err.contains("line 4: the line deletes order 9, which does not exist"), "{lenient:?}");
    let summary: Value = serde_json::from_str(&lenient.done()).unwrap();
    assert_eq!((&summary["counts"]["records"], &summary["counts"]["defects"]), (&2.into(), &1.into()));
    assert_eq!(check(&["--strict"], ROWS).code, Some(1));
    assert_eq!(check(&["--strict"], STREAM).code, Some(0));
}

#[test]
fn unknown_import_format_is_refused_with_advice() {
    let refusal = |input: &[u8]| {
        let outcome = run_with(dunlin(&["feed", "import", "--check", "-"]), input);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        outcome.err
    };
    assert!(refusal(b"\x1f\x8b\x08\x00").contains("gzip -dc FILE | dunlin feed import -"));
    assert!(refusal(b"").contains("the file is empty"));
    assert!(refusal(b"a recording\n").contains("the file's format is unknown"));
    // A file of an exchange whose format cannot be imported.
    let kraken = br#"{"channel":"book","type":"snapshot","data":[{"symbol":"X/USD","bids":[],"asks":[]}]}"#;
    assert!(refusal(kraken).contains("the file's format is unknown"));
    assert!(refusal(b"{\"op\":\"subscribe\"}\n").contains("the file's format is not Betfair stream"));
    assert!(refusal(b"time,price\n1,2\n").contains("the file's format is not Bitstamp orders"));
    assert_eq!(run(&["feed", "import", "--check", "/nowhere"]).code, Some(2));
    assert_eq!(run(&["feed", "import"]).code, Some(2));
}

/// Imports these rows into a recording, in the directory `name` of `folder`.
fn record(folder: &std::path::Path, name: &str, rows: &str) -> String {
    let out = folder.join(name).to_str().unwrap().to_owned();
    run_with(dunlin(&["feed", "import", "--out", &out, "-"]), rows.as_bytes()).done();
    out
}

#[test]
fn dump_that_starts_after_the_last_record_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let log = format!("{}/md.bitstamp.btcusd", record(folder.path(), "a", ROWS));
    let count_records =
        |from: &str| run(&["log", "dump", &log, "--from", from, "--json"]).done().lines().count();
    let all = count_records("earliest");
    assert!(all > 0);
    let last = format!("1-{}", u64::MAX);
    assert_eq!(["2099-01-01T00:00:00Z", "1-999999", "7-0", &last].map(count_records), [0; 4]);
    assert_eq!(count_records("1-1"), all - 1);
}

#[test]
fn recording_with_a_log_of_another_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| record(folder.path(), name, ROWS));
    let list = format!("{a}/topics");
    let text = std::fs::read_to_string(&list).unwrap();
    let line = text.lines().nth(1).unwrap();
    std::fs::write(&list, text.replace(line, &format!("{line}\n{line}"))).unwrap();
    let doubled = run(&["feed", "verify", "--strict", &a]);
    assert!(doubled.code == Some(2) && doubled.err.contains("is damaged"), "{doubled:?}");
    std::fs::write(&list, &text).unwrap();
    run(&["feed", "verify", "--strict", &a]).done();
    let topic = "md.bitstamp.btcusd";
    std::fs::remove_dir_all(format!("{a}/{topic}")).unwrap();
    std::fs::rename(format!("{b}/{topic}"), format!("{a}/{topic}")).unwrap();
    let swapped = run(&["feed", "verify", "--strict", &a]);
    assert!(swapped.code == Some(2) && swapped.err.contains("another recording"), "{swapped:?}");
}

#[test]
fn recording_imported_to_a_folder_can_be_verified_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rec");
    let out = out.to_str().unwrap();
    let import = |input: &str| run_with(dunlin(&["feed", "import", "--out", out, "-"]), input.as_bytes());
    let output = import(STREAM);
    assert!(output.err.contains("3 records and 2 states of 2 topics"), "{output:?}");
    assert!(output.done().contains("recorded 3 records to 2 topics"));
    assert!(import(ROWS).err.contains("is not empty"));
    let verified = run(&["feed", "verify", "--strict", out]).done();
    assert!(
        verified.contains("3 records and 2 states of 2 topics, 0 gaps, book checksum equal at 2 of 2 points"),
        "{verified}"
    );
    let checksum = |node: &Node, topic: &str| {
        let described = node.run(&["topics", "describe", topic, "--json"]).done();
        let described: Value = serde_json::from_str(&described).unwrap();
        described["settings"]["reducer/0"].as_str().unwrap().split_once(": ").unwrap().1.to_owned()
    };
    let (published, replayed) = (Node::start(), Node::start());
    published.run_with(&["feed", "import", "-"], STREAM.as_bytes()).done();
    replayed.run(&["feed", "replay", out, "--speed", "max"]).done();
    for topic in ["md.1.5.7", "md.1.5.8"] {
        assert_eq!(checksum(&published, topic), checksum(&replayed, topic), "{topic}");
    }
}

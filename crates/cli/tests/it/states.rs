//! Tests of commands on state topics: `dunlin sub --from snapshot`, `dunlin sub --conflate`, and output with decoded
//! entries.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::dunlin::{Node, Outcome};

fn objects(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

/// Starts a node with a state topic of the kind `last`, which contains the values of two keys.
fn prices() -> Node {
    let node = Node::start();
    node.run(&["topics", "create", "prices", "--reducer", "last"]).done();
    for (key, value) in [("BTC", "50000"), ("ETH", "3000"), ("BTC", "50001")] {
        node.run(&["pub", "prices", "--key", key, value]).done();
    }
    node
}

/// Runs `dunlin sub` with `arguments`, and meanwhile calls `publish` again and again. Returns the output of `dunlin
/// sub`, which ends with the first record after the state.
fn run_until_record(node: &Node, arguments: &[&str], publish: impl Fn() + Sync) -> String {
    let all = [&["sub"], arguments, &["--count", "1"]].concat();
    let child = node.command(&all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                publish();
                thread::sleep(Duration::from_millis(50));
            }
        });
        let outcome = Outcome::of(child);
        ended.store(true, Ordering::Relaxed);
        outcome.done()
    })
}

#[test]
fn dunlin_sub_from_snapshot_prints_a_state_as_text_and_json() {
    let node = prices();
    let publish = || drop(node.run(&["pub", "prices", "--key", "BTC", "50001"]).done());
    let text = run_until_record(&node, &["prices", "--from", "snapshot"], publish);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("STATE    at ") && lines[0].ends_with(": 2 values"), "{text}");
    assert_eq!(lines[1..3], ["  set BTC 50001", "  set ETH 3000"]);
    assert!(lines.last().unwrap().ends_with(" 50001"), "{text}");
    let all = objects(&run_until_record(&node, &["prices", "--from", "snapshot", "--json"], publish));
    let state = &all[0];
    assert_eq!((&state["event"], &state["kind"]), (&"state".into(), &"last".into()));
    let btc = serde_json::json!({ "op": "set", "key": "BTC", "value": "50001" });
    assert_eq!(state["entries"][0], btc);
}

#[test]
fn sub_reports_that_no_publisher_of_a_state_is_connected() {
    let node = prices();
    for (json, line) in
        [(false, "PUBLISHER  no publisher has been connected for "), (true, r#""event":"publishers""#)]
    {
        let arguments = ["sub", "prices", "--from", "snapshot", "--json"];
        let arguments = if json { &arguments[..] } else { &arguments[..4] };
        let mut child = node.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let found = lines.find(|text| text.contains(line));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.is_some(), "{line}");
    }
}

#[test]
fn sub_with_option_conflate_prints_state_and_readable_entries() {
    let node = Node::start();
    let rows = "id,timestamp,exchange_timestamp,price,volume,action,direction\n\
        1,9,5,78318.0,1.5,created,bid\n2,60,50,78319.0,0.5,created,ask\n";
    let import = || drop(node.run_with(&["feed", "import", "-"], rows.as_bytes()).done());
    import();
    let conflated = run_until_record(&node, &["md.bitstamp.btcusd", "--conflate"], import);
    assert!(conflated.contains(": 1 bid level from 78318.0 x 1.50000000, "), "{conflated}");
    assert!(conflated.contains("\n  add bid 1 78318.0 x 1.50000000\n"), "{conflated}");
    let records = node.run(&["sub", "md.bitstamp.btcusd", "--from", "earliest", "--count", "2"]).done();
    assert!(records.contains("clear bids, clear asks, add bid 1 78318.0 x 1.50000000"), "{records}");
    assert!(records.contains("add ask 2 78319.0 x 0.50000000"), "{records}");
    let dumped = node.run(&["log", "dump", "md.bitstamp.btcusd"]).done();
    assert!(dumped.contains("| add ask 2 78319.0 x 0.50000000"), "{dumped}");
    let described = node.run(&["topics", "describe", "md.bitstamp.btcusd"]).done();
    assert!(described.contains("state       orders ") && described.contains("2 entries"), "{described}");
}

#[test]
fn errors_explain_refused_options_of_states_and_reducers() {
    let node = Node::start();
    node.run(&["topics", "create", "plain"]).done();
    let assert_refused = |arguments: &[&str], text: &str| {
        let outcome = node.run(arguments);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.err.contains(text), "{text}: {outcome:?}");
    };
    assert_refused(&["sub", "plain", "--from", "snapshot"], "keeps no state");
    assert_refused(&["sub", "plain", "--conflate"], "keeps no state");
    assert_refused(
        &["sub", "plain", "--group", "g", "--from", "snapshot"],
        "--from snapshot cannot be used with --group",
    );
    assert_refused(&["topics", "create", "b", "--reducer", "boook"], "use one of book, orders, last");
    assert_refused(
        &["topics", "create", "b", "--reducer", "book", "--reducer-option", "tik=5"],
        "no option `tik`",
    );
}

#[test]
fn dunlin_pub_stops_at_a_refused_line_and_awaits_all_acks() {
    let node = Node::start();
    node.run(&["topics", "create", "book", "--reducer", "book"]).done();
    // An encoded entry that removes a price level, followed by a line end. The entry itself contains no byte that is a
    // line end.
    let mut entry = [0; 25];
    (entry[0], entry[1], entry[8], entry[24]) = (2, 1, 100, b'\n');
    let mut lines = entry.repeat(100);
    lines.extend_from_slice(b"not an entry\n");
    lines.extend(entry.repeat(50_000));
    let outcome = node.run_with(&["pub", "book", "--json"], &lines);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let counts = &objects(&outcome.out)[0];
    assert_eq!(counts["not_acknowledged"], 1, "only the refused line: {outcome:?}");
    let topics = objects(&node.run(&["topics", "list", "--json"]).done());
    let book = topics.iter().find(|topic| topic["topic"] == "book").expect("the topic exists");
    assert_eq!(book["appended"], counts["acknowledged"]);
}

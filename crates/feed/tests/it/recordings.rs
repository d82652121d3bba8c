//! Tests that read valid and invalid recordings. The recordings are part of the tests' code.

use dunlin_feed::recording::{Recording, RecordingFormat, RecordingItem, RecordingOptions};
use dunlin_feed::{BookEntry, OrderEntry};
use proptest::prelude::*;

use crate::any_file;

/// The results of reading a recording: the records, each with its book, time and entries, and the texts of defects and
/// phantoms.
#[derive(Debug, Default, PartialEq)]
struct ReadResult {
    books: usize,
    records: Vec<(usize, u64, Vec<String>)>,
    messages: Vec<String>,
}

fn read(format: RecordingFormat, text: &str, options: &RecordingOptions) -> (ReadResult, Recording) {
    let (mut recording, mut result) = (Recording::new(format, options), ReadResult::default());
    recording.push(text.as_bytes(), &mut |item| result.add(format, item));
    recording.end(&mut |item| result.add(format, item));
    (result, recording)
}

fn betfair(text: &str) -> ReadResult {
    read(RecordingFormat::Betfair, text, &RecordingOptions::default()).0
}

fn bitstamp(rows: &str, evict_phantoms: bool) -> ReadResult {
    let text = format!("id,timestamp,exchange_timestamp,price,volume,action,direction\n{rows}");
    read(
        RecordingFormat::Bitstamp,
        &text,
        &RecordingOptions { evict_phantoms, ..RecordingOptions::default() },
    )
    .0
}

impl ReadResult {
    fn add(&mut self, format: RecordingFormat, item: RecordingItem<'_>) {
        match item {
            RecordingItem::Record { book, event_time_ns, payload } => {
                assert!(book < self.books, "a book comes before its records");
                self.records.push((book, event_time_ns / 1_000_000, entries(format, payload)));
            }
            RecordingItem::Defect(defect) => self.messages.push(defect.to_string()),
            RecordingItem::Phantom(phantom) => self.messages.push(phantom.to_string()),
            RecordingItem::Book { book, .. } => {
                assert_eq!(book, self.books);
                self.books += 1;
            }
            _ => unreachable!("no other items"),
        }
    }

    fn entries(&self) -> Vec<&str> {
        self.records.iter().flat_map(|(_, _, entries)| entries).map(String::as_str).collect()
    }
}

fn entries(format: RecordingFormat, payload: &[u8]) -> Vec<String> {
    match format {
        RecordingFormat::Betfair => {
            BookEntry::decode_all(payload).map(|entry| book_text(entry.unwrap())).collect()
        }
        RecordingFormat::Bitstamp => {
            OrderEntry::decode_all(payload).map(|entry| order_text(entry.unwrap())).collect()
        }
    }
}

fn book_text(entry: BookEntry) -> String {
    match entry {
        BookEntry::Set { side, price, size } => format!("{side} {price}: {size}"),
        BookEntry::Remove { side, price } => format!("{side} {price}: none"),
        BookEntry::Clear { side } => format!("no {side}"),
    }
}

fn order_text(entry: OrderEntry) -> String {
    match entry {
        OrderEntry::Add { side, id, price, size } => format!("+{id} {side} {price}: {size}"),
        OrderEntry::Change { id, price, size } => format!("~{id} {price}: {size}"),
        OrderEntry::Delete { id } => format!("-{id}"),
        OrderEntry::Clear { side } => format!("no {side}"),
    }
}

#[test]
fn betfair_message_becomes_one_book_record_for_each_runner() {
    let result = betfair(
        r#"{"op":"mcm","pt":1500,"mc":[{"id":"1.5","rc":[{"id":7,"atb":[[1.01,20]],"atl":[[2.5,0.5]],"tv":3},
            {"id":8,"atb":[[3,1.25]]},{"id":7,"atb":[[1.01,0],[1.02,3e1]]},{"id":9,"ltp":2.0}]}]}"#
            .replace('\n', "")
            .as_str(),
    );
    assert_eq!(result.messages, [""; 0]);
    let first = ["no bid", "no ask", "bid 101: 2000", "ask 250: 50", "bid 101: none", "bid 102: 3000"];
    let second = ["no bid", "no ask", "bid 300: 125"];
    let [first, second] =
        [&first[..], &second].map(|entries| entries.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(result.records, [(0, 1500, first), (1, 1500, second)]);
}

#[test]
fn full_image_of_a_market_replaces_each_book_in_one_record() {
    let result = betfair(concat!(
        r#"{"op":"mcm","pt":1,"mc":[{"id":"1.5","rc":[{"id":7,"atb":[[2,1]]},{"id":8,"atb":[[3,1]]}]},"#,
        r#"{"id":"1.6","rc":[{"id":7,"atb":[[4,1]]}]}]}"#,
        "\n",
        r#"{"op":"mcm","pt":2,"mc":[{"id":"1.5","img":true,"rc":[{"id":7,"atl":[[5,1]]}]}]}"#,
        "\n",
        r#"{"op":"mcm","pt":3,"mc":[{"id":"1.5","img":false,"rc":[{"id":7,"atb":[[2,0]],"atl":[[5,0]]}]}]}"#,
    ));
    assert_eq!(result.messages, [""; 0]);
    let image = [(0, 2, ["no bid", "no ask", "ask 500: 100"].map(str::to_owned).to_vec())];
    let emptied = [(1, 2, ["no bid", "no ask"].map(str::to_owned).to_vec())];
    assert_eq!(result.records[3..5], [image, emptied].concat());
    assert_eq!(
        result.entries().last(),
        Some(&"ask 500: none"),
        "the bid that the image cleared is not removed again"
    );
}

#[test]
fn betfair_topics_are_named_by_market_runner_and_handicap() {
    let text = concat!(
        r#"{"op":"mcm","pt":1,"mc":[{"id":"1.5","marketDefinition":{"runners":[{"id":7,"name":"Dunlin"}]},"#,
        r#""rc":[{"id":7,"hc":-1.5,"atb":[[2,1]]},{"id":7,"hc":0,"atb":[[2,1]]}]}]}"#,
    );
    let (_, recording) = read(RecordingFormat::Betfair, text, &RecordingOptions::default());
    let books: Vec<_> =
        recording.books().iter().map(|book| (book.topic.as_str(), book.name.as_deref())).collect();
    assert_eq!(books, [("md.1.5.7", Some("Dunlin")), ("md.1.5.7_-150", None)]);
    assert_eq!((recording.books()[0].kind, recording.books()[0].scale.price_decimals), ("book", 2));
}

#[test]
fn defective_lines_of_a_betfair_stream_are_reported_and_skipped() {
    let change = |runner: &str| format!(r#"{{"op":"mcm","pt":1,"mc":[{{"id":"1.5","rc":[{runner}]}}]}}"#);
    let text = [
        change(r#"{"id":7,"atb":[[2.001,1]]},{"id":8,"atb":[[2,1]]}"#),
        change(r#"{"id":7,"atb":[[2,-1]],"atl":[[3,1]]}"#),
        "garbage".to_owned(),
        r#"{"op":"connection","connectionId":"1"}"#.to_owned(),
        r#"{"op":"mcm","mc":[]}"#.to_owned(),
        r#"{"op":"mcm","pt":1,"mc":[{"id":"a b","rc":[{"id":7}]}]}"#.to_owned(),
        change(r#"{"id":7,"atb":[["2",1]]}"#),
        change(r#"{"id":7,"atb":[[2,1,1]]}"#),
        String::new(),
        change(r#"{"id":9,"atb":[[2,1]]}"#),
        change(r#"{"id":9,"atb":[[2,5]]}"#).split_at(60).0.to_owned(),
    ]
    .join("\n");
    let (result, recording) = read(RecordingFormat::Betfair, &text, &RecordingOptions::default());
    assert_eq!(result.entries(), ["no bid", "no ask", "bid 200: 100", "no bid", "no ask", "bid 200: 100"]);
    let prefixes = [
        "line 1: runner 7, price: `2.001` has more than 2 decimals",
        "line 2: runner 7, size: -100 is not a size",
        "line 3: the line is not a message of the stream: expected value at column 1",
        "line 5: a market change has no time",
        "line 6: market id \"a b\" cannot be part of a topic's name",
        "line 7: runner 7, price: `\"2\"` is not a decimal number",
        "line 8: the line is not a message of the stream: trailing characters",
        "line 11: the line is not a message of the stream: EOF while parsing",
    ];
    for (message, prefix) in result.messages.iter().zip(prefixes) {
        assert!(message.starts_with(prefix), "{message}");
    }
    assert_eq!(result.messages.len(), prefixes.len(), "{:?}", result.messages);
    let rows = recording.rows();
    let count = |name| rows.iter().find(|(row, _)| *row == name).map(|(_, count)| *count);
    assert_eq!((count("lines"), count("defects"), count("other messages")), (Some(11), Some(8), Some(1)));
}

#[test]
fn first_bitstamp_rows_form_the_initial_order_book() {
    let result = bitstamp(
        "1,9,5,78318.0,1.5,created,bid\r\n2,9,5,78320.5,2.6e-06,created,ask\r\n\
         3,60,50,78319.0,0.075,created,bid\n3,61,51,78320.5,0.05,changed,bid\n3,62,52,78400.0,0.05,deleted,bid\n\
         1,63,53,78317.0,1.50000000,changed,bid\n\
         4,64,54,999999999.0,0.0,created,bid\n4,64,54,78406.0,0.0,changed,bid\n4,64,54,78406.0,0.0,deleted,bid\n\
         5,64,54,78319.0,0.0,created,bid\n5,65,55,78319.0,1.0,changed,bid\n5,66,56,78319.0,0.0,changed,bid\n\
         1,70,70,78317.0,1.5,deleted,bid\n2,70,70,78320.5,1.0,deleted,ask\n",
        false,
    );
    assert_eq!(result.messages, [""; 0]);
    let opening = ["no bid", "no ask", "+1 bid 783180: 150000000", "+2 ask 783205: 260"];
    assert_eq!(result.records[0], (0, 5, opening.map(str::to_owned).to_vec()));
    assert_eq!(
        result.entries()[4..],
        [
            "+3 bid 783190: 7500000",
            "~3 783190: 5000000",
            "-3",
            "~1 783170: 150000000",
            "+5 bid 783190: 100000000",
            "-5"
        ],
        "the trade's price is not the order's; market orders and the recorder's own closing are no part of the book"
    );
}

#[test]
fn order_deleted_within_a_recording_leaves_the_book() {
    let rows = "1,9,5,10.0,1,created,bid\n2,9,5,11.0,1,created,ask\n1,70,70,10.0,1,deleted,bid\n\
                3,80,75,10.0,1,created,bid\n2,90,90,11.0,1,deleted,ask\n2,91,91,11.0,1,deleted,ask\n";
    let result = bitstamp(rows, false);
    assert_eq!(result.entries()[4..], ["-1", "+3 bid 100: 100000000", "-2"]);
}

#[test]
fn defective_rows_are_skipped_and_reported_by_line_number() {
    let result = bitstamp(
        "1,9,5,10.0,1,created,bid\n1,19,15,10.0,1,created,bid\n2,19,15,10.0,1,deleted,bid\n\
         1,19,15,10.0,1,changed,ask\n1,19,15,10.05,1,changed,bid\n1,19,15,10.0,-1,changed,bid\n\
         1,19,15,10.0,1,moved,bid\nx,19,15,10.0,1,changed,bid\n1,19,15,10.0,0.5,changed,bi\n\
         1,19,15,10.0,0.5,changed\n1,19,15,10.0,0.5,changed,bid\n1,19,15,10.0,0.25,cha",
        false,
    );
    assert_eq!(result.entries()[2..], ["+1 bid 100: 100000000", "~1 100: 50000000"]);
    assert_eq!(
        result.messages,
        [
            "line 3: order 1 is created a second time",
            "line 4: the line deletes order 2, which does not exist",
            "line 5: order 1 is on the bid side, not on the ask side",
            "line 6: price: `10.05` has more than 1 decimals",
            "line 7: volume: -100000000 is not between 0 and 2^53",
            "line 8: action: `moved` is not created, changed or deleted",
            "line 9: id: `x` is not a decimal number",
            "line 10: direction: `bi` is not bid or ask",
            "line 11: the row has 6 columns, but the heading has 7",
            "line 13: the row has 6 columns, but the heading has 7",
        ]
    );
}

#[test]
fn columns_are_found_by_heading_and_missing_ones_are_reported() {
    let options = RecordingOptions::default();
    let moved =
        "direction,action,volume,more,price,exchange_timestamp,timestamp,id\nbid,created,1,,10.0,5,9,1\n";
    let (result, recording) = read(RecordingFormat::Bitstamp, moved, &options);
    assert_eq!(result.entries(), ["no bid", "no ask", "+1 bid 100: 100000000"]);
    assert_eq!(recording.books()[0].topic, "md.bitstamp.btcusd");
    let (result, recording) = read(RecordingFormat::Bitstamp, "id,price\n1,2\n3,4\n", &options);
    assert_eq!(
        result.messages,
        ["line 1: the heading has no column timestamp, exchange_timestamp, volume, action, direction"]
    );
    assert!(recording.rows().contains(&("rows behind an unusable heading", 2)));
}

const CROSSED: &str = "1,9,5,100.0,1,created,bid\n2,9,5,101.0,1,created,ask\n3,9,5,102.0,1,created,ask\n";

#[test]
fn order_is_reported_as_a_phantom_if_crossed_for_1_s() {
    let rows = format!(
        "{CROSSED}4,20,20000,101.0,1,created,bid\n5,30,20999,90.0,1,created,bid\n6,40,21000,90.0,1,created,bid\n"
    );
    let result = bitstamp(&rows, false);
    let message = "line 7: phantom order 2, ask 1.00000000 at 101.0 in the opening book: at 20000 ms order 4 stood across it at 101.0";
    assert_eq!(result.messages, [message]);
    assert!(!result.entries().contains(&"-2"), "the phantom is only reported");
    let evicted = bitstamp(&rows, true);
    assert_eq!(evicted.entries()[7..], ["-2", "+6 bid 900: 100000000"]);
}

#[test]
fn order_is_reported_as_a_phantom_if_a_trade_passes_its_price() {
    let rows = format!(
        "{CROSSED}4,20,15000,105.0,1,created,ask\n4,20,15001,105.0,0.0,deleted,ask\n1,30,16001,100.0,1,deleted,bid\n"
    );
    let messages = bitstamp(&rows, false).messages;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[1].ends_with(
        "phantom order 3, ask 1.00000000 at 102.0 in the opening book: at 15001 ms a trade at 105.0 went past it"
    ));
}

#[test]
fn briefly_crossed_order_is_not_reported_as_a_phantom() {
    let passing = format!(
        "{CROSSED}4,20,20000,103.0,2,created,bid\n4,20,20000,101.0,1,changed,bid\n2,20,20001,101.0,0.0,deleted,ask\n\
         4,20,20002,102.0,0,deleted,bid\n3,20,20002,102.0,0,deleted,ask\n5,20,30000,90.0,1,created,bid\n"
    );
    assert_eq!(bitstamp(&passing, false).messages, [""; 0]);
    let withdrawn = format!(
        "{CROSSED}4,20,20000,103.0,1,created,bid\n4,20,20900,103.0,1,deleted,bid\n5,20,30000,90.0,1,created,bid\n"
    );
    assert_eq!(bitstamp(&withdrawn, false).messages, [""; 0]);
}

#[test]
fn recording_format_is_recognized_by_its_first_bytes() {
    assert_eq!(RecordingFormat::of(b" {\"op\""), Some(RecordingFormat::Betfair));
    assert_eq!(RecordingFormat::of(b"id,timestamp\n{"), Some(RecordingFormat::Bitstamp));
    assert_eq!(
        [RecordingFormat::of(b""), RecordingFormat::of(b"\x1f\x8b\x08"), RecordingFormat::of(b"a\nb,c")],
        [None; 3]
    );
    // Lines of JSON from another exchange must not be recognised as a recording, although the second line has a field
    // `op`.
    assert_eq!(RecordingFormat::of(b"{\"channel\":\"book\",\"type\":\"snapshot\"}\n{\"op\":1}"), None);
}

#[test]
fn byte_order_mark_before_either_format_is_skipped() {
    let rows = format!("id,timestamp,exchange_timestamp,price,volume,action,direction\n{CROSSED}");
    for (text, format) in [(STREAM, RecordingFormat::Betfair), (rows.as_str(), RecordingFormat::Bitstamp)] {
        let marked = format!("\u{feff}{text}");
        assert_eq!(RecordingFormat::of(marked.as_bytes()), Some(format));
        let rows_of = |text: &str| {
            let mut recording = Recording::new(format, &RecordingOptions::default());
            recording.push(text.as_bytes(), &mut |_| {});
            recording.end(&mut |_| {});
            (recording.rows(), recording.is_foreign())
        };
        assert_eq!(rows_of(&marked), rows_of(text));
        assert!(!rows_of(&marked).1);
    }
}

#[test]
fn file_without_a_line_in_the_expected_format_is_no_recording() {
    let is_foreign = |format, text: &str| {
        let mut recording = Recording::new(format, &RecordingOptions::default());
        recording.push(text.as_bytes(), &mut |_| {});
        recording.end(&mut |_| {});
        recording.is_foreign()
    };
    assert!(is_foreign(RecordingFormat::Betfair, "{\"op\":\"subscribe\"}\n"));
    assert!(is_foreign(RecordingFormat::Betfair, "{\"op\":\n"));
    assert!(is_foreign(RecordingFormat::Bitstamp, "time,price\n1,2\n"));
    assert!(!is_foreign(RecordingFormat::Betfair, ""));
    assert!(!is_foreign(
        RecordingFormat::Bitstamp,
        "id,timestamp,exchange_timestamp,price,volume,action,direction\n"
    ));
}

const STREAM: &str = concat!(
    r#"{"op":"mcm","pt":1,"mc":[{"id":"1.5","img":true,"marketDefinition":{"runners":[{"id":7,"hc":0}]}}]}"#,
    "\n",
    r#"{"op":"mcm","pt":2,"mc":[{"id":"1.5","rc":[{"id":7,"atb":[[1.01,20],[2.5,0.5]],"atl":[[3,0]]}]}]}"#,
    "\n",
);
const LAST_LINE: &str =
    "\n{\"op\":\"mcm\",\"pt\":3,\"mc\":[{\"id\":\"1.9\",\"rc\":[{\"id\":99,\"atb\":[[4,4]]}]}]}\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A recording with damaged bytes must give valid records and reports of its defects. A valid line that is appended
    /// after the damage must still be read.
    #[test]
    fn damaged_files_are_reported_and_read_to_the_end(
        damage in prop::collection::vec((0..400_usize, any::<u8>(), 0..3_u8), 1..6),
        rows in any::<bool>(),
        cut in any::<u8>(),
    ) {
        let heading = "id,timestamp,exchange_timestamp,price,volume,action,direction\n";
        let (format, text, last) = match rows {
            true => (RecordingFormat::Bitstamp, CROSSED.repeat(4), "\n77,80,75,1.0,1,created,bid\n"),
            false => (RecordingFormat::Betfair, STREAM.to_owned(), LAST_LINE),
        };
        let mut bytes = text.into_bytes();
        for (at, byte, kind) in damage {
            let at = at % bytes.len().max(1);
            match kind {
                0 if !bytes.is_empty() => bytes[at] = byte,
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let file = [if rows { heading.as_bytes() } else { b"" }, &bytes, last.as_bytes()].concat();
        let (mut recording, mut result) = (Recording::new(format, &RecordingOptions::default()), ReadResult::default());
        recording.push(&file, &mut |item| result.add(format, item));
        recording.end(&mut |item| result.add(format, item));
        let last_entry = if rows { "+77 bid 10: 100000000" } else { "bid 400: 400" };
        prop_assert!(result.entries().contains(&last_entry), "{result:?}");
        any_file::try_recording(&[&[cut], &file[..]].concat());
    }

    /// The fields of the rows are random, but chosen so that many rows name an order that exists.
    #[test]
    fn reducer_accepts_all_records_made_from_random_bitstamp_rows(
        rows in prop::collection::vec((1..6_u64, 0..4_usize, 0..4_usize, 0..3_usize, 0..4_usize, 0..2000_u64), 1..60),
        cut in any::<u8>(),
    ) {
        let mut text = "id,timestamp,exchange_timestamp,price,volume,action,direction\n".to_owned();
        let mut now = 1000;
        for (id, price, size, action, side, after) in rows {
            now += after;
            let local = if side == 3 { now } else { now + 7 };
            text += &format!(
                "{id},{local},{now},{},{},{},{}\n",
                ["0", "10.0", "10.1", "999999999.0"][price],
                ["0.0", "1", "2.5", "1e-08"][size],
                ["created", "changed", "deleted"][action],
                ["bid", "ask"][side % 2],
            );
        }
        any_file::try_recording(&[&[cut], text.as_bytes()].concat());
    }
}

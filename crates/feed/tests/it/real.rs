//! Tests that read real recordings, which `cargo xtask data` fetches. The results are compared with counts from a
//! program in another language.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use dunlin_feed::recording::{
    Phantom, RecordedBook, Recording, RecordingFormat, RecordingItem, RecordingOptions,
};
use dunlin_feed::{BidAskRelation, Book, Orders, PriceLevels, Side};

fn file(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name);
    let read = fs::read(&path);
    if read.is_err() {
        eprintln!("{} is not there: not tested (`cargo xtask data` fetches it)", path.display());
    }
    read.ok()
}

/// The results of reading a file, except for its records.
struct ReadFile {
    rows: HashMap<&'static str, u64>,
    books: Vec<RecordedBook>,
    defects: Vec<String>,
    phantoms: Vec<Phantom>,
}

/// Reads a file in pieces, and passes its records to `on_record`. Returns all results besides the records, or `None` if
/// the file does not exist.
fn read_recording(
    name: &str,
    format: RecordingFormat,
    options: &RecordingOptions,
    on_record: &mut dyn FnMut(usize, u64, &[u8]),
) -> Option<ReadFile> {
    let bytes = file(name)?;
    let (mut recording, mut defects, mut phantoms) =
        (Recording::new(format, options), Vec::new(), Vec::new());
    let mut sink = |item: RecordingItem<'_>| match item {
        RecordingItem::Record { book, event_time_ns, payload } => on_record(book, event_time_ns, payload),
        RecordingItem::Defect(defect) => defects.push(defect.to_string()),
        RecordingItem::Phantom(phantom) => phantoms.push(phantom),
        RecordingItem::Book { .. } => {}
        _ => unreachable!("no other items"),
    };
    for piece in bytes.chunks(60_000) {
        recording.push(piece, &mut sink);
    }
    recording.end(&mut sink);
    let rows = recording.rows().into_iter().collect();
    Some(ReadFile { rows, books: recording.books().to_vec(), defects, phantoms })
}

/// Compares eight numbers with expected ones. They are the numbers of lines, runner changes, levels set, levels
/// removed, removals of levels that did not exist, images, records and books.
#[test]
fn betfair_recordings_yield_the_expected_record_counts() {
    for (name, counts) in [
        ("SELF-1.181223994", [44_687, 91_516, 117_275, 18_839, 7, 1, 88_187, 10]),
        ("PRO-1.170258213", [22_367, 83_890, 91_896, 16_307, 311, 15, 62_759, 17]),
        ("SELF-1.181223995", [21_922, 40_078, 43_816, 12_407, 4, 1, 38_614, 10]),
        ("1.200806927", [18_529, 21_895, 19_431, 2_448, 0, 1, 19_481, 2]),
    ] {
        let mut books: HashMap<usize, Book> = HashMap::new();
        let mut seq = 0;
        let mut on_record = |book, _time, payload: &[u8]| {
            seq += 1;
            let book = books.entry(book).or_insert_with(|| Book::new(Default::default()));
            book.apply_payload(seq, payload).unwrap();
        };
        let options = RecordingOptions::default();
        let Some(ReadFile { rows, defects, .. }) =
            read_recording(name, RecordingFormat::Betfair, &options, &mut on_record)
        else {
            continue;
        };
        let names = [
            "lines",
            "runner changes",
            "levels set",
            "levels removed",
            "removals of absent levels",
            "images",
            "records",
            "books",
        ];
        assert_eq!(names.map(|row| rows.get(row).copied().unwrap_or(0)), counts, "{name}: {rows:?}");
        assert_eq!(defects, [""; 0], "{name}");
        let levels_left: usize =
            books.values().map(|book| book.level_count(Side::Bid) + book.level_count(Side::Ask)).sum();
        assert_eq!(levels_left, 0, "{name}: a settled market has empty books");
    }
}

#[test]
fn bitstamp_recordings_yield_the_expected_record_counts() {
    let (mut orders, mut seq) = (Orders::new(Default::default()), 0);
    let mut on_record = |_book, _time, payload: &[u8]| {
        seq += 1;
        orders.apply_payload(seq, payload).unwrap();
    };
    let options = RecordingOptions::default();
    let Some(ReadFile { rows, books, defects, .. }) =
        read_recording("orders.csv", RecordingFormat::Bitstamp, &options, &mut on_record)
    else {
        return;
    };
    let counted = [
        ("lines", 314_058),
        ("orders in the opening book", 6_512),
        ("orders created", 156_889),
        ("orders changed", 266),
        ("orders deleted", 156_902 - 6_518 - 13),
        ("fills among these", 566),
        ("closing rows, not passed on", 6_518),
        ("market orders, not passed on", 7),
        ("defects", 13),
    ];
    for (name, count) in counted {
        assert_eq!(rows.get(name), Some(&count), "{name}: {rows:?}");
    }
    let is_deletion =
        |defect: &String| defect.contains(" deletes order ") && defect.ends_with(", which does not exist");
    assert!(defects.iter().all(is_deletion), "{defects:?}");
    assert_eq!(orders.order_count(), 6_518, "those that the closing rows would delete");
    assert_eq!(books[0].topic, "md.bitstamp.btcusd");
}

/// Later events prove that two orders in the opening book are phantoms. If the two orders are deleted, the book must
/// never be crossed or locked at the end of a millisecond. If they are kept, the book is mostly crossed or locked.
#[test]
fn removing_phantom_orders_keeps_bitstamp_bids_below_asks() {
    for (evict_phantoms, phantoms_left) in [(false, true), (true, false)] {
        let options = RecordingOptions { evict_phantoms, ..RecordingOptions::default() };
        let (mut orders, mut seq, mut last_ns) = (Orders::new(Default::default()), 0, 0);
        let (mut milliseconds, mut apart) = (0, 0);
        let mut on_record = |_book, time_ns: u64, payload: &[u8]| {
            if time_ns > last_ns && time_ns > ALL_PROVEN_MS * 1_000_000 {
                milliseconds += 1;
                apart += usize::from(orders.touch() == BidAskRelation::Apart);
            }
            last_ns = last_ns.max(time_ns);
            seq += 1;
            orders.apply_payload(seq, payload).unwrap();
        };
        let read_file = read_recording("orders.csv", RecordingFormat::Bitstamp, &options, &mut on_record);
        let Some(ReadFile { phantoms, .. }) = read_file else { return };
        let found: Vec<_> =
            phantoms.iter().map(|phantom| (phantom.id, phantom.side, phantom.price)).collect();
        assert_eq!(
            found,
            [(2_002_347_646_152_704, Side::Ask, 783_330), (2_002_347_642_003_458, Side::Ask, 783_740)]
        );
        assert!(milliseconds > 100_000, "{milliseconds}");
        if phantoms_left {
            assert!(apart < milliseconds / 10, "{apart} of {milliseconds}")
        } else {
            assert_eq!(apart, milliseconds)
        }
    }
}

/// An exchange time, in ms, by which all phantoms are proven.
const ALL_PROVEN_MS: u64 = 1_777_689_631_000;

#[test]
#[ignore = "a measurement: cargo test --release -p dunlin-feed --test it -- --ignored --nocapture prints_the_speed"]
fn reading_real_recordings_yields_records_and_prints_the_speed() {
    let options = RecordingOptions::default();
    for (name, format) in
        [("SELF-1.181223994", RecordingFormat::Betfair), ("orders.csv", RecordingFormat::Bitstamp)]
    {
        let Some(bytes) = file(name) else { continue };
        for _ in 0..3 {
            let (start, mut records) = (Instant::now(), 0);
            let mut recording = Recording::new(format, &options);
            let mut sink = |item: RecordingItem<'_>| {
                records += usize::from(matches!(item, RecordingItem::Record { .. }))
            };
            recording.push(&bytes, &mut sink);
            recording.end(&mut sink);
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{name}: {:.0} MB/s, {:.2} M records/s",
                bytes.len() as f64 / seconds / 1e6,
                records as f64 / seconds / 1e6
            );
        }
    }
}

//! Tests that arbitrary bytes, read as a recording or as an instrument file, are refused or give valid results. `cargo
//! xtask fuzz recording` runs the same code.

use dunlin_feed::recording::{RecordedBook, Recording, RecordingFormat, RecordingItem, RecordingOptions};
use dunlin_feed::{BOOK, Book, Instruments, Notation, Orders, Simulator};

const LEVELS_MAX: u32 = 1000;

enum State {
    Levels(Book),
    Orders(Orders),
}

/// Reads all bytes but the first as a recording, in two pieces. The first byte determines where the pieces are divided,
/// and whether phantom orders are deleted. The reducer of each book must accept every record of the book.
///
/// # Panics
/// If a record is refused, or appears before the item that announces its book.
pub fn try_recording(bytes: &[u8]) {
    let (Some((&head, file)), Some(format)) =
        (bytes.split_first(), bytes.get(1..).and_then(RecordingFormat::of))
    else {
        return;
    };
    let options = RecordingOptions { evict_phantoms: head & 1 == 1, ..RecordingOptions::default() };
    let (mut recording, mut states, mut seq) = (Recording::new(format, &options), Vec::new(), 0);
    let mut sink = |item: RecordingItem<'_>| match item {
        RecordingItem::Book { book, recorded } => {
            assert_eq!(book, states.len(), "books come in order");
            states.push(state(recorded));
        }
        RecordingItem::Record { book, payload, .. } => {
            seq += 1;
            let applied = match &mut states[book] {
                State::Levels(book) => book.apply_payload(seq, payload),
                State::Orders(orders) => orders.apply_payload(seq, payload),
            };
            applied.expect("a record that its reducer takes");
        }
        _ => {}
    };
    let (first, rest) = file.split_at(file.len() * usize::from(head) / 256);
    recording.push(first, &mut sink);
    recording.push(rest, &mut sink);
    recording.end(&mut sink);
    recording.rows();
}

fn state(recorded: &RecordedBook) -> State {
    match recorded.kind {
        BOOK => State::Levels(Book::new(recorded.scale)),
        _ => State::Orders(Orders::new(recorded.scale)),
    }
}

/// Reads the bytes as an instrument file, in both formats. If the file is accepted, its instruments are simulated, and
/// a reducer for each instrument must accept the simulated records.
///
/// # Panics
/// If a record is refused.
pub fn try_instruments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for notation in [Notation::Json, Notation::Toml] {
        let Ok(instruments) = Instruments::parse(text, notation) else { continue };
        let levels: u32 = instruments.list().iter().map(|instrument| instrument.levels_per_side).sum();
        // Instruments with more levels are skipped, because they are slow and behave in the same way.
        if levels > LEVELS_MAX {
            continue;
        }
        let mut simulator = Simulator::new(&instruments, 1);
        for (number, instrument) in instruments.list().iter().enumerate() {
            let (mut book, mut payload) = (Book::new(instrument.scale()), Vec::new());
            simulator.whole_book(number, &mut payload);
            for seq in 1..100 {
                book.apply_payload(seq, &payload).expect("a record that its reducer takes");
                payload.clear();
                simulator.update(number, &mut payload);
            }
        }
    }
}

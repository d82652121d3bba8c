use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dunlin_feed::{Book, BookEntry, Instruments, Notation, PriceLevels, Side, SimulatedUpdate, Simulator};

fn instruments(top: &str, volatility: f64, levels: u32, count: usize) -> Instruments {
    let text = format!(
        r#"{{{top} "instruments": [{{"instrumentId": "X", "publishDepth": 10, "tickSize": 5, "basePrice": 5000000,
             "levelsPerSide": {levels}, "volatility": {volatility}}}]}}"#
    );
    Instruments::parse(&text, Notation::Json).unwrap().copies_of_first(count).unwrap()
}

#[derive(Debug, Default, Clone, PartialEq)]
struct SimpleBook {
    bids: BTreeMap<i64, i64>,
    asks: BTreeMap<i64, i64>,
}

impl SimpleBook {
    fn apply(&mut self, payload: &[u8]) -> usize {
        let entries: Vec<_> = BookEntry::decode_all(payload).map(Result::unwrap).collect();
        for entry in &entries {
            match *entry {
                BookEntry::Set { side, price, size } => {
                    assert!(size > 0 && price > 0 && price % 5 == 0, "{entry:?}");
                    self.side(side).insert(price, size);
                }
                BookEntry::Remove { side, price } => {
                    self.side(side).remove(&price).expect("only existing levels are removed");
                }
                BookEntry::Clear { side } => self.side(side).clear(),
            }
        }
        entries.len()
    }

    fn side(&mut self, side: Side) -> &mut BTreeMap<i64, i64> {
        if side == Side::Bid { &mut self.bids } else { &mut self.asks }
    }

    /// Difference between the best ask and the best bid.
    fn spread(&self) -> Option<i64> {
        Some(self.asks.keys().next()? - self.bids.keys().next_back()?)
    }

    fn middle(&self) -> Option<i64> {
        Some((self.asks.keys().next()? + self.bids.keys().next_back()?) / 2)
    }
}

fn hash(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the FNV-1a hash of all payloads of a simulation: first the whole book of each instrument, then `updates`
/// rounds in which each instrument has one update.
fn stream_hash(instruments: &Instruments, seed: u64, updates: usize) -> u64 {
    let mut simulator = Simulator::new(instruments, seed);
    let (mut payload, mut sum) = (Vec::new(), 0xcbf2_9ce4_8422_2325);
    for at in 0..instruments.list().len() {
        simulator.whole_book(at, &mut payload);
    }
    for round in 0..updates {
        for at in 0..instruments.list().len() {
            simulator.update(at, &mut payload);
        }
        if round % 64 == 0 {
            sum = hash(sum, &payload);
            payload.clear();
        }
    }
    hash(sum, &payload)
}

/// If this hash changes, simulated feeds of earlier versions cannot be compared with those of later versions. The
/// changelog must then mention the change.
#[test]
fn simulator_seed_always_gives_the_same_bytes() {
    let resets = instruments(r#""resetProbabilityPpm": 200,"#, 0.08, 30, 3);
    assert_eq!(stream_hash(&resets, 123, 20_000), 0xf446_cb95_7916_afea);
    let crossing = instruments(r#""allowCrossedBooks": true,"#, 2.5, 8, 2);
    assert_eq!(stream_hash(&crossing, 7, 20_000), 0xc085_c9e0_bd19_5077);
}

#[test]
fn simulated_instrument_ignores_updates_of_other_instruments() {
    let settings = instruments("", 0.08, 30, 2);
    let stream = |others: usize| {
        let (mut simulator, mut payload) = (Simulator::new(&settings, 5), Vec::new());
        for _ in 0..1000 {
            simulator.update(1, &mut payload);
            for _ in 0..others {
                simulator.update(0, &mut Vec::new());
            }
        }
        payload
    };
    assert_eq!(stream(0), stream(3));
    let other_seed = stream_hash(&settings, 6, 100);
    assert_ne!(stream_hash(&settings, 5, 100), other_seed);
}

#[test]
fn simulated_update_changes_one_level_and_crosses_no_book() {
    for (volatility, levels) in [(0.0, 4), (0.08, 40), (0.9, 4), (0.9, 40), (50.0, 10)] {
        let settings = instruments("", volatility, levels, 1);
        let (mut simulator, mut book, mut payload) =
            (Simulator::new(&settings, 1), SimpleBook::default(), Vec::new());
        simulator.whole_book(0, &mut payload);
        assert_eq!(book.apply(&payload), 2 + 2 * levels as usize);
        for _ in 0..50_000 {
            payload.clear();
            assert_eq!(simulator.update(0, &mut payload), SimulatedUpdate::Level);
            assert_eq!(book.apply(&payload), 1);
            assert!(book.spread().is_none_or(|spread| spread >= 5), "{book:?}");
            assert!(book.bids.len() <= 2 * levels as usize + 2 && book.asks.len() <= 2 * levels as usize + 2);
        }
        let mut written = SimpleBook::default();
        payload.clear();
        simulator.whole_book(0, &mut payload);
        written.apply(&payload);
        assert_eq!(written, book);
    }
}

#[test]
fn book_accepts_every_update_of_a_simulated_instrument() {
    let settings = instruments(r#""resetProbabilityPpm": 1000, "allowCrossedBooks": true,"#, 0.5, 10, 1);
    let (mut simulator, mut payload) = (Simulator::new(&settings, 1), Vec::new());
    let (mut book, mut simple) = (Book::new(settings.list()[0].scale()), SimpleBook::default());
    simulator.whole_book(0, &mut payload);
    for seq in 1..20_000 {
        book.apply_payload(seq, &payload).unwrap();
        simple.apply(&payload);
        payload.clear();
        simulator.update(0, &mut payload);
    }
    for (side, levels) in [(Side::Bid, &simple.bids), (Side::Ask, &simple.asks)] {
        let mut levels_of_book: Vec<_> = book.levels(side).map(|level| (level.price, level.size)).collect();
        levels_of_book.sort_unstable();
        assert!(levels_of_book.into_iter().eq(levels.iter().map(|(price, size)| (*price, *size))));
    }
    assert!(book.crossings().crossed > 0);
}

#[test]
fn simulated_reset_is_one_record_that_replaces_the_book() {
    let settings = instruments(r#""resetProbabilityPpm": 10000,"#, 0.08, 20, 1);
    let (mut simulator, mut book, mut payload) =
        (Simulator::new(&settings, 1), SimpleBook::default(), Vec::new());
    simulator.whole_book(0, &mut payload);
    book.apply(&payload);
    let mut resets = 0;
    for _ in 0..100_000 {
        payload.clear();
        if simulator.update(0, &mut payload) == SimulatedUpdate::Reset {
            resets += 1;
            let mut reset_book = SimpleBook::default();
            assert_eq!(reset_book.apply(&payload), 42);
            assert_eq!((reset_book.bids.len(), reset_book.asks.len()), (20, 20));
            book = reset_book;
        } else {
            book.apply(&payload);
        }
    }
    assert!((800..1200).contains(&resets), "one in a hundred updates, not {resets} of 100,000");
}

#[test]
fn simulated_books_cross_if_allowed_and_then_uncross() {
    let settings = instruments(r#""allowCrossedBooks": true,"#, 0.08, 20, 1);
    let (mut simulator, mut book, mut payload) =
        (Simulator::new(&settings, 1), SimpleBook::default(), Vec::new());
    simulator.whole_book(0, &mut payload);
    let (mut crossed, mut locked) = (0, 0);
    for _ in 0..100_000 {
        book.apply(&payload);
        payload.clear();
        simulator.update(0, &mut payload);
        crossed += usize::from(book.spread().is_some_and(|spread| spread < 0));
        locked += usize::from(book.spread() == Some(0));
    }
    assert!((1_000..50_000).contains(&crossed) && locked > 100, "{crossed} crossed, {locked} locked");
}

/// Over n updates, the standard deviation of the move of the book's middle must be volatility × √n ticks.
#[test]
fn mid_price_deviation_equals_the_configured_volatility() {
    const SPAN: usize = 1_000;
    for volatility in [0.05, 0.2, 0.5] {
        let settings = instruments("", volatility, 10, 200);
        let mut simulator = Simulator::new(&settings, 9);
        let mut squares = 0.0;
        for at in 0..settings.list().len() {
            let (mut book, mut payload) = (SimpleBook::default(), Vec::new());
            simulator.whole_book(at, &mut payload);
            for _ in 0..SPAN {
                simulator.update(at, &mut payload);
            }
            for record in payload.chunks(24) {
                book.apply(record);
            }
            let move_ticks = (book.middle().unwrap() - settings.list()[at].base_price) as f64 / 5.0;
            squares += move_ticks * move_ticks;
        }
        let measured = (squares / 200.0).sqrt() / (SPAN as f64).sqrt();
        assert!((0.85..1.15).contains(&(measured / volatility)), "{volatility} wanted, {measured} measured");
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p dunlin-feed --test it -- --ignored --nocapture prints_its_rate"]
fn simulator_makes_updates_for_two_seconds_and_prints_its_rate() {
    for (count, levels) in [(1, 40), (100, 20), (1, 10_000)] {
        let settings = instruments("", 0.05, levels, count);
        let (mut simulator, mut payload) = (Simulator::new(&settings, 1), Vec::with_capacity(1 << 20));
        let (start, mut updates) = (Instant::now(), 0_u64);
        while start.elapsed() < Duration::from_secs(2) {
            payload.clear();
            for at in (0..count).cycle().take(10_000) {
                simulator.update(at, &mut payload);
            }
            updates += 10_000;
        }
        let rate = updates as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{count} instruments of {levels} levels: {rate:.1} M updates/s");
    }
}

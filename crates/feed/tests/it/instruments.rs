use dunlin_feed::{Instruments, Notation};

use crate::any_file;

const EXAMPLE: &str = r#"{
  "defaultUpdatesPerSec": 2000, "resetProbabilityPpm": 50, "allowCrossedBooks": false,
  "instruments": [
    {"instrumentId": "BTC-USD", "symbol": "Bitcoin", "publishDepth": 10, "tickSize": "5", "basePrice": "5000000",
     "levelsPerSide": 30, "updatesPerSec": 1500, "volatility": 0.08},
    {"instrument_id": "AAPL", "publish_depth": 15, "tick_size": 1, "base_price": 19000}
  ]
}"#;

fn json(text: &str) -> Result<Instruments, String> {
    Instruments::parse(text, Notation::Json).map_err(|error| error.to_string())
}

/// Returns the error for a file with one instrument, named X, that has the given fields.
fn refused(fields: &str) -> String {
    let valid = r#""publishDepth": 5, "tickSize": 1, "basePrice": 1000"#;
    let remaining: Vec<&str> =
        valid.split(", ").filter(|field| !fields.contains(field.split(':').next().unwrap())).collect();
    let all = [&[fields][..], &remaining].concat().into_iter().filter(|field| !field.is_empty());
    let all = all.collect::<Vec<_>>().join(", ");
    json(&format!(r#"{{"instruments": [{{"instrumentId": "X", {all}}}]}}"#)).unwrap_err()
}

#[test]
fn example_file_is_read_with_its_defaults() {
    let read = json(EXAMPLE).unwrap();
    assert_eq!((read.reset_probability_ppm, read.allow_crossed_books), (50, false));
    let [bitcoin, apple] = read.list() else { panic!("two instruments") };
    assert_eq!((bitcoin.id.as_str(), bitcoin.symbol.as_str()), ("BTC-USD", "Bitcoin"));
    assert_eq!((bitcoin.tick_size, bitcoin.base_price, bitcoin.volatility), (5, 5_000_000, 0.08));
    assert_eq!((bitcoin.levels_per_side, bitcoin.updates_per_sec), (30, 1500));
    assert_eq!((apple.symbol.as_str(), apple.topic().as_str()), ("AAPL", "md.AAPL"));
    assert_eq!((apple.levels_per_side, apple.updates_per_sec, apple.volatility), (30, 2000, 0.05));
}

#[test]
fn simulator_runs_with_every_accepted_instruments_file() {
    any_file::try_instruments(EXAMPLE.as_bytes());
    for (tick, base, levels) in
        [(1_i64, 5_i64, 4), (3, 100, 4), (1, 1_001, 1_000), (1_000_000_000_000, 4_500_000_000_000_001, 40)]
    {
        let text = format!(
            r#"{{"resetProbabilityPpm": 500000, "instruments": [{{"instrumentId": "X", "publishDepth": 1, "volatility": 1000,
                "tickSize": {tick}, "basePrice": {base}, "levelsPerSide": {levels}}}]}}"#
        );
        assert!(json(&text).is_ok());
        any_file::try_instruments(text.as_bytes());
    }
}

#[test]
fn toml_and_json_files_define_the_same_instruments() {
    let toml = r#"
        default_updates_per_sec = 2000
        reset_probability_ppm = 50
        [[instruments]]
        instrument_id = "BTC-USD"
        symbol = "Bitcoin"
        publish_depth = 10
        tick_size = 5
        base_price = 5_000_000
        levels_per_side = 30
        updates_per_sec = 1500
        volatility = 0.08
        [[instruments]]
        instrumentId = "AAPL"
        publishDepth = 15
        tickSize = 1
        basePrice = 19000
    "#;
    assert_eq!(Instruments::parse(toml, Notation::Toml).map_err(|error| error.to_string()), json(EXAMPLE));
    assert_eq!([Notation::of_file("a.TOML"), Notation::of_file("a")], [Notation::Toml, Notation::Json]);
}

#[test]
fn error_for_an_unknown_field_names_the_field_and_location() {
    let error = json("{\"instruments\": [{\"instrumentId\": \"X\",\n \"volatilty\": 1}]}").unwrap_err();
    assert!(error.starts_with("json parse failure: unknown field `volatilty`, expected one of"), "{error}");
    assert!(error.ends_with("at line 2 column 12"), "{error}");
    let error = Instruments::parse("resets = 1", Notation::Toml).unwrap_err().to_string();
    assert!(error.starts_with("toml parse failure: ") && error.contains("unknown field `resets`"), "{error}");
}

#[test]
fn error_for_a_missing_or_invalid_value_names_the_requirement() {
    assert_eq!(json("{}").unwrap_err(), "config must contain at least one instrument");
    assert_eq!(json(r#"{"instruments": [{}]}"#).unwrap_err(), "instrument_id cannot be empty");
    assert_eq!(refused(r#""tickSize": 0"#), "tick_size must be > 0 for X");
    assert_eq!(refused(r#""basePrice": -3"#), "base_price must be > 0 for X");
    assert_eq!(refused(r#""publishDepth": 0"#), "publish_depth must be > 0 for X");
    assert_eq!(refused(r#""updatesPerSec": -1"#), "updates_per_sec must be > 0 for X");
    assert_eq!(refused(r#""levelsPerSide": 100001"#), "levels_per_side must be <= 100000 for X, not 100001");
    assert_eq!(refused(r#""volatility": -0.1"#), "volatility must be finite and >= 0 for X");
    assert_eq!(refused(r#""volatility": "NaN""#), "volatility must be finite and >= 0 for X");
    assert!(refused(r#""volatility": 2000"#).starts_with("volatility must be <= 1000"));
    let room = refused(r#""basePrice": 10"#);
    assert!(room.starts_with("instrument X: the book reaches "), "{room}");
    assert!(room.contains(" below and above base_price 10, but its prices must be 1 to "), "{room}");
    assert!(refused(r#""tickSize": 1.5"#).starts_with("json parse failure: invalid type: floating point"));
    assert!(refused(r#""tickSize": "many""#).contains("expected a whole number"));
}

#[test]
fn duplicate_ids_and_excessive_update_rates_are_refused() {
    let instrument = |id: &str| {
        format!(r#"{{"instrumentId": "{id}", "publishDepth": 5, "tickSize": 1, "basePrice": 1000}}"#)
    };
    let all = |top: &str, ids: &[&str]| {
        let list: Vec<String> = ids.iter().map(|id| instrument(id)).collect();
        json(&format!(r#"{{{top} "instruments": [{}]}}"#, list.join(","))).unwrap_err()
    };
    assert_eq!(all("", &["A", "B", "A"]), "duplicate instrument_id: A");
    assert!(all("", &["A B"]).starts_with("instrument_id \"A B\" cannot be part of a topic's name"));
    assert_eq!(
        all(r#""resetProbabilityPpm": 1000001,"#, &["A"]),
        "reset_probability_ppm must be <= 1000000, not 1000001"
    );
    let total = all(r#""defaultUpdatesPerSec": 60000000,"#, &["A", "B"]);
    assert!(total.starts_with("updates_per_sec of all instruments must be <= 100000000"), "{total}");
    assert!(json("{").unwrap_err().starts_with("json parse failure: EOF"));
}

#[test]
fn clones_of_an_instrument_have_distinct_ids_and_prices() {
    let copies = json(EXAMPLE).unwrap().copies_of_first(3).unwrap();
    let ids: Vec<_> =
        copies.list().iter().map(|instrument| (instrument.id.as_str(), instrument.base_price)).collect();
    assert_eq!(ids, [("BTC-USD-001", 5_000_000), ("BTC-USD-002", 5_000_100), ("BTC-USD-003", 5_000_200)]);
    assert_eq!(
        json(EXAMPLE).unwrap().copies_of_first(0).unwrap_err().to_string(),
        "config must contain at least one instrument"
    );
}

//! Tests that encoded entries consist of the documented bytes, because other programs read and write them too.

use dunlin_feed::{BookEntry, EntryError, OrderEntry, Side, ValueEntry};

fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> =
        bytes.chunks(8).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    words.join(" ")
}

#[test]
fn book_entry_encoding_does_not_change() {
    let golden = [
        (
            BookEntry::Set { side: Side::Bid, price: 10_125, size: 7 },
            "0101000000000000 8d27000000000000 0700000000000000",
        ),
        (
            BookEntry::Remove { side: Side::Ask, price: -1 },
            "0202000000000000 ffffffffffffffff 0000000000000000",
        ),
        (BookEntry::Clear { side: Side::Ask }, "0302000000000000 0000000000000000 0000000000000000"),
    ];
    let mut all = Vec::new();
    for (entry, written) in golden {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(hex(&bytes), written);
        all.extend(bytes);
    }
    let read: Vec<_> = BookEntry::decode_all(&all).collect();
    assert_eq!(read, golden.map(|(entry, _)| Ok(entry)));
    let cut: Vec<_> = BookEntry::decode_all(&all[..30]).collect();
    assert_eq!(cut, [Ok(golden[0].0), Err(EntryError::TrailingBytes { bytes: 6 })]);
}

#[test]
fn order_entry_encoding_does_not_change() {
    let golden = [
        (
            OrderEntry::Add { side: Side::Ask, id: 42, price: 10_125, size: 7 },
            "0102000000000000 2a00000000000000 8d27000000000000 0700000000000000",
        ),
        (
            OrderEntry::Change { id: 42, price: 10_125, size: 3 },
            "0200000000000000 2a00000000000000 8d27000000000000 0300000000000000",
        ),
        (
            OrderEntry::Delete { id: 42 },
            "0300000000000000 2a00000000000000 0000000000000000 0000000000000000",
        ),
        (
            OrderEntry::Clear { side: Side::Bid },
            "0401000000000000 0000000000000000 0000000000000000 0000000000000000",
        ),
    ];
    let mut all = Vec::new();
    for (entry, written) in golden {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(hex(&bytes), written);
        all.extend(bytes);
    }
    let read: Vec<_> = OrderEntry::decode_all(&all).collect();
    assert_eq!(read, golden.map(|(entry, _)| Ok(entry)));
}

#[test]
fn encoding_of_keys_with_values_does_not_change() {
    let golden = [
        (ValueEntry::Set { key: b"ab", value: b"xyz" }, "0100000002000000 0300000061627879 7a"),
        (ValueEntry::Remove { key: b"ab" }, "0200000002000000 000000006162"),
        (ValueEntry::Clear, "0300000000000000 00000000"),
    ];
    let mut all = Vec::new();
    for (entry, written) in golden {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(hex(&bytes), written);
        all.extend(bytes);
    }
    let read: Vec<_> = ValueEntry::decode_all(&all).collect();
    assert_eq!(read, golden.map(|(entry, _)| Ok(entry)));
}

#[test]
fn nonzero_unused_bytes_and_unknown_codes_are_refused() {
    let book = |at: usize, byte: u8| {
        let mut bytes = Vec::new();
        BookEntry::Remove { side: Side::Bid, price: 5 }.encode(&mut bytes);
        bytes[at] = byte;
        BookEntry::decode_all(&bytes).next().unwrap().unwrap_err().to_string()
    };
    assert_eq!(book(0, 9), "operation 9 is not known");
    assert_eq!(book(1, 3), "side 3 is not known");
    assert_eq!(book(2, 1), "bytes 2 to 7 must be zero for this operation");
    assert_eq!(book(16, 1), "size must be zero for this operation");
    let order = |at: usize, byte: u8| {
        let mut bytes = Vec::new();
        OrderEntry::Delete { id: 5 }.encode(&mut bytes);
        bytes[at] = byte;
        OrderEntry::decode_all(&bytes).next().unwrap().unwrap_err().to_string()
    };
    assert_eq!(order(0, 5), "operation 5 is not known");
    assert_eq!(order(1, 1), "side, price or size must be zero for this operation");
    assert_eq!(order(0, 1), "side 0 is not known");
}

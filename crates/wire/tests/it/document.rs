//! Tests that the tables in `docs/protocol.md` agree with the code.

use std::path::Path;

use dunlin_wire::{CODES, KINDS, MAGIC, VERSION, VERSION_MIN};

fn protocol_page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md")).unwrap()
}

/// The rows of the first table after `heading`, each with its trimmed cells.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(heading).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| {
            row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
        })
        .collect()
}

#[test]
fn documentation_lists_every_error_code() {
    let expected: Vec<Vec<String>> = CODES
        .iter()
        .map(|row| {
            let number = row.code.number().to_string();
            let (retry, http) = (row.retry.to_string(), row.http.to_string());
            let cells = [&number, row.name, &retry, &http, row.grpc.name(), row.carries, row.advice];
            cells.map(str::to_owned).to_vec()
        })
        .collect();
    assert_eq!(table(&protocol_page(), "## Error codes"), expected);
}

#[test]
fn documentation_lists_every_message() {
    let page = protocol_page();
    for (heading, from_client) in [("### From the client", true), ("### From the node", false)] {
        let listed: Vec<String> =
            table(&page, heading).iter().map(|row| format!("{} {}", row[0], row[1])).collect();
        let expected: Vec<String> = KINDS
            .iter()
            .filter(|row| row.from_client == from_client)
            .map(|row| format!("{} {}", row.kind as u8, row.name))
            .collect();
        assert_eq!(listed, expected);
    }
}

#[test]
fn documentation_names_the_supported_versions() {
    let page = protocol_page();
    assert!(page.contains(&format!("This build speaks versions {VERSION_MIN} to {VERSION}.")));
    assert!(page.contains(std::str::from_utf8(&MAGIC).unwrap()));
}

#[test]
fn error_codes_are_sorted_and_map_to_their_numbers() {
    for pair in CODES.windows(2) {
        assert!(pair[0].code.number() < pair[1].code.number());
    }
    for row in CODES {
        assert_eq!(dunlin_wire::ErrorCode::from_number(row.code.number()), row.code);
    }
}

//! Tests each guarantee about the delivery of records with every listener. A table in `docs/listeners.md` shows the
//! results.
//!
//! To test a new listener, implement [`listener::Listener`] for it and add it to [`LISTENERS`]. To test a new
//! guarantee, add an entry to [`checks::PROMISES`]. A listener's implementation declares which guarantees the listener
//! does not offer. The table shows these declarations too.

mod checks;
mod grpc;
mod http;
mod listener;
mod nats;
mod rust;
mod trial;
mod ws;

use checks::{PROMISES, Promise};
use listener::Listener;
use trial::{GuaranteeTest, NodeUnderTest};

const LISTENERS: &[&dyn Listener] = &[
    &rust::InProcessNode,
    &rust::Tcp,
    &rust::UnixSocket,
    &nats::PlainSubscription,
    &nats::NumberedSubscription,
    &http::Http,
    &ws::BinaryWebSocket,
    &ws::JsonWebSocket,
    &grpc::Grpc,
];

/// Tests all guarantees with this listener. Fails with a list of the guarantees that do not hold.
fn check_guarantees(listener: &dyn Listener) {
    check_all(listener, NodeUnderTest::start);
}

/// Tests all guarantees with this listener, at a node that authenticates users. Because of the authentication, the node
/// checks the permission for each publish, and filters the records of each subscription.
fn check_guarantees_with_users(listener: &dyn Listener) {
    check_all(listener, NodeUnderTest::start_with_users);
}

fn check_all(listener: &dyn Listener, start: fn() -> anyhow::Result<NodeUnderTest>) {
    let mut broken = Vec::new();
    for promise in PROMISES.iter().filter(|promise| listener.not_offered(promise.name).is_none()) {
        let outcome = start().and_then(|node| (promise.check)(&mut GuaranteeTest { listener, node }));
        if let Err(error) = outcome {
            broken.push(format!("{} ({}): {error:#}", promise.name, promise.description));
        }
    }
    assert!(broken.is_empty(), "listener {}:\n{}", listener.name(), broken.join("\n"));
}

#[test]
fn in_process_access_keeps_every_documented_guarantee() {
    check_guarantees(&rust::InProcessNode);
}

#[test]
fn tcp_keeps_every_documented_guarantee() {
    check_guarantees(&rust::Tcp);
}

#[test]
fn unix_socket_keeps_every_documented_guarantee() {
    check_guarantees(&rust::UnixSocket);
}

#[test]
fn http_keeps_every_documented_guarantee() {
    check_guarantees(&http::Http);
}

#[test]
fn websocket_keeps_every_documented_guarantee() {
    check_guarantees(&ws::BinaryWebSocket);
}

#[test]
fn websocket_json_keeps_every_documented_guarantee() {
    check_guarantees(&ws::JsonWebSocket);
}

#[test]
fn grpc_keeps_every_documented_guarantee() {
    check_guarantees(&grpc::Grpc);
}

#[test]
fn plain_nats_subscription_keeps_every_documented_guarantee() {
    check_guarantees(&nats::PlainSubscription);
}

#[test]
fn nats_with_sequence_numbers_keeps_every_guarantee() {
    check_guarantees(&nats::NumberedSubscription);
}

#[test]
fn tcp_keeps_every_guarantee_when_permissions_are_checked() {
    check_guarantees_with_users(&rust::Tcp);
}

#[test]
fn http_keeps_every_guarantee_when_permissions_are_checked() {
    check_guarantees_with_users(&http::Http);
}

#[test]
fn websocket_keeps_every_guarantee_when_permissions_are_checked() {
    check_guarantees_with_users(&ws::BinaryWebSocket);
    check_guarantees_with_users(&ws::JsonWebSocket);
}

#[test]
fn grpc_keeps_every_guarantee_when_permissions_are_checked() {
    check_guarantees_with_users(&grpc::Grpc);
}

#[test]
fn nats_keeps_every_guarantee_when_permissions_are_checked() {
    check_guarantees_with_users(&nats::PlainSubscription);
    check_guarantees_with_users(&nats::NumberedSubscription);
}

/// Checks that the table in `docs/listeners.md` agrees with the tested guarantees. If `DUNLIN_WRITE=1` is set, writes
/// the table instead.
#[test]
fn listener_table_in_the_docs_lists_the_tested_guarantees() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/listeners.md");
    let text = std::fs::read_to_string(page).expect("docs/listeners.md");
    let (before, rest) = text.split_once(BEGIN).expect("the mark where the table begins");
    let (table, after) = rest.split_once(END).expect("the mark where the table ends");
    let fresh = format!("\n{}\n", build_table(PROMISES, LISTENERS));
    if std::env::var_os("DUNLIN_WRITE").is_some() {
        std::fs::write(page, format!("{before}{BEGIN}{fresh}{END}{after}"))
            .expect("docs/listeners.md is written");
    } else {
        let advice = "write it anew: DUNLIN_WRITE=1 cargo test -p dunlin-system-tests listener_table";
        assert!(table == fresh, "docs/listeners.md is not what is tried; {advice}");
    }
}

const BEGIN: &str =
    "<!-- promises: made by the test listener_table_in_the_docs_lists_the_tested_guarantees -->";
const END: &str = "<!-- end of promises -->";

fn build_table(promises: &[Promise], listeners: &[&dyn Listener]) -> String {
    let mut table = String::from("\n| Promise |");
    listeners.iter().for_each(|listener| table.push_str(&format!(" {} |", listener.name())));
    table.push_str("\n|---|");
    table.push_str(&"---|".repeat(listeners.len()));
    let mut notes = Vec::new();
    for promise in promises {
        table.push_str(&format!("\n| {} |", promise.description));
        for listener in listeners {
            let (mark, note) = match (listener.not_offered(promise.name), listener.remark(promise.name)) {
                (Some(reason), _) => ("–", Some(reason)),
                (None, note) => ("✓", note),
            };
            let number = note.map(|note| {
                notes.iter().position(|existing| *existing == note).unwrap_or_else(|| {
                    notes.push(note);
                    notes.len() - 1
                }) + 1
            });
            let number = number.map_or(String::new(), |number| format!(" ({number})"));
            table.push_str(&format!(" {mark}{number} |"));
        }
    }
    table.push('\n');
    for (at, note) in notes.iter().enumerate() {
        table.push_str(&format!("\n{}. {note}", at + 1));
    }
    table.push('\n');
    table
}

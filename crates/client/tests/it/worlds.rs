//! Tests of viewers of a world, and of requests to a world, while a node does not respond or has lost its keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dunlin_client::space::{
    CommandError, EntityId, Schema, SurroundingsWatch, ViewError, Viewer, WorldOwnersError,
};
use dunlin_client::state::{ControlQueryResult, FoundKey, FoundKeys, KeyItem};
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_wait::{PATIENCE, until};
use dunlin_wire::*;

use crate::peer::{Link, ScriptedNode};

/// Reads the client's messages up to its next query for keys. Returns the request number of this query; `None` if the
/// client has closed the connection.
fn next_query(link: &mut Link) -> Option<u32> {
    loop {
        let request = link.try_next(|message| match message {
            FromClient::Control(control) => Some(control.request),
            _ => None,
        })?;
        if request.is_some() {
            return request;
        }
    }
}

fn send_keys(link: &mut Link, request: u32, keys: &[(&str, &str)]) {
    let items = keys.iter().map(|(key, value)| {
        let item = KeyItem { value: value.as_bytes().into(), ..KeyItem::default() };
        FoundKey { key: key.as_bytes().into(), item }
    });
    let found = FoundKeys { items: items.collect(), more: false };
    let mut answer = Vec::new();
    ControlQueryResult::Found { revision: 1, found }.encode(&mut answer);
    link.send(FromNode::ControlResult(ControlResult { request, bytes: U32PrefixedBytes(&answer) }));
}

fn watch(client: &Client) -> Viewer<3> {
    let mut watched = None;
    until("the node answers in time", || {
        let watch = SurroundingsWatch::around(EntityId(1), 5.0);
        watched = client.world("flock").watch::<3>(watch, Schema::default()).ok();
        watched.is_some()
    });
    watched.unwrap()
}

/// Calls the viewer until the node has reported two messages. The viewer must return no change.
fn drive_until_two(what: &str, viewer: &mut Viewer<3>, messages: &mpsc::Receiver<()>) {
    let mut count = 0;
    until(what, || {
        assert!(viewer.try_next().unwrap().is_none());
        count += messages.try_iter().count();
        count >= 2
    });
}

fn options(answer_ms_max: u64) -> ClientOptions {
    let limits = ClientLimits { answer_ms_max, ..ClientLimits::default() };
    ClientOptions { limits, ..ClientOptions::default() }
}

#[test]
fn viewer_repeats_an_unanswered_query_for_world_processes() {
    let options = options(300);
    let is_silent = Arc::new(AtomicBool::new(false));
    let (node_is_silent, (sender, unanswered)) = (Arc::clone(&is_silent), mpsc::channel());
    let (client, node) = ScriptedNode::serve_with(options, move |_, mut link| {
        while let Some(request) = next_query(&mut link) {
            if node_is_silent.load(Ordering::Acquire) {
                // An error only means that the test has ended.
                let _ = sender.send(());
                continue;
            }
            send_keys(&mut link, request, &[("space/flock/world", "{}")]);
        }
    });
    let mut viewer = watch(&client);
    is_silent.store(true, Ordering::Release);
    drive_until_two("the viewer reads the processes again", &mut viewer, &unanswered);
    drop((viewer, client));
    node.join().unwrap();
}

#[test]
fn viewer_survives_a_node_that_lost_the_keys_of_the_world() {
    let has_world = Arc::new(AtomicBool::new(true));
    let (node_has_world, (sender, missing)) = (Arc::clone(&has_world), mpsc::channel());
    let (client, node) = ScriptedNode::serve(move |_, mut link| {
        while let Some(request) = next_query(&mut link) {
            if node_has_world.load(Ordering::Acquire) {
                send_keys(&mut link, request, &[("space/flock/world", "{}")]);
            } else {
                send_keys(&mut link, request, &[]);
                // An error only means that the test has ended.
                let _ = sender.send(());
            }
        }
    });
    let mut viewer = watch(&client);
    has_world.store(false, Ordering::Release);
    drive_until_two("the viewer reads the processes again after it found no world", &mut viewer, &missing);
    let unknown =
        client.world("flock").watch::<3>(SurroundingsWatch::around(EntityId(1), 5.0), Schema::default());
    assert!(matches!(unknown, Err(ViewError::WorldOwners(WorldOwnersError::NoWorld(_)))));
    drop((viewer, client));
    node.join().unwrap();
}

#[test]
fn viewer_repeats_an_unanswered_subscribe_request() {
    let options = options(300);
    let process = ScriptedNode::new();
    let described = format!(r#"{{"url":"{}"}}"#, process.url());
    let (sender, unanswered) = mpsc::channel();
    let process_node = thread::spawn(move || {
        let mut link = process.accept();
        let is_subscribe = |message: FromClient<'_>| matches!(message, FromClient::Subscribe(_));
        while let Some(is_subscribe) = link.try_next(is_subscribe) {
            if is_subscribe {
                // An error only means that the test has ended.
                let _ = sender.send(());
            }
        }
    });
    let (client, node) = ScriptedNode::serve_with(options, move |_, mut link| {
        while let Some(request) = next_query(&mut link) {
            let keys = [("space/flock/process/1", described.as_str()), ("space/flock/world", "{}")];
            send_keys(&mut link, request, &keys);
        }
    });
    let mut viewer = watch(&client);
    drive_until_two("the viewer opens its subscriber again", &mut viewer, &unanswered);
    assert_eq!(viewer.processes(), 0);
    drop((viewer, client));
    process_node.join().unwrap();
    node.join().unwrap();
}

/// The request must not wait for the client's general time limit for responses, which is so long that the test would
/// fail.
#[test]
fn timeout_of_a_request_includes_reading_the_process_list() {
    let options = options(10 * PATIENCE.as_millis() as u64);
    let (client, node) = ScriptedNode::serve_with(options, |_, link| link.wait_until_closed());
    let despawned = client.world("flock").despawn(EntityId(1), Duration::from_millis(1));
    assert!(matches!(despawned, Err(CommandError::WorldOwners(WorldOwnersError::Kv(_)))), "{despawned:?}");
    drop(client);
    node.join().unwrap();
}

//! Viewers of a world whose node does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use dunlin_client::space::{EntityId, Schema, SurroundingsWatch};
use dunlin_client::state::{ControlQueryResult, FoundKeys, KeyItem, KeyWithItem};
use dunlin_client::{ClientLimits, ClientOptions};
use dunlin_wait::until;
use dunlin_wire::*;

use crate::peer::ScriptedNode;

#[test]
fn viewer_repeats_an_unanswered_query_for_world_processes() {
    let limits = ClientLimits { answer_ms_max: 300, ..ClientLimits::default() };
    let is_silent = Arc::new(AtomicBool::new(false));
    let (node_is_silent, (sender, unanswered)) = (Arc::clone(&is_silent), mpsc::channel());
    let options = ClientOptions { limits, ..ClientOptions::default() };
    let (client, node) = ScriptedNode::serve_with(options, move |_, mut link| {
        while let Some(request) = link.try_next(|message| match message {
            FromClient::Control(control) => Some(control.request),
            _ => None,
        }) {
            let Some(request) = request else { continue };
            if node_is_silent.load(Ordering::Acquire) {
                // The send fails if the test has ended.
                let _ = sender.send(());
                continue;
            }
            let item = KeyItem { value: b"{}"[..].into(), ..KeyItem::default() };
            let world = KeyWithItem { key: b"space/flock/world"[..].into(), item };
            let found = FoundKeys { items: vec![world], more: false };
            let mut answer = Vec::new();
            ControlQueryResult::Found { revision: 1, found }.encode(&mut answer);
            link.send(FromNode::ControlResult(ControlResult { request, bytes: U32PrefixedBytes(&answer) }));
        }
    });
    let mut watched = None;
    until("the node answers in time", || {
        let watch = SurroundingsWatch::around(EntityId(1), 5.0);
        watched = client.world("flock").watch::<3>(watch, Schema::default()).ok();
        watched.is_some()
    });
    let mut viewer = watched.unwrap();
    is_silent.store(true, Ordering::Release);
    let mut count = 0;
    until("the viewer reads the processes again", || {
        assert!(viewer.try_next().unwrap().is_none());
        count += unanswered.try_iter().count();
        count >= 2
    });
    drop((viewer, client));
    node.join().unwrap();
}

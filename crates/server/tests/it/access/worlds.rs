//! Tests permissions for worlds: a user may watch a world's entities without the permission to command them, or to
//! change the world's keys.

use dunlin::space::{RegionId, WorldRefusal, WorldRequest, WorldResponse};
use dunlin_client::ErrorCode;
use dunlin_client::space::{
    CommandError, Entity, EntityCommand, EntityId, Schema, SurroundingsWatch, ViewError,
};
use serde_json::json;

use super::{Guarded, PATIENCE};
use crate::serve_node;
use crate::sights::RegionProcess;

const USERS: &str = "[users.root]\npassword = \"HASH\"\nkeys = [\"*\"]\n\
                     [users.ana]\npassword = \"HASH\"\nkeys_read = [\"space/*\"]\npublish = [\"space.*.process.*.watch\"]\n\
                     [users.pilot]\npassword = \"HASH\"\nkeys_read = [\"space/*\"]\npublish = [\"space.*.process.*.command\"]\n\
                     [users.maker]\npassword = \"HASH\"\nkeys_read = [\"space/*\"]\npublish = [\"space.*.process.*.spawn\"]\n";

/// The node with the world's keys accepts the viewer's user. The node of the world's process has other users, and
/// refuses the viewer.
#[test]
fn viewer_reports_that_a_world_process_refused_the_login() {
    let (keys, other) = (Guarded::new(USERS), Guarded::new("[users.root]\npassword = \"HASH\"\n"));
    let kv = keys.by_password("root").kv();
    let place = json!({"url": format!("dunlin://{}", other.server.tcp_addresses()[0])});
    kv.put("space/seen/process/1", place.to_string()).unwrap();
    kv.put("space/seen/region/1", json!({"process": 1, "epoch": 1}).to_string()).unwrap();
    let watch = SurroundingsWatch::around(EntityId(0), 5.0);
    let mut viewer = keys.by_password("ana").world("seen").watch::<3>(watch, Schema::default()).unwrap();
    let refused = viewer.next_timeout(PATIENCE).unwrap_err();
    assert!(matches!(&refused, ViewError::Refused(why) if why.contains("UNAUTHENTICATED")), "{refused}");
}

#[test]
fn permission_to_watch_a_world_does_not_allow_commands() {
    let guarded = Guarded::new(USERS);
    let server = serve_node(&guarded.node, |_| ());
    let process = RegionProcess::start(1, &[], guarded.node.clone(), server);
    let kv = guarded.by_password("root").kv();
    let url = format!("dunlin://{}", guarded.server.tcp_addresses()[0]);
    let place = json!({"address": process.space.address(), "url": url});
    kv.put("space/seen/process/1", place.to_string()).unwrap();
    kv.put("space/seen/region/1", json!({"process": 1, "epoch": 1}).to_string()).unwrap();
    kv.put("space-secret/seen", [1_u8; 32]).unwrap();
    let ana_kv = guarded.by_password("ana").kv();
    let paused = ana_kv.put("space/seen/hold/0", "1").unwrap_err();
    let secret = ana_kv.get("space-secret/seen").unwrap_err();
    assert_eq!([paused.code(), secret.code()], [Some(ErrorCode::Forbidden); 2]);

    let (ana, pilot) = (guarded.by_password("ana").world("seen"), guarded.by_password("pilot").world("seen"));
    let command = EntityCommand { kind: Some(5), ..EntityCommand::<3>::of(EntityId(0)) };
    let watch = SurroundingsWatch::around(EntityId(0), 5.0);
    let commands = |mut world: dunlin_client::space::World| world.command(&command, PATIENCE);
    let mut seeing = ana.watch::<3>(watch, Schema::default()).unwrap();
    assert!(seeing.next_timeout(PATIENCE).unwrap().is_some());
    assert!(matches!(commands(ana), Err(CommandError::Refused(why)) if why.contains("no permission")));

    let mut blind = pilot.watch::<3>(watch, Schema::default()).unwrap();
    let refused = blind.next_timeout(PATIENCE).unwrap_err();
    assert!(matches!(&refused, ViewError::Refused(why) if why.contains("no permission")), "{refused}");
    assert_eq!(commands(pilot).unwrap().region, RegionId(1));

    let [mut pilot, mut maker] = ["pilot", "maker"].map(|user| guarded.by_password(user).world("seen"));
    let new = Entity::at(4_000, [10.0; 3]);
    for refused in [pilot.spawn(&new, PATIENCE), pilot.despawn(EntityId(3), PATIENCE)] {
        assert!(
            matches!(&refused, Err(CommandError::Refused(why)) if why.contains("no permission")),
            "{refused:?}"
        );
    }
    let mut bytes = Vec::new();
    WorldRequest::Spawn(new).encode(&mut bytes);
    let mut requester = guarded.by_password("maker").requester();
    let reply = requester.request("space.seen.process.1.spawn", &bytes[..], PATIENCE).unwrap();
    let response = WorldResponse::decode(&reply.payload).unwrap();
    assert!(
        matches!(response, WorldResponse::Refused { why: WorldRefusal::NoOwner, text } if text.starts_with(
            "no owner responds for region 2"
        )),
        "{response:?}"
    );
    assert_eq!(maker.despawn(EntityId(0), PATIENCE).unwrap().region, RegionId(1));
    assert!(matches!(commands(maker), Err(CommandError::Refused(why)) if why.contains("no permission")));
}

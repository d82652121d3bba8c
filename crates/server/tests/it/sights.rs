//! Tests viewers and commands of a world whose processes and keys are at several nodes. The test triggers each tick, so
//! that all results are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use dunlin::space::behaviour::Oscillation;
use dunlin::space::{
    Entity, Host, Partition, RegionAuthority, RegionId, RegionSetup, WorldBox as Box3, WorldRequest,
    WorldResponse,
};
use dunlin::topic::{Draft, Payload, Publish, RecordMeta, TopicConfig};
use dunlin::{Config, Node, Request};
use dunlin_client::space::{
    CommandError, EntityCommand, EntityId, SceneChange, Schema, SurroundingsWatch, ViewError, Viewer,
    VisibilityRule, World,
};
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_server::Server;
use dunlin_server::space::{
    Secret, Space, SpaceConfig, SpaceEndpoint, SpaceLimits, TickPace, WorldPeer, command_subject,
    spawn_subject,
};
use dunlin_wait::{PATIENCE, until};
use serde_json::json;

use crate::clients::connect;
use crate::{serve, serve_node};

const NAME: &str = "seen";
const REGIONS: [RegionId; 2] = [RegionId(1), RegionId(2)];
const ENTITIES: u64 = 1_500;
const RADIUS: f32 = 12.0;
const CENTER: EntityId = EntityId(0);
/// Entities of this kind are hidden from viewers.
const HIDDEN: u32 = 2;

type Steps = Space<3, Oscillation>;

/// A process that runs one of the world's two regions, with an endpoint for clients.
pub struct RegionProcess {
    _endpoint: SpaceEndpoint,
    pub space: Arc<Steps>,
    pub server: Server,
    _node: Node,
}

impl RegionProcess {
    pub fn start(number: u32, others: &[WorldPeer], node: Node, server: Server) -> RegionProcess {
        let mut setup = RegionSetup::new(RegionId(0), Box3::cube(100.0).unwrap(), RADIUS);
        setup.sort_every = 7;
        let oscillate = Oscillation { low: 0.0, high: 100.0 };
        let mut host = Host::new(setup, oscillate, Partition::even(3, &REGIONS), None);
        host.begin(RegionId(number), RegionAuthority { epoch: 1, until_ns: u64::MAX }).unwrap();
        (0..ENTITIES).map(entity).for_each(|one| {
            if host.owner_of(&one.position) == RegionId(number) {
                host.spawn(&one).unwrap();
            }
        });
        let config = SpaceConfig {
            world: NAME.to_owned(),
            process: number.into(),
            listen: ([127, 0, 0, 1], 0).into(),
            peers: others.to_vec(),
            pace: TickPace::Hold,
            lockstep: true,
            balance: None,
            insecure: false,
            secret: Secret::of([1; 32]),
            limits: SpaceLimits::default(),
        };
        let space = Arc::new(Space::start(config, host).unwrap());
        let allowed = VisibilityRule::Where(|id, _| id.0 % 7 != 3);
        let endpoint = SpaceEndpoint::open(&node, &space, (NAME, number.into()), allowed).unwrap();
        RegionProcess { _endpoint: endpoint, space, server, _node: node }
    }

    fn url(&self) -> String {
        format!("dunlin://{}", self.server.tcp_addresses()[0])
    }
}

fn entity(nth: u64) -> Entity<'static, 3> {
    let along = |axis: u64| ((nth + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 100.07;
    let fast = |axis: u64| along(axis + 5) - 50.0;
    let at = if nth == CENTER.0 { [10.0; 3] } else { [along(0), along(1), along(2)] };
    Entity { kind: (nth % 3) as u32, velocity: [fast(0), fast(1), fast(2)], ..Entity::at(nth, at) }
}

/// The world's two processes, and the node with the world's keys.
struct ViewerTest {
    keys: (Node, Server),
    processes: Vec<RegionProcess>,
}

impl ViewerTest {
    fn new() -> ViewerTest {
        let keys = serve();
        let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        let start = |number, other| {
            let node = Node::start(Config::default()).unwrap();
            let server = serve_node(&node, |_| ());
            RegionProcess::start(number, &[other], node, server)
        };
        let first = start(1, WorldPeer { process: 2, address: anywhere });
        let second = start(2, WorldPeer { process: 1, address: first.space.address() });
        let fixture = ViewerTest { keys, processes: vec![first, second] };
        let kv = connect(&fixture.keys.1).kv();
        for (number, process) in (1..).zip(&fixture.processes) {
            let place = json!({"address": process.space.address(), "url": process.url()});
            kv.put(format!("space/{NAME}/process/{number}"), place.to_string()).unwrap();
            kv.put(
                format!("space/{NAME}/region/{number}"),
                json!({"process": number, "epoch": 1}).to_string(),
            )
            .unwrap();
            kv.put(format!("space/{NAME}/began/{number}"), "1").unwrap();
        }
        fixture
    }

    fn world(&self) -> World {
        connect(&self.keys.1).world(NAME)
    }

    fn tick(&self) {
        for process in &self.processes {
            process.space.submit(|runner| runner.set_pace(TickPace::FlatOut, Some(1))).unwrap();
        }
        let busy = |process: &RegionProcess| process.space.call(|runner| runner.is_busy()).unwrap();
        until("both have made a tick", || !self.processes.iter().any(busy));
    }

    /// Reads the position, kind and region of each entity from the processes.
    fn all_entities(&self) -> BTreeMap<EntityId, ([f32; 3], u32, RegionId)> {
        let of = |process: &RegionProcess| {
            let read_entities = |runner: &mut dunlin_server::space::WorldRunner<3, Oscillation>| {
                let each = runner.host().regions().flat_map(|(id, region)| {
                    let store = region.store();
                    let row =
                        move |row: usize| (store.ids()[row], (store.position(row), store.kinds()[row], id));
                    (0..store.len()).map(row)
                });
                each.collect::<Vec<_>>()
            };
            process.space.call(read_entities).unwrap()
        };
        let all: Vec<_> = self.processes.iter().flat_map(of).collect();
        assert_eq!(all.len(), ENTITIES as usize, "nobody is lost or doubled");
        all.into_iter().collect()
    }
}

/// Computes from all entities which of them a viewer must see.
fn visible_entities(all: &BTreeMap<EntityId, ([f32; 3], u32, RegionId)>) -> BTreeMap<EntityId, [f32; 3]> {
    let center = all[&CENTER].0;
    let near = |at: &[f32; 3]| {
        let sum: f32 = (0..3).map(|axis| (at[axis] - center[axis]).powi(2)).sum();
        sum <= RADIUS * RADIUS
    };
    let shown = all.iter().filter(|(id, (at, kind, _))| id.0 % 7 != 3 && *kind != HIDDEN && near(at));
    shown.map(|(id, (at, ..))| (*id, *at)).collect()
}

/// Connects a client whose time limits are longer than any test.
fn client_that_waits(server: &Server) -> Client {
    let wait_ms = 10 * PATIENCE.as_millis() as u64;
    let limits = ClientLimits { connect_ms_max: wait_ms, answer_ms_max: wait_ms, ..ClientLimits::default() };
    let options = ClientOptions { limits, ..ClientOptions::default() };
    Client::connect(&format!("dunlin://{}", server.tcp_addresses()[0]), options).unwrap()
}

/// Makes a tick, and reads until the viewer has received its result.
fn tick_and_follow(fixture: &ViewerTest, viewer: &mut Viewer<3>) {
    fixture.tick();
    let position = fixture.all_entities()[&CENTER].0;
    until("the viewer sees the new position", || {
        while viewer.try_next().unwrap().is_some() {}
        viewer.visible().get(&CENTER).is_some_and(|center| center.position == position)
    });
}

/// Reads all updates that the viewer has received. Keeps `known` up to date, and checks that no hidden entity is among
/// them.
fn follow(viewer: &mut Viewer<3>, known: &mut BTreeSet<EntityId>) {
    while let Some(change) = viewer.try_next().unwrap() {
        let (is_right, id) = match change {
            SceneChange::Entered(id) => (known.insert(id), id),
            SceneChange::Moved(id) => (known.contains(&id), id),
            SceneChange::Left(id) => (known.remove(&id), id),
        };
        assert!(is_right, "{change:?}");
        assert!(id.0 % 3 != u64::from(HIDDEN) && id.0 % 7 != 3, "{id} is hidden");
    }
}

#[test]
fn viewer_sees_neighbours_of_an_entity_that_crosses_regions() {
    let fixture = ViewerTest::new();
    let mut world = fixture.world();
    let fly = EntityCommand { velocity: Some([170.0, 190.0, 180.0]), ..EntityCommand::<3>::of(CENTER) };
    let commanded = world.command(&fly, PATIENCE).unwrap();
    assert_eq!((commanded.process, commanded.region), (1, RegionId(1)));
    let watch = SurroundingsWatch {
        rule: VisibilityRule::NotOfKind(HIDDEN),
        ..SurroundingsWatch::around(CENTER, RADIUS)
    };
    let mut viewer = world.watch::<3>(watch, Schema::default()).unwrap();
    let (mut known, mut homes, mut received) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    for tick in 1..=70 {
        fixture.tick();
        let all = fixture.all_entities();
        let shown = visible_entities(&all);
        homes.push(all[&CENTER].2);
        received.extend(shown.keys().copied());
        until(format!("what is in sight after tick {tick} is seen: {shown:?}"), || {
            follow(&mut viewer, &mut known);
            let now = viewer.visible().iter().map(|(id, one)| (*id, one.position));
            now.collect::<BTreeMap<_, _>>() == shown
        });
        assert!(known.iter().eq(shown.keys()));
    }
    homes.dedup();
    assert!(homes.len() >= 3, "it changes hands: {homes:?}");
    assert!(received.len() > 20, "it sees somebody: {received:?}");
    // When the viewer is dropped, the processes must forget it.
    drop(viewer);
    let watched = |process: &RegionProcess| process.space.call(|runner| runner.host().viewers()).unwrap();
    until("nobody watches", || fixture.processes.iter().map(watched).sum::<usize>() == 0);
}

/// Waits until a command's error says that the entity may be in this region, and in no other one. A command ends with
/// another error if the node is too slow for its timeout.
fn until_region_is_missing(world: &mut World, id: EntityId, region: RegionId) {
    let command = EntityCommand { kind: Some(1), ..EntityCommand::<3>::of(id) };
    until("the region is named", || {
        let refused = world.command(&command, Duration::from_millis(300)).unwrap_err();
        assert!(!matches!(refused, CommandError::Unknown(_)), "{refused}");
        let is_named = refused == CommandError::NoOwner { id, regions: vec![region] };
        is_named && refused.to_string().contains(&format!("it may be in region {}, whose owner", region.0))
    });
}

/// The first owner of the region has ended, but its lease has not, so the keys still name this owner.
#[test]
fn command_and_spawn_wait_for_a_region_whose_owner_has_ended() {
    let mut fixture = ViewerTest::new();
    let all = fixture.all_entities();
    let (id, (position, ..)) = all.into_iter().find(|(_, (.., home))| *home == RegionId(2)).unwrap();
    drop(fixture.processes.pop());
    until_region_is_missing(&mut fixture.world(), id, RegionId(2));
    let new = Entity::at(ENTITIES, position);
    until("the spawn names the region", || {
        let refused = fixture.world().spawn(&new, Duration::from_millis(300)).unwrap_err();
        refused == CommandError::NoPlace { id: EntityId(ENTITIES), regions: vec![RegionId(2)] }
    });
    let mut world = fixture.world();
    let commanded = thread::spawn(move || {
        world.command(&EntityCommand { kind: Some(1), ..EntityCommand::<3>::of(id) }, PATIENCE)
    });
    let node = Node::start(Config::default()).unwrap();
    let server = serve_node(&node, |_| ());
    let first = WorldPeer { process: 1, address: fixture.processes[0].space.address() };
    fixture.processes.push(RegionProcess::start(2, &[first], node, server));
    let place = json!({"address": fixture.processes[1].space.address(), "url": fixture.processes[1].url()});
    connect(&fixture.keys.1).kv().put(format!("space/{NAME}/process/2"), place.to_string()).unwrap();
    assert_eq!(commanded.join().unwrap().unwrap().region, RegionId(2));
}

#[test]
fn command_reaches_its_entity_in_any_region_or_is_refused() {
    let fixture = ViewerTest::new();
    let mut world = fixture.world();
    fixture.tick();
    let all = fixture.all_entities();
    for region in REGIONS {
        let (id, _) = all.iter().find(|(_, (.., home))| *home == region).unwrap();
        let command = EntityCommand { kind: Some(77), ..EntityCommand::<3>::of(*id) };
        assert_eq!(world.command(&command, PATIENCE).unwrap().region, region);
        assert_eq!(fixture.all_entities()[id].1, 77);
    }
    // This command moves the entity into the other process's region.
    let away = EntityCommand {
        position: Some([90.0; 3]),
        velocity: Some([0.0; 3]),
        ..EntityCommand::<3>::of(CENTER)
    };
    world.command(&away, PATIENCE).unwrap();
    fixture.tick();
    assert_eq!(fixture.all_entities()[&CENTER], ([90.0; 3], 77, RegionId(2)));

    let of = |position| EntityCommand { position: Some(position), ..EntityCommand::<3>::of(CENTER) };
    let refused = world.command(&of([900.0; 3]), PATIENCE).unwrap_err();
    assert!(
        matches!(&refused, CommandError::Invalid(why) if why.contains("outside of the world")),
        "{refused}"
    );
    let refused = world.command(&of([f32::NAN; 3]), PATIENCE).unwrap_err();
    assert!(matches!(&refused, CommandError::Invalid(why) if why.contains("not finite")), "{refused}");
    let missing_entity = EntityCommand { kind: Some(1), ..EntityCommand::<3>::of(EntityId(ENTITIES)) };
    assert_eq!(
        world.command(&missing_entity, PATIENCE).unwrap_err(),
        CommandError::Unknown(EntityId(ENTITIES))
    );
    let flat = EntityCommand { kind: Some(1), ..EntityCommand::<2>::of(CENTER) };
    assert!(matches!(world.command(&flat, PATIENCE).unwrap_err(), CommandError::Invalid(_)));

    // Region 3 has begun, but has no owner. The entity may be in this region, so the command must be refused.
    connect(&fixture.keys.1).kv().put(format!("space/{NAME}/began/3"), "1").unwrap();
    until_region_is_missing(&mut world, EntityId(ENTITIES), RegionId(3));
    // The owner in the key has claimed the region, but does not run it yet.
    let owner = json!({"process": 1, "epoch": 2}).to_string();
    connect(&fixture.keys.1).kv().put(format!("space/{NAME}/region/3"), owner).unwrap();
    until_region_is_missing(&mut world, EntityId(ENTITIES), RegionId(3));

    // If the lease of a region's owner has ended, the owner must not change entities.
    let ends = |runner: &mut dunlin_server::space::WorldRunner<3, Oscillation>| {
        runner.host_mut().set_authority(RegionId(2), None);
    };
    fixture.processes[1].space.call(ends).unwrap();
    until("the owner says that it has no lease", || {
        let refused = world.command(&of([80.0; 3]), Duration::from_millis(300)).unwrap_err();
        matches!(&refused, CommandError::Busy(_, why) if why.contains("no lease"))
    });
    assert_eq!(fixture.all_entities()[&CENTER].0, [90.0; 3]);
    assert!(connect(&fixture.keys.1).world("nowhere").command(&flat, PATIENCE).is_err());
}

/// Here, region 3 has no owner, so the client repeats its request until the timeout.
#[test]
fn client_retries_less_often_while_a_region_has_no_owner() {
    let fixture = ViewerTest::new();
    let kv = connect(&fixture.keys.1).kv();
    kv.put(format!("space/{NAME}/began/3"), "1").unwrap();
    let node = Node::start(Config::default()).unwrap();
    let server = serve_node(&node, |_| ());
    let subject = command_subject(NAME, 0);
    node.create_topic(&subject, TopicConfig::default(), true).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let respond = move |mut request: Request<'_, '_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::new();
        WorldResponse::Absent { regions: Vec::new() }.encode(&mut bytes);
        // Fails if the client has ended.
        let _ = request.reply(&bytes[..]);
    };
    let _responder = node.respond(&subject, respond).unwrap();
    let place = json!({"url": format!("dunlin://{}", server.tcp_addresses()[0])});
    kv.put(format!("space/{NAME}/process/0"), place.to_string()).unwrap();
    let command = EntityCommand { kind: Some(1), ..EntityCommand::<3>::of(EntityId(ENTITIES)) };
    let mut world = fixture.world();
    until("the process receives requests", || {
        count.store(0, Ordering::Relaxed);
        let refused = world.command(&command, Duration::from_secs(1)).unwrap_err();
        assert!(!matches!(refused, CommandError::Unknown(_)), "{refused}");
        count.load(Ordering::Relaxed) > 0
    });
    let requests = count.load(Ordering::Relaxed);
    assert!(requests < 25, "{requests} requests, instead of one each 20 ms");
}

/// The client's first request gets no response, but may have spawned the entity. A later refusal therefore does not
/// tell whether the entity was spawned.
#[test]
fn spawn_outcome_is_unknown_if_one_process_does_not_respond() {
    let fixture = ViewerTest::new();
    let node = Node::start(Config::default()).unwrap();
    let server = serve_node(&node, |_| ());
    let subject = spawn_subject(NAME, 0);
    node.create_topic(&subject, TopicConfig::default(), true).unwrap();
    let _silent = node.respond(&subject, |_| ()).unwrap();
    let refused = fixture.world().spawn(&entity(1), PATIENCE).unwrap_err();
    assert!(matches!(&refused, CommandError::Invalid(why) if why.contains("already")), "{refused}");
    let place = json!({"url": format!("dunlin://{}", server.tcp_addresses()[0])});
    connect(&fixture.keys.1).kv().put(format!("space/{NAME}/process/0"), place.to_string()).unwrap();
    let lost = fixture.world().spawn(&entity(1), PATIENCE).unwrap_err();
    assert!(matches!(lost, CommandError::Lost(_)), "{lost}");
}

#[test]
fn viewer_of_a_paused_world_sees_moved_and_spawned_entities() {
    let fixture = ViewerTest::new();
    let mut world = fixture.world();
    let watch = SurroundingsWatch::around(CENTER, RADIUS);
    let mut viewer = world.watch::<3>(watch, Schema::default()).unwrap();
    tick_and_follow(&fixture, &mut viewer);
    let mut until_seen = |what: &str, is_seen: &dyn Fn(&Viewer<3>) -> bool| {
        until(what, || {
            while viewer.try_next().unwrap().is_some() {}
            is_seen(&viewer)
        });
    };
    let (moved, spawned) = ([12.0; 3], EntityId(ENTITIES));
    let command = EntityCommand { position: Some(moved), ..EntityCommand::<3>::of(CENTER) };
    world.command(&command, PATIENCE).unwrap();
    until_seen("the command is seen", &|viewer| {
        viewer.visible().get(&CENTER).is_some_and(|center| center.position == moved)
    });
    world.spawn(&Entity::at(spawned.0, [13.0; 3]), PATIENCE).unwrap();
    until_seen("the spawn is seen", &|viewer| viewer.visible().contains_key(&spawned));
    world.despawn(spawned, PATIENCE).unwrap();
    until_seen("the removal is seen", &|viewer| !viewer.visible().contains_key(&spawned));
}

#[test]
fn silent_process_does_not_delay_a_viewer() {
    let fixture = ViewerTest::new();
    // A process with this address accepts connections, but never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let place = json!({"address": address, "url": format!("dunlin://{address}")});
    connect(&fixture.keys.1).kv().put(format!("space/{NAME}/process/0"), place.to_string()).unwrap();
    let world = client_that_waits(&fixture.keys.1).world(NAME);
    let (sender, watched) = mpsc::channel();
    thread::spawn(move || {
        let watch = SurroundingsWatch::around(CENTER, RADIUS);
        let _ = sender.send(world.watch::<3>(watch, Schema::default()).unwrap());
    });
    let mut viewer = watched.recv_timeout(PATIENCE).expect("the viewer does not wait for the silent process");
    tick_and_follow(&fixture, &mut viewer);
    until("both other processes have accepted the viewer", || {
        while viewer.try_next().unwrap().is_some() {}
        viewer.processes() == 2
    });
}

#[test]
fn world_viewer_continues_while_its_node_is_down() {
    let mut fixture = ViewerTest::new();
    let client = client_that_waits(&fixture.keys.1);
    let watch = SurroundingsWatch::around(CENTER, RADIUS);
    let mut viewer = client.world(NAME).watch::<3>(watch, Schema::default()).unwrap();
    tick_and_follow(&fixture, &mut viewer);
    drop(std::mem::replace(&mut fixture.keys, serve()));
    let (sender, continued) = mpsc::channel();
    thread::spawn(move || {
        // When the client has noticed that its node is gone, the viewer has already made another attempt to read the
        // list of processes.
        until("the node's end is noticed", || {
            viewer.next_timeout(Duration::from_millis(1)).unwrap();
            !client.is_up()
        });
        let _ = sender.send(viewer);
    });
    let mut viewer = continued.recv_timeout(PATIENCE).expect("the viewer does not wait for its node");
    tick_and_follow(&fixture, &mut viewer);
}

#[test]
fn viewer_with_an_invalid_radius_is_refused() {
    let fixture = ViewerTest::new();
    for radius in [RADIUS + 1.0, -1.0, f32::NAN] {
        let mut viewer =
            fixture.world().watch::<3>(SurroundingsWatch::around(CENTER, radius), Schema::default()).unwrap();
        let refused = loop {
            match viewer.next_timeout(PATIENCE) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("nothing is said"),
                Err(refused) => break refused,
            }
        };
        assert!(
            matches!(&refused, ViewError::Invalid(why) if why.contains("the radius of a viewer is")),
            "{refused}"
        );
    }
}

/// The client chooses the subject for the response. If the process published to any subject, the client could use
/// permissions of the process that it lacks itself.
#[test]
fn world_process_responds_only_to_inboxes() {
    let node = Node::start(Config::default()).unwrap();
    let server = serve_node(&node, |_| ());
    let process = RegionProcess::start(1, &[], node.clone(), server);
    let orders = node.create_topic("orders", TopicConfig::default(), true).unwrap();
    let has_center = || {
        let find = |runner: &mut dunlin_server::space::WorldRunner<3, Oscillation>| {
            runner.host().regions().any(|(_, region)| region.store().row(CENTER).is_some())
        };
        process.space.call(find).unwrap()
    };
    assert!(has_center());
    let mut despawn = Vec::new();
    WorldRequest::<3>::Despawn(CENTER).encode(&mut despawn);
    let mut requests = node.publisher(&spawn_subject(NAME, 1)).unwrap();
    for payload in [&b"no request"[..], &despawn] {
        let meta = RecordMeta { reply: Some("orders"), ..RecordMeta::default() };
        requests.publish(Draft { meta, payload: Payload::Copied(payload) }).unwrap();
    }
    until("the entity is gone", || !has_center());
    assert_eq!(orders.logs()[0].last().seq, 0);
}

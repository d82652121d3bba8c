//! Tests connections between processes, with valid peers and with strangers.

use std::time::{Duration, Instant};

use super::*;
use crate::space::hello::WorldIdentity;

const REGION: RegionId = RegionId(7);
const EPOCH: u64 = 3;

fn links(process: u64, regions: Vec<(RegionId, u64)>) -> ProcessLinks {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let world = WorldIdentity { name: "flock".to_owned(), setup: 5 };
    let secret = Secret::of([1; 32]);
    ProcessLinks::new(listener, RunnerHello { process, world, regions }, secret, SpaceLimits::default())
}

/// Does the work that a runner does for its connections between two ticks.
fn poll_links(links: &mut ProcessLinks) {
    links.dial(0);
    links.accept(0);
    links.flush();
    let keys: Vec<LinkId> = links.all().map(|(key, _)| key).collect();
    for key in keys {
        links.writable(key);
        links.fill(key);
        let Some(link) = links.get(key) else { continue };
        let mut buffer = link.connection.take_read_buffer();
        while let Ok(Some((frame, taken))) = SpaceFrame::decode(buffer.unread(), 1 << 20) {
            let process = links.get(key).and_then(|link| link.process);
            match (frame, process) {
                (SpaceFrame::Hello(hello), None) => links.handle_hello(key, hello).unwrap(),
                (SpaceFrame::Proof(proof), None) => links.handle_proof(key, proof).unwrap(),
                (SpaceFrame::Region { region, epoch }, Some(process)) => {
                    links.add_route(region, process, epoch)
                }
                (SpaceFrame::RegionEnded(region), Some(process)) => links.remove_route(region, process),
                (frame, _) => panic!("{frame:?}"),
            }
            buffer.consume(taken);
        }
        links.get(key).unwrap().connection.return_read_buffer(buffer);
    }
}

/// Two processes that have begun to connect. The process with the lower number has accepted the connection, and neither
/// has read the other's hello.
fn half_connected(regions: Vec<(RegionId, u64)>) -> (ProcessLinks, ProcessLinks) {
    let (mut lower, mut higher) = (links(1, regions), links(2, Vec::new()));
    higher.add_peer(WorldPeer { process: 1, address: lower.listener.local_addr().unwrap() }, 0);
    higher.dial(0);
    let deadline = Instant::now() + Duration::from_secs(30);
    while lower.all().next().is_none() {
        assert!(Instant::now() < deadline, "nobody connects");
        lower.accept(0);
    }
    (lower, higher)
}

fn connect((lower, higher): &mut (ProcessLinks, ProcessLinks), done: impl Fn(&ProcessLinks) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !(lower.is_connected(2) && higher.is_connected(1) && done(higher)) {
        assert!(Instant::now() < deadline, "{:?}", higher.routes().collect::<Vec<_>>());
        poll_links(lower);
        poll_links(higher);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn both_processes_know_a_region_that_begins_during_handshake() {
    let mut both = half_connected(Vec::new());
    both.0.set_regions(vec![(REGION, EPOCH)]);
    connect(&mut both, |higher| higher.route_to(REGION) == Some((1, EPOCH)));
}

#[test]
fn neither_process_knows_a_region_that_ends_during_handshake() {
    let mut both = half_connected(vec![(REGION, EPOCH)]);
    both.0.set_regions(Vec::new());
    connect(&mut both, |higher| higher.route_to(REGION).is_none());
}

#[test]
fn process_with_a_wrong_secret_gets_no_region() {
    let (mut lower, _higher) = half_connected(vec![(REGION, EPOCH)]);
    let key = lower.all().next().unwrap().0;
    let other = RegionId(9);
    let world = WorldIdentity { name: "flock".to_owned(), setup: 5 };
    let hello = RunnerHello { process: 999, world, regions: vec![(other, 1)] }.encode(&[3; 32]);
    let ours = lower.links[&key].hello.clone();
    let (secret, wrong) = (Secret::of([1; 32]), Secret::of([2; 32]));
    let right = secret.prove(Role::Connects, &hello, &ours);
    assert_eq!(lower.handle_proof(key, &right), Err(RunnerRefusal::Stranger), "no hello was sent");
    let reflected = secret.prove(Role::Listens, &ours, &hello);
    for proof in [&[][..], &[0; 32], &wrong.prove(Role::Connects, &hello, &ours), &reflected] {
        assert_eq!(lower.handle_hello(key, &hello), Ok(()));
        assert_eq!(
            lower.handle_hello(key, &hello),
            Err(RunnerRefusal::Frame("the process sent a second hello"))
        );
        assert_eq!(lower.handle_proof(key, proof), Err(RunnerRefusal::Secret), "{proof:?}");
    }
    assert!(!lower.is_connected(999) && lower.route_to(other).is_none());
    assert_eq!(lower.take_events(), []);
    lower.handle_hello(key, &hello).unwrap();
    assert_eq!(lower.handle_proof(key, &right), Ok(()));
    assert_eq!(lower.route_to(other), Some((999, 1)));
}

#[test]
fn unauthenticated_connections_do_not_block_world_processes() {
    let mut lower = links(1, Vec::new());
    let address = lower.listener.local_addr().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut unverified = Vec::new();
    for _ in 0..SpaceLimits::default().strangers_max + 3 {
        unverified.push(std::net::TcpStream::connect(address).unwrap());
        let before = lower.next_key;
        while lower.next_key == before {
            assert!(Instant::now() < deadline, "nobody is let in");
            lower.accept(0);
        }
    }
    assert_eq!(lower.all().count(), SpaceLimits::default().strangers_max);
    let mut both = (lower, links(2, Vec::new()));
    both.1.add_peer(WorldPeer { process: 1, address }, 0);
    connect(&mut both, |_| true);
}

#[test]
fn listener_pauses_after_an_accept_error_and_then_continues() {
    let mut links = links(1, Vec::new());
    let address = links.listener.local_addr().unwrap();
    // This socket does not listen, so accepting fails, as it does if there is no free file descriptor.
    let other = std::net::TcpStream::connect(address).unwrap();
    let fd = std::os::fd::OwnedFd::from(other);
    let listener = std::mem::replace(&mut links.listener, TcpListener::from(fd));
    links.accept(7);
    assert!(!links.is_accepting());
    assert_eq!(links.next_dial_ns(), Some(7 + ACCEPT_PAUSE_NS));
    let _other = std::mem::replace(&mut links.listener, listener);
    links.dial(6 + ACCEPT_PAUSE_NS);
    assert!(!links.is_accepting());
    links.dial(7 + ACCEPT_PAUSE_NS);
    assert!(links.is_accepting() && links.next_dial_ns().is_none());
    let deadline = Instant::now() + Duration::from_secs(30);
    while links.all().next().is_none() {
        assert!(Instant::now() < deadline, "nobody is let in");
        links.accept(7 + ACCEPT_PAUSE_NS);
    }
}

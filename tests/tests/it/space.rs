//! Tests of a world whose regions are in separate processes. No entity may be lost or duplicated. If the processes run
//! in lock-step (each tick in all processes together), every entity must have the bytes that it has in a world with a
//! single process.

use std::thread::sleep;
use std::time::{Duration, Instant};

use dunlin::space::{EntityId, Lockstep};
use dunlin_system_tests::process::{PATIENCE, Process};
use dunlin_system_tests::role::space::{WALK, entity, setup};

const ENTITIES: u64 = 400;
const SEED: u64 = 11;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

struct World {
    processes: Vec<Process>,
    ports: Vec<String>,
    options: Vec<String>,
    count: u32,
}

type Ledger = Vec<(EntityId, u32, u64)>;

impl World {
    fn of(count: u32, options: &[&str]) -> World {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut world = World { processes: Vec::new(), ports: Vec::new(), options, count };
        (1..=count).for_each(|number| world.start(number));
        world
    }

    fn start(&mut self, number: u32) {
        let mut arguments = vec![
            "space".to_owned(),
            format!("process={number}"),
            format!("processes={}", self.count),
            format!("ports={}", self.ports.join(",")),
        ];
        arguments.extend(self.options.iter().cloned());
        let name = format!("process {number}");
        let mut process = Process::start(&name, env!("CARGO_BIN_EXE_system-role"), &arguments);
        self.ports.push(process.read_until("listens"));
        self.processes.push(process);
    }

    /// Sends a command to all processes. Then waits until each process has printed a line that begins with `response`.
    /// Returns, for each process, the rest of this line.
    fn send_to_all(&mut self, command: &str, response: &str) -> Vec<String> {
        self.processes.iter_mut().for_each(|process| process.write_line(command));
        self.processes.iter_mut().map(|process| process.read_until(response)).collect()
    }

    fn ledger(&mut self) -> Ledger {
        let mut all: Ledger = self.processes.iter_mut().flat_map(ledger).collect();
        all.sort_unstable();
        all
    }

    /// Waits until `condition` returns `true` for the counts of all processes.
    fn wait_until(&mut self, what: &str, condition: impl Fn(&[[u64; 3]]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let counts = self.counts();
            if condition(&counts) {
                return;
            }
            assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}: {counts:?}");
            sleep(POLL_INTERVAL);
        }
    }

    /// Returns three counts for each process: the entities that it handed over to other processes, the entities that it
    /// received from other processes, and its ticks.
    fn counts(&mut self) -> Vec<[u64; 3]> {
        let numbers = |text: String| {
            let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
            [numbers[0], numbers[1], numbers[2]]
        };
        self.send_to_all("counts", "counts").into_iter().map(numbers).collect()
    }
}

fn ledger(process: &mut Process) -> Ledger {
    process.write_line("ledger");
    let mut all = Vec::new();
    loop {
        let line = process.line_within(PATIENCE).expect("the process prints a line");
        if line == "end" {
            return all;
        }
        let Some(rest) = line.strip_prefix("entity ") else { continue };
        let numbers: Vec<u64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
        all.push((EntityId(numbers[0]), numbers[1] as u32, numbers[2]));
    }
}

fn ids(ledger: &Ledger) -> Vec<u64> {
    ledger.iter().map(|(id, ..)| id.0).collect()
}

/// Runs a world with one region in one process for `ticks` ticks. Returns the world's entities.
fn single_process_ledger(ticks: u64) -> Ledger {
    let mut lockstep = Lockstep::new(&setup(false), &WALK, 1);
    (0..ENTITIES).for_each(|id| lockstep.spawn(&entity(id, SEED)).unwrap());
    (0..ticks).for_each(|_| lockstep.tick().unwrap());
    lockstep.ledger()
}

#[test]
fn processes_in_lockstep_compute_the_same_as_a_single_process() {
    for count in [2, 3] {
        let mut world = World::of(count, &["lockstep=true"]);
        let spawned = world.send_to_all(&format!("spawn {ENTITIES} {SEED}"), "spawned");
        assert_eq!(
            spawned.iter().map(|count_text| count_text.parse::<u64>().unwrap()).sum::<u64>(),
            ENTITIES
        );
        // Each of these runs begins at the tick at which the previous run ended.
        for (ticks, so_far) in [(40, 40), (1, 41), (39, 80)] {
            world.send_to_all(&format!("run {ticks}"), "ran");
            assert_eq!(
                world.ledger(),
                single_process_ledger(so_far),
                "{count} processes, after {so_far} ticks"
            );
        }
        let counts = world.counts();
        let sum = |index: usize| counts.iter().map(|counts| counts[index]).sum::<u64>();
        assert_eq!(sum(0), sum(1));
        assert!(sum(0) > 100, "{counts:?}");
    }
}

#[test]
fn processes_without_lockstep_lose_and_duplicate_no_entity() {
    let mut world = World::of(3, &[]);
    world.send_to_all(&format!("spawn {ENTITIES} {SEED}"), "spawned");
    world.send_to_all("pace 2000000", "paced");
    world.wait_until("each has handed over and taken some", |counts| {
        counts.iter().all(|counts| counts[0] > 10 && counts[1] > 10)
    });
    world.send_to_all("hold", "held");
    // After the first `hold`, entities may still arrive from a process that was in its last tick when it received
    // `hold`. The second `hold` waits until these entities have arrived.
    world.send_to_all("hold", "held");
    let (after, counts) = (world.ledger(), world.counts());
    assert_eq!(ids(&after), (0..ENTITIES).collect::<Vec<_>>());
    let sum = |index: usize| counts.iter().map(|counts| counts[index]).sum::<u64>();
    assert_eq!(sum(0), sum(1), "{counts:?}");
}

/// Starts three processes, and lets them run until the standby of the second region knows tick `tick`. Each process is
/// the standby for the region of the next process.
fn start_with_standbys(tick: u64) -> World {
    let mut world = World::of(3, &["standby=true"]);
    world.send_to_all(&format!("spawn {ENTITIES} {SEED}"), "spawned");
    for (process, region) in [(0, 2), (1, 3), (2, 1)] {
        world.processes[process].write_line(&format!("follow {region}"));
    }
    world.processes.iter_mut().for_each(|process| drop(process.read_until("follows")));
    world.send_to_all("pace 2000000", "paced");
    let known_tick = |world: &mut World| {
        world.processes[0].write_line("known 2");
        world.processes[0].read_until("knows").parse::<u64>().unwrap()
    };
    let deadline = Instant::now() + PATIENCE;
    while known_tick(&mut world) < tick {
        assert!(Instant::now() < deadline, "the standby is not told of ticks");
        sleep(POLL_INTERVAL);
    }
    world
}

/// Kills the second process. The first process must take over the second one's region, and no entity may be lost.
fn continue_without_second(mut world: World) {
    world.processes.remove(1).kill();
    world.processes[0].write_line("take 2 2");
    world.processes[0].read_until("took");
    world.processes[0].write_line("follow 3");
    world.processes[1].write_line("follow 2");
    world.processes.iter_mut().for_each(|process| drop(process.read_until("follows")));
    let before = world.counts();
    world.wait_until("all go on", |counts| {
        counts.iter().zip(&before).all(|(counts, before)| counts[2] >= before[2] + 50)
    });
    world.send_to_all("hold", "held");
    world.send_to_all("hold", "held");
    assert_eq!(ids(&world.ledger()), (0..ENTITIES).collect::<Vec<_>>());
    let moved: u64 = world.counts().iter().map(|counts| counts[0]).sum();
    assert!(moved > before.iter().map(|counts| counts[0]).sum::<u64>(), "entities are handed over again");
}

#[test]
fn standby_continues_the_region_of_a_killed_process() {
    continue_without_second(start_with_standbys(50));
}

#[test]
fn process_killed_while_regions_move_loses_no_entity() {
    for pause in [Duration::ZERO, Duration::from_micros(500), Duration::from_millis(2)] {
        let mut world = start_with_standbys(20);
        // Moves a sixth of the world from the first process to the second, and a quarter of the world from the second
        // process to the third.
        world.processes.iter_mut().for_each(|process| process.write_line("cut 0 2 5"));
        sleep(pause);
        continue_without_second(world);
    }
}

#[test]
fn refused_process_learns_the_names_of_both_worlds() {
    let mut world = World::of(1, &[]);
    world.count = 2;
    world.options = vec!["world=elsewhere".to_owned()];
    world.start(2);
    world.processes[1].write_line("refusals");
    let refusal = world.processes[1].read_until("refused");
    assert!(refusal.contains("\"elsewhere\"") && refusal.contains("\"tests\""), "{refusal}");
    // The first process must still carry out commands.
    world.processes[0].write_line("spawn 10 1");
    world.processes[0].read_until("spawned");
    world.processes[0].write_line("run 5");
    assert_eq!(world.processes[0].read_until("ran"), "5");
}

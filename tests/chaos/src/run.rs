//! Makes one run of the fault tests of keys, leases and locks. The run starts a cluster and its clients, injects faults
//! that a seed determines, and then checks the clients' histories.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::audit;
use crate::cluster::Cluster;
use crate::history::{Operation, RunClock};
use crate::keys::{CLIENTS_PER_GROUP, KeyClient, SLICE_MS};
use crate::linear::{self, CheckCounts};
use crate::locks::{LockClient, LockHistory};
use crate::nemesis::{Nemesis, PATIENCE};
use crate::plan::plan;
use crate::progress::ClientProgress;
use crate::replica_client::ReplicaClient;
use crate::watches::{GIVEN_UP, WatchTrace, watch};

/// The number of clients that write and read keys.
const KEY_CLIENTS: u64 = 2 * CLIENTS_PER_GROUP;
/// The number of clients that take locks.
const LOCK_CLIENTS: u64 = 3;
/// The number of clients that watch all changes of keys.
const WATCHERS: u64 = 2;
/// The smallest share of the groups of keys for which the linearizability checker must reach a result. For the
/// remaining groups, the checker's time may run out.
const DECIDED_MIN: f64 = 0.99;

/// The settings of a run: the programs, the directory, and the length of the plan.
#[derive(Debug, Clone)]
pub struct RunSetup {
    /// The path of the program `replica`, which each node runs.
    pub replica: String,
    /// The path of the program `toxiproxy-server`, which runs the proxies.
    pub toxiproxy: String,
    /// The path of the linearizability checker.
    pub linear: String,
    /// The path of the library that sets the clocks of the nodes.
    pub clock: PathBuf,
    /// The directory for the run's files.
    pub dir: PathBuf,
    /// The number of steps of a plan.
    pub steps: u64,
}

/// Counts of a successful run, such as the numbers of operations and changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// The number of operations on keys.
    pub operations: u64,
    /// The number of operations whose results are unknown.
    pub unknown: u64,
    /// The number of operations during which a fault began or ended.
    pub struck: u64,
    /// The number of acknowledged changes of keys.
    pub changes: u64,
    /// The number of periods in which a client held a lock.
    pub held: u64,
    /// The number of revisions that the watching clients received.
    pub watched: u64,
    /// The number of steps of the plan.
    pub steps: u64,
    /// The result of the linearizability checker.
    pub linear: CheckCounts,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operations, unknown, struck, changes, held, watched, steps, linear } = self;
        write!(
            f,
            "{steps} steps of faults; {operations} operations, {struck} struck, {unknown} unknown; {changes} changes; \
             {held} locks held; {watched} revisions watched; {} groups linearizable, {} undecided",
            linear.groups - linear.undecided,
            linear.undecided
        )
    }
}

/// The histories of all clients of a run.
struct RunHistory {
    operations: Vec<Operation>,
    locks: Vec<LockHistory>,
    watched: Vec<WatchTrace>,
}

/// The threads of a run's clients.
struct Clients {
    stop: Arc<AtomicBool>,
    last: Arc<AtomicU64>,
    keys: Vec<JoinHandle<Vec<Operation>>>,
    locks: Vec<JoinHandle<LockHistory>>,
    watchers: Vec<JoinHandle<WatchTrace>>,
}

/// Runs one seed: starts the cluster and its clients, injects the faults, and checks the histories.
pub fn run(setup: &RunSetup, seed: u64) -> Result<Report> {
    let dir = setup.dir.join(format!("seed-{seed}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    let plan = plan(seed, setup.steps);
    let mut cluster = Cluster::start(setup, &dir, plan.nodes, plan.log_bytes)?;
    let (clock, progress) = (RunClock::start(), Arc::<ClientProgress>::default());
    let clients = Clients::start(&cluster, clock, seed, &progress);
    let mut nemesis = Nemesis::new(&mut cluster, clock, Arc::clone(&progress));
    let outcome = nemesis.run(&plan).and_then(|()| nemesis.wait_for_progress("peace"));
    let faults = std::mem::take(&mut nemesis.fault_times);
    std::fs::write(dir.join("faults.txt"), fault_lines(&faults))?;
    let ended = outcome.and_then(|()| finish_run(&mut cluster, clock, seed, &clients.stop));
    // Stops the clients before an error is returned, because the clients must end even if the run has failed.
    clients.stop.store(true, Ordering::Relaxed);
    let mut history = clients.join(ended.as_ref().map_or(GIVEN_UP, |(revision, _)| *revision))?;
    history.operations.extend(ended?.1);
    drop(cluster);
    let report = check(setup, &dir, &history, &faults, plan.steps.len() as u64)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(report)
}

fn fault_lines(faults: &[(u64, String)]) -> String {
    let line = |(at, what): &(u64, String)| format!("{:>9.3} s  {what}\n", *at as f64 / 1e9);
    faults.iter().map(line).collect()
}

/// Ends the run: cuts the power of all nodes one last time, starts the nodes, reads all keys, and waits until all nodes
/// have equal states. Returns the last revision, and the history of these reads.
fn finish_run(
    cluster: &mut Cluster,
    clock: RunClock,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(u64, Vec<Operation>)> {
    stop.store(true, Ordering::Relaxed);
    let all = cluster.network.ids().to_vec();
    cluster.kill(&all)?;
    cluster.heal()?;
    let replica_client = ReplicaClient::new(cluster.network.listeners.clone(), seed);
    let reader = KeyClient::new(1_000, replica_client, clock, seed, Arc::default());
    let slices = clock.now() / 1_000_000 / SLICE_MS + 1;
    let groups = (0..KEY_CLIENTS / CLIENTS_PER_GROUP)
        .flat_map(|set| (0..slices).map(move |slice| format!("g{set}.{slice}")));
    let deadline = Instant::now() + PATIENCE;
    let read = reader.read_all(&groups.collect::<Vec<_>>(), || Instant::now() > deadline);
    let read =
        read.ok_or_else(|| anyhow!("no read succeeded for {PATIENCE:?}: {:#?}", cluster.statuses()))?;
    Ok((wait_for_equal_states(cluster, deadline)?, read))
}

/// Waits until the states of all nodes are equal. Returns the revision of this common state.
fn wait_for_equal_states(cluster: &mut Cluster, deadline: Instant) -> Result<u64> {
    loop {
        let statuses = cluster.statuses();
        let digests: BTreeSet<Option<&str>> =
            statuses.iter().map(|(_, status)| status["digest"].as_str()).collect();
        if statuses.len() == cluster.network.ids().len() && digests.len() == 1 {
            return statuses[0].1["revision"].as_u64().context("the node's status has no `revision`");
        }
        if Instant::now() > deadline {
            bail!("the nodes' states did not become equal: {statuses:#?}");
        }
        cluster.reap()?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Clients {
    fn start(cluster: &Cluster, clock: RunClock, seed: u64, progress: &Arc<ClientProgress>) -> Clients {
        let (stop, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let listeners = &cluster.network.listeners;
        let client_seed = |id: u64| seed.wrapping_mul(1_000).wrapping_add(id);
        let keys = (0..KEY_CLIENTS).map(|id| {
            let (replica_client, stop) =
                (ReplicaClient::new(listeners.clone(), client_seed(id)), Arc::clone(&stop));
            let client =
                KeyClient::new(id, replica_client, clock, client_seed(100 + id), Arc::clone(progress));
            spawn(move || client.run(&stop))
        });
        let locks = (0..LOCK_CLIENTS).map(|id| {
            let (replica_client, stop) =
                (ReplicaClient::new(listeners.clone(), client_seed(200 + id)), Arc::clone(&stop));
            let client =
                LockClient::new(id, replica_client, clock, client_seed(300 + id), Arc::clone(progress));
            spawn(move || client.run(&stop))
        });
        let watchers = (0..WATCHERS).map(|id| {
            let (nodes, last) = (cluster.addresses(), Arc::clone(&last));
            let seed = client_seed(400 + id);
            spawn(move || watch(&nodes, seed, &last))
        });
        let (keys, locks, watchers) = (keys.collect(), locks.collect(), watchers.collect());
        Clients { stop, last, keys, locks, watchers }
    }

    fn join(self, last: u64) -> Result<RunHistory> {
        self.last.store(last, Ordering::Relaxed);
        let panicked = |_| anyhow!("a client thread panicked");
        let (mut operations, mut locks, mut watched) = (vec![], vec![], vec![]);
        for client in self.keys {
            operations.extend(client.join().map_err(panicked)?);
        }
        for client in self.locks {
            locks.push(client.join().map_err(panicked)?);
        }
        for client in self.watchers {
            watched.push(client.join().map_err(panicked)?);
        }
        Ok(RunHistory { operations, locks, watched })
    }
}

fn check(
    setup: &RunSetup,
    dir: &Path,
    history: &RunHistory,
    faults: &[(u64, String)],
    steps: u64,
) -> Result<Report> {
    let RunHistory { operations, locks, watched } = history;
    let report = Report {
        operations: operations.len() as u64,
        unknown: operations.iter().filter(|operation| operation.response.is_none()).count() as u64,
        struck: audit::count_struck(operations, faults),
        changes: audit::check_revisions(operations)?,
        held: audit::check_locks(locks)?,
        watched: audit::check_watches(watched, operations)?,
        steps,
        linear: linear::check(&setup.linear, dir, operations)?,
    };
    if report.struck == 0 || report.changes == 0 {
        bail!(
            "no fault happened during an operation, or no key changed, so the run proves nothing: {report}"
        );
    }
    let decided = 1.0 - report.linear.undecided as f64 / report.linear.groups.max(1) as f64;
    if decided < DECIDED_MIN {
        bail!("the linearizability checker ran out of time for too many groups of operations: {report}");
    }
    Ok(report)
}

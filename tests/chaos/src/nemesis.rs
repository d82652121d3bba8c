//! Injects the faults of a plan, and records their times.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::cluster::Cluster;
use crate::going::{ClientProgress, ProgressCounts};
use crate::history::Clock;
use crate::network::NodePair;
use crate::plan::{Fault, FaultTarget, Plan, Step};

/// The longest wait for any step. It allows for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// The interval at which the nodes' status is queried while no change is acknowledged.
const LOOK: Duration = Duration::from_secs(1);
/// How long a fault that needs a leader waits for one.
const LEADER: Duration = Duration::from_secs(3);
/// The number of changes that must be acknowledged during a fault that leaves a majority connected.
const PROGRESS: u64 = 5;
/// How often every lock must change its holder while clocks are wrong. Half of the holders do not release the lock but
/// let their lease expire, so expired leases are tested too.
const HANDS: u64 = 4;

/// Injects the faults of a plan into a cluster.
#[derive(Debug)]
pub struct Nemesis<'c> {
    cluster: &'c mut Cluster,
    clock: Clock,
    going: Arc<ClientProgress>,
    /// The times in ns at which faults began or ended.
    pub struck: Vec<(u64, String)>,
}

impl Nemesis<'_> {
    /// Creates a nemesis for this cluster. `going` has the clients' counts.
    pub fn new(cluster: &mut Cluster, clock: Clock, going: Arc<ClientProgress>) -> Nemesis<'_> {
        Nemesis { cluster, clock, going, struck: vec![] }
    }

    /// Carries out all steps. At the end, all faults have ended.
    pub fn run(&mut self, plan: &Plan) -> Result<()> {
        for step in &plan.steps {
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        for fault in &step.faults {
            self.note(format!("{fault:?}"));
            self.strike(*fault, step.hold_ms)?;
        }
        if step.faults.iter().all(|fault| fault.goes_on()) {
            self.progress(&format!("{:?}", step.faults))?;
        }
        if step.faults.iter().any(|fault| matches!(fault, Fault::SetClock(..))) {
            let before = self.going.counted().hands;
            let change_hands = |counted: ProgressCounts| counted.hands >= before + HANDS;
            self.go_on(&format!("locks, with {:?}", step.faults), change_hands)?;
        }
        sleep(step.hold_ms);
        self.cluster.reap()?;
        self.cluster.heal()?;
        self.note("well".to_owned());
        sleep(step.rest_ms);
        Ok(())
    }

    fn note(&mut self, what: String) {
        self.struck.push((self.clock.now(), what));
    }

    /// Waits until clients have received enough acknowledgements of changes.
    pub fn progress(&self, while_what: &str) -> Result<()> {
        let before = self.going.counted().changes;
        self.go_on(while_what, |counted| counted.changes >= before + PROGRESS)
    }

    fn go_on(&self, while_what: &str, is_enough: impl Fn(ProgressCounts) -> bool) -> Result<()> {
        let (mut looked, deadline) = (Instant::now(), Instant::now() + PATIENCE);
        while !is_enough(self.going.counted()) {
            if looked.elapsed() > LOOK {
                self.cluster.check_terms()?;
                looked = Instant::now();
            }
            if Instant::now() > deadline {
                let seen = self.cluster.statuses();
                bail!("no progress for {PATIENCE:?} during {while_what}: {seen:#?}");
            }
            sleep(10);
        }
        Ok(())
    }

    fn strike(&mut self, fault: Fault, hold_ms: u64) -> Result<()> {
        match fault {
            Fault::Kill(who) => self.on(who, |cluster, id| cluster.kill(&[id])),
            Fault::KillAll => {
                let all = self.cluster.network.ids().to_vec();
                self.cluster.kill(&all)
            }
            Fault::Tear(who, seed) => self.on(who, |cluster, id| {
                cluster.order(id, &format!("tear {seed}"));
                Ok(())
            }),
            Fault::Stop(who) => self.on(who, |cluster, id| {
                cluster.process(id).into_iter().for_each(crate::process::Process::stop);
                Ok(())
            }),
            Fault::Isolate(who) => self.cut(who, |id, from, to| (from == id) != (to == id)),
            Fault::Mute(who) => self.cut(who, |id, from, _| from == id),
            Fault::Deaf(who) => self.cut(who, |id, _, to| to == id),
            Fault::Halves(seed) => {
                let ids = self.cluster.network.ids();
                let one: Vec<u64> = ids.iter().copied().filter(|id| seed >> id & 1 == 1).collect();
                let cut = self.cluster.network.around(&one);
                self.cluster.network.cut(cut)
            }
            Fault::Ring => self.cut_ways(|count, from, to| {
                let apart = from.abs_diff(to);
                // With three nodes, a ring would connect all of them. The fault then separates the first node from the
                // last.
                if count == 3 { apart == 2 } else { apart.min(count - apart) > 1 }
            }),
            Fault::Bridge => self.cut_ways(|count, from, to| {
                let middle = count / 2 + 1;
                from.min(to) < middle && from.max(to) > middle
            }),
            Fault::Moving => self.moving(hold_ms),
            Fault::Delay(ms) => self.cluster.network.delay(ms, ms / 4),
            Fault::Narrow(rate_kb) => self.cluster.network.narrow(rate_kb),
            Fault::Break => self.cluster.network.break_connections(),
            Fault::CloseListener(who) => self.on(who, |cluster, id| cluster.network.close_listener(id)),
            Fault::MuteListener(who) => self.on(who, |cluster, id| cluster.network.mute_listener(id)),
            Fault::SlowDisks(ms) => {
                for id in self.cluster.network.ids().to_vec() {
                    self.cluster.order(id, &format!("slow {ms}"));
                }
                Ok(())
            }
            Fault::SetClock(who, off_s) => self.on(who, |cluster, id| cluster.set_clock(id, off_s)),
            Fault::FullDisk(who) => self.on(who, |cluster, id| {
                cluster.order(id, "full");
                Ok(())
            }),
            Fault::BrokenDisk(who) => self.on(who, |cluster, id| {
                cluster.order(id, "broken");
                Ok(())
            }),
        }
    }

    /// Applies a fault to its target node. Does nothing if there is no such node.
    fn on(&mut self, who: FaultTarget, strike: impl FnOnce(&mut Cluster, u64) -> Result<()>) -> Result<()> {
        match self.find(who) {
            Some(id) => {
                self.note(format!("… node {id}"));
                strike(self.cluster, id)
            }
            None => Ok(()),
        }
    }

    fn find(&self, who: FaultTarget) -> Option<u64> {
        let leader = self.cluster.leader_within(LEADER, None);
        match who {
            FaultTarget::Leader => leader,
            FaultTarget::Follower => {
                self.cluster.network.ids().iter().copied().find(|id| Some(*id) != leader)
            }
        }
    }

    fn cut(&mut self, who: FaultTarget, is_cut: impl Fn(u64, u64, u64) -> bool) -> Result<()> {
        self.on(who, |cluster, id| {
            let cut = cluster.network.ways_where(|from, to| is_cut(id, from, to));
            cluster.network.cut(cut)
        })
    }

    fn cut_ways(&mut self, is_cut: impl Fn(u64, u64, u64) -> bool) -> Result<()> {
        let count = self.cluster.network.ids().len() as u64;
        let cut: BTreeSet<NodePair> = self.cluster.network.ways_where(|from, to| is_cut(count, from, to));
        self.cluster.network.cut(cut)
    }

    /// Injects [`Fault::Moving`].
    fn moving(&mut self, hold_ms: u64) -> Result<()> {
        let Some(old) = self.cluster.leader_within(LEADER, None) else { return Ok(()) };
        let cut = self.cluster.network.around(&[old]);
        self.cluster.network.cut(cut)?;
        let Some(new) = self.cluster.leader_within(LEADER, Some(old)) else { return Ok(()) };
        self.note(format!("… node {new} leads instead of {old}"));
        sleep(hold_ms);
        // A set of nodes with the old leader and without the new one, which is a majority.
        let ids = self.cluster.network.ids().to_vec();
        let others = ids.iter().copied().filter(|id| ![old, new].contains(id));
        let moved: Vec<u64> = others.take(ids.len() / 2).collect();
        self.cluster.kill(&moved)?;
        let inside: Vec<u64> = [&[old], &moved[..]].concat();
        let cut = self.cluster.network.around(&inside);
        self.cluster.network.cut(cut)?;
        self.note(format!("… {moved:?} go over to node {old}"));
        self.cluster.start_missing();
        sleep(hold_ms);
        Ok(())
    }
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

//! The nemesis injects the faults of a plan, and records their times.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::cluster::Cluster;
use crate::history::RunClock;
use crate::network::NodePair;
use crate::plan::{Fault, FaultTarget, Plan, Step};
use crate::progress::{ClientProgress, ProgressCounts};

/// The longest time that the test waits for any step. It is long because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// While the test waits for the clients' progress, it checks the terms of the nodes at this interval.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a fault that needs a leader waits at most until a leader exists.
const LEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// How many changes must be acknowledged during a fault that leaves a majority connected.
const PROGRESS: u64 = 5;
/// How many times each lock must change its holder while clocks are wrong. About half of the holders let their lease
/// expire instead of releasing the lock, so the changes also test the expiry of leases.
const HOLDER_CHANGES: u64 = 4;

/// Injects the faults of a plan into a cluster.
#[derive(Debug)]
pub struct Nemesis<'c> {
    cluster: &'c mut Cluster,
    clock: RunClock,
    progress: Arc<ClientProgress>,
    /// The times in ns at which faults began or ended, each with a text that names the fault.
    pub fault_times: Vec<(u64, String)>,
}

impl Nemesis<'_> {
    /// Creates a nemesis for this cluster. `progress` contains the clients' counters.
    pub fn new(cluster: &mut Cluster, clock: RunClock, progress: Arc<ClientProgress>) -> Nemesis<'_> {
        Nemesis { cluster, clock, progress, fault_times: vec![] }
    }

    /// Carries out all steps of the plan. When this function returns without an error, all faults have ended.
    pub fn run(&mut self, plan: &Plan) -> Result<()> {
        for step in &plan.steps {
            self.run_step(step)?;
        }
        Ok(())
    }

    fn run_step(&mut self, step: &Step) -> Result<()> {
        for fault in &step.faults {
            self.record_fault(format!("{fault:?}"));
            self.inject(*fault, step.hold_ms)?;
        }
        if step.faults.iter().all(|fault| fault.allows_progress()) {
            self.wait_for_progress(&format!("{:?}", step.faults))?;
        }
        if step.faults.iter().any(|fault| matches!(fault, Fault::SetClock(..))) {
            let before = self.progress.counts().holder_changes;
            let is_enough = |counts: ProgressCounts| counts.holder_changes >= before + HOLDER_CHANGES;
            self.wait_until(&format!("locks, with {:?}", step.faults), is_enough)?;
        }
        sleep(step.hold_ms);
        self.cluster.reap()?;
        self.cluster.heal()?;
        self.record_fault("well".to_owned());
        sleep(step.rest_ms);
        Ok(())
    }

    fn record_fault(&mut self, what: String) {
        self.fault_times.push((self.clock.now(), what));
    }

    /// Waits until `PROGRESS` more changes of clients are acknowledged. `while_what` describes the present step for
    /// an error's text.
    pub fn wait_for_progress(&self, while_what: &str) -> Result<()> {
        let before = self.progress.counts().changes;
        self.wait_until(while_what, |counts| counts.changes >= before + PROGRESS)
    }

    fn wait_until(&self, while_what: &str, condition: impl Fn(ProgressCounts) -> bool) -> Result<()> {
        let (mut last_check, deadline) = (Instant::now(), Instant::now() + PATIENCE);
        while !condition(self.progress.counts()) {
            if last_check.elapsed() > STATUS_INTERVAL {
                self.cluster.check_terms()?;
                last_check = Instant::now();
            }
            if Instant::now() > deadline {
                let statuses = self.cluster.statuses();
                bail!("no progress for {PATIENCE:?} during {while_what}: {statuses:#?}");
            }
            sleep(10);
        }
        Ok(())
    }

    fn inject(&mut self, fault: Fault, hold_ms: u64) -> Result<()> {
        match fault {
            Fault::Kill(target) => self.on_node(target, |cluster, id| cluster.kill(&[id])),
            Fault::KillAll => {
                let all = self.cluster.network.ids().to_vec();
                self.cluster.kill(&all)
            }
            Fault::Tear(target, seed) => self.on_node(target, |cluster, id| {
                cluster.set_disk_fault(id, &format!("tear {seed}"));
                Ok(())
            }),
            Fault::Stop(target) => self.on_node(target, |cluster, id| {
                cluster.process(id).into_iter().for_each(crate::process::Process::stop);
                Ok(())
            }),
            Fault::Isolate(target) => self.cut(target, |id, from, to| (from == id) != (to == id)),
            Fault::Mute(target) => self.cut(target, |id, from, _| from == id),
            Fault::Deaf(target) => self.cut(target, |id, _, to| to == id),
            Fault::Halves(seed) => {
                let ids = self.cluster.network.ids();
                let half: Vec<u64> = ids.iter().copied().filter(|id| seed >> id & 1 == 1).collect();
                let cut = self.cluster.network.links_around(&half);
                self.cluster.network.cut(cut)
            }
            Fault::Ring => self.cut_links(|count, from, to| {
                let distance = from.abs_diff(to);
                // In a ring of three nodes, every node would be connected with every other, and nothing would be cut.
                // With three nodes, the fault therefore separates the first node from the last.
                if count == 3 { distance == 2 } else { distance.min(count - distance) > 1 }
            }),
            Fault::Bridge => self.cut_links(|count, from, to| {
                let middle = count / 2 + 1;
                from.min(to) < middle && from.max(to) > middle
            }),
            Fault::Moving => self.inject_moving(hold_ms),
            Fault::Delay(ms) => self.cluster.network.delay(ms / 2, ms / 8),
            Fault::Narrow(rate_kb) => self.cluster.network.limit_rate(rate_kb),
            Fault::Break => self.cluster.network.break_connections(),
            Fault::CloseListener(target) => {
                self.on_node(target, |cluster, id| cluster.network.close_listener(id))
            }
            Fault::MuteListener(target) => {
                self.on_node(target, |cluster, id| cluster.network.mute_listener(id))
            }
            Fault::SlowDisks(ms) => {
                for id in self.cluster.network.ids().to_vec() {
                    self.cluster.set_disk_fault(id, &format!("slow {ms}"));
                }
                Ok(())
            }
            Fault::SetClock(target, offset_s) => {
                self.on_node(target, |cluster, id| cluster.set_clock(id, offset_s))
            }
            Fault::FullDisk(target) => self.on_node(target, |cluster, id| {
                cluster.set_disk_fault(id, "full");
                Ok(())
            }),
            Fault::BrokenDisk(target) => self.on_node(target, |cluster, id| {
                cluster.set_disk_fault(id, "broken");
                Ok(())
            }),
        }
    }

    /// Calls `inject` with the node that `target` selects. Does nothing if `target` selects no node.
    fn on_node(
        &mut self,
        target: FaultTarget,
        inject: impl FnOnce(&mut Cluster, u64) -> Result<()>,
    ) -> Result<()> {
        match self.find_node(target) {
            Some(id) => {
                self.record_fault(format!("… node {id}"));
                inject(self.cluster, id)
            }
            None => Ok(()),
        }
    }

    fn find_node(&self, target: FaultTarget) -> Option<u64> {
        let leader = self.cluster.leader_within(LEADER_TIMEOUT, None);
        match target {
            FaultTarget::Leader => leader,
            FaultTarget::Follower => {
                self.cluster.network.ids().iter().copied().find(|id| Some(*id) != leader)
            }
        }
    }

    fn cut(&mut self, target: FaultTarget, is_cut: impl Fn(u64, u64, u64) -> bool) -> Result<()> {
        self.on_node(target, |cluster, id| {
            let cut = cluster.network.links_where(|from, to| is_cut(id, from, to));
            cluster.network.cut(cut)
        })
    }

    fn cut_links(&mut self, is_cut: impl Fn(u64, u64, u64) -> bool) -> Result<()> {
        let count = self.cluster.network.ids().len() as u64;
        let cut: BTreeSet<NodePair> = self.cluster.network.links_where(|from, to| is_cut(count, from, to));
        self.cluster.network.cut(cut)
    }

    /// Injects [`Fault::Moving`].
    fn inject_moving(&mut self, hold_ms: u64) -> Result<()> {
        let Some(old) = self.cluster.leader_within(LEADER_TIMEOUT, None) else { return Ok(()) };
        let cut = self.cluster.network.links_around(&[old]);
        self.cluster.network.cut(cut)?;
        let Some(new) = self.cluster.leader_within(LEADER_TIMEOUT, Some(old)) else { return Ok(()) };
        self.record_fault(format!("… node {new} leads instead of {old}"));
        sleep(hold_ms);
        // `moved` contains so many nodes that they and the old leader are a majority. The new leader is not in `moved`.
        let ids = self.cluster.network.ids().to_vec();
        let others = ids.iter().copied().filter(|id| ![old, new].contains(id));
        let moved: Vec<u64> = others.take(ids.len() / 2).collect();
        self.cluster.kill(&moved)?;
        let inside: Vec<u64> = [&[old], &moved[..]].concat();
        let cut = self.cluster.network.links_around(&inside);
        self.cluster.network.cut(cut)?;
        self.record_fault(format!("… {moved:?} go over to node {old}"));
        self.cluster.start_missing();
        sleep(hold_ms);
        Ok(())
    }
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

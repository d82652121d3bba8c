//! The plan of a run: which faults happen, and when. The whole plan follows from the seed.

use dunlin_replica::seed::SeededRandom;

/// Which node a fault strikes. The node is chosen when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultTarget {
    /// The node that leads when the fault begins.
    Leader,
    /// A node that does not lead when the fault begins.
    Follower,
}

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A node loses power, and with it all data that was not synced.
    Kill(FaultTarget),
    /// All nodes lose power.
    KillAll,
    /// A node loses power during a sync. The seed decides which sectors of the disk are written.
    Tear(FaultTarget, u64),
    /// A node is stopped (SIGSTOP).
    Stop(FaultTarget),
    /// A node is cut off from all other nodes.
    Isolate(FaultTarget),
    /// A node cannot send to other nodes.
    Mute(FaultTarget),
    /// A node cannot receive from other nodes.
    Deaf(FaultTarget),
    /// The nodes are divided into two parts that do not reach each other. The seed determines the parts' sizes.
    Halves(u64),
    /// Every node reaches a majority of the nodes, but the majorities differ.
    Ring,
    /// The nodes are divided into two parts that have one node in common.
    Bridge,
    /// The leader is isolated. Once another node leads, some followers of this new leader lose power. After they have
    /// restarted, these followers reach the old leader but not the new one.
    Moving,
    /// Each round trip between nodes takes this many ms longer; each direction adds half of this delay. A round trip
    /// must stay shorter than the nodes' heartbeat interval: if the other nodes respond later, the leader accepts no
    /// writes.
    Delay(u64),
    /// Each connection between nodes transfers at most this many kB per second in each direction, and delivers the data
    /// in small pieces.
    Narrow(u64),
    /// All connections between nodes are closed once.
    Break,
    /// Clients cannot connect to a node.
    CloseListener(FaultTarget),
    /// Clients do not receive a node's responses.
    MuteListener(FaultTarget),
    /// Every sync of every node takes this many ms.
    SlowDisks(u64),
    /// A node's clock is wrong until the faults end: it is ahead by this many seconds, or behind if the number is
    /// negative.
    SetClock(FaultTarget, i64),
    /// A node's disk is full.
    FullDisk(FaultTarget),
    /// A node's disk fails.
    BrokenDisk(FaultTarget),
}

/// A step of a plan. It contains faults that happen together, how long they last, and the pause after they end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The faults.
    pub faults: Vec<Fault>,
    /// The duration of the faults in ms.
    pub hold_ms: u64,
    /// The pause after the faults, in ms.
    pub rest_ms: u64,
}

/// The plan of a run: the size of the cluster and of its logs, and the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The number of nodes.
    pub nodes: u64,
    /// When a node's log has reached this size in bytes, the node replaces the log with a snapshot.
    pub log_bytes: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Fault {
    /// Whether a majority stays connected during the fault. Clients' changes must then be acknowledged.
    pub fn allows_progress(self) -> bool {
        matches!(self, Fault::SlowDisks(_) | Fault::Delay(_) | Fault::SetClock(..))
    }
}

/// Makes a plan with `steps` steps.
pub fn plan(seed: u64, steps: u64) -> Plan {
    let mut seed = SeededRandom::new(seed);
    let nodes = if seed.between(0, 2) == 0 { 5 } else { 3 };
    let log_bytes = [4 << 10, 32 << 10, 64 << 20][seed.between(0, 2) as usize];
    let steps = (0..steps).map(|_| random_step(&mut seed)).collect();
    Plan { nodes, log_bytes, steps }
}

fn random_step(seed: &mut SeededRandom) -> Step {
    let mut faults = vec![random_fault(seed)];
    // Two kinds of faults are never combined with a second fault: `Moving`, which itself changes the network, and
    // faults during which changes must be acknowledged.
    if !matches!(faults[0], Fault::Moving) && !faults[0].allows_progress() && seed.between(0, 3) == 0 {
        faults.push(additional_fault(seed));
    }
    Step { faults, hold_ms: seed.between(250, 1_300), rest_ms: seed.between(100, 700) }
}

fn random_target(seed: &mut SeededRandom) -> FaultTarget {
    if seed.between(0, 2) == 0 { FaultTarget::Follower } else { FaultTarget::Leader }
}

fn random_fault(seed: &mut SeededRandom) -> Fault {
    let target = random_target(seed);
    match seed.between(0, 99) {
        0..9 => Fault::Kill(target),
        9..19 => Fault::KillAll,
        19..25 => Fault::Tear(target, seed.between(1, u64::MAX >> 1)),
        25..33 => Fault::Stop(target),
        33..42 => Fault::Isolate(target),
        42..47 => Fault::Mute(target),
        47..52 => Fault::Deaf(target),
        52..57 => Fault::Halves(seed.draw()),
        57..61 => Fault::Ring,
        61..65 => Fault::Bridge,
        65..78 => Fault::Moving,
        78..82 => Fault::Delay(seed.between(20, 90)),
        82..85 => Fault::Narrow(seed.between(20, 200)),
        85..88 => Fault::SlowDisks(seed.between(40, 120)),
        88..92 => Fault::FullDisk(target),
        92..94 => Fault::BrokenDisk(target),
        94..98 => set_clock(seed, target),
        _ => additional_fault(seed),
    }
}

/// Returns a fault that sets a clock one to twelve hours forward or back.
fn set_clock(seed: &mut SeededRandom, target: FaultTarget) -> Fault {
    let offset_s = seed.between(3_600, 43_200) as i64;
    Fault::SetClock(target, if seed.between(0, 1) == 0 { offset_s } else { -offset_s })
}

/// Returns a fault that can be added to another fault.
fn additional_fault(seed: &mut SeededRandom) -> Fault {
    let target = random_target(seed);
    match seed.between(0, 4) {
        0 => Fault::Break,
        1 => Fault::CloseListener(target),
        2 => Fault::MuteListener(target),
        3 => Fault::Kill(target),
        _ => Fault::Stop(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_the_fault_plan() {
        assert_eq!(plan(7, 20), plan(7, 20));
        assert_ne!(plan(7, 20), plan(8, 20));
    }

    #[test]
    fn every_kind_of_fault_is_in_some_plan() {
        let kind_name = |fault: &Fault| format!("{fault:?}").split('(').next().map(str::to_owned);
        let plans = (0..200).flat_map(|seed| plan(seed, 8).steps);
        let kinds: std::collections::BTreeSet<_> =
            plans.flat_map(|step| step.faults).map(|fault| kind_name(&fault)).collect();
        assert_eq!(kinds.len(), 20, "{kinds:?}");
    }
}

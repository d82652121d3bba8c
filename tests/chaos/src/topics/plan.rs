//! The plan of a run: which faults happen to the nodes, and when. The whole plan follows from the seed.

use dunlin_replica::seed::SeededRandom;

use super::NODES;

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A node is killed with SIGKILL.
    Kill(usize),
    /// All nodes are killed with SIGKILL.
    KillAll,
    /// The leader is killed with SIGKILL.
    KillLeader,
    /// A node is stopped (SIGSTOP).
    Stop(usize),
    /// All other nodes are unreachable for a node, but the clients of this node still reach it.
    Isolate(usize),
}

/// A step of the plan: a fault, its duration, and the pause after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The fault to inject.
    pub fault: Fault,
    /// The duration of the fault in ms.
    pub hold_ms: u64,
    /// The pause after the fault, in ms.
    pub rest_ms: u64,
}

/// Makes a plan. In at least one of its steps, the fault lasts longer than a node's lease. The volatile topics of the
/// faulty node then get another owner.
pub fn plan(seed: u64, steps: u64) -> Vec<Step> {
    let mut seed = SeededRandom::new(seed);
    let long_step = seed.between(0, steps.max(1) - 1);
    (0..steps).map(|at| random_step(&mut seed, at == long_step)).collect()
}

fn random_step(seed: &mut SeededRandom, is_long: bool) -> Step {
    let node = seed.between(0, NODES as u64 - 1) as usize;
    let fault = match seed.between(0, 9) {
        0..3 => Fault::Kill(node),
        3 if !is_long => Fault::KillAll,
        3..5 => Fault::KillLeader,
        5..7 => Fault::Stop(node),
        _ => Fault::Isolate(node),
    };
    let hold_ms = if is_long { seed.between(4_000, 6_000) } else { seed.between(300, 4_000) };
    Step { fault, hold_ms, rest_ms: seed.between(300, 1_500) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_of_faults_has_a_fault_longer_than_a_lease() {
        assert_eq!(plan(7, 5), plan(7, 5));
        assert_ne!(plan(7, 5), plan(8, 5));
        for seed in 0..100 {
            let long = |step: &Step| step.hold_ms >= 4_000 && step.fault != Fault::KillAll;
            assert!(plan(seed, 3).iter().any(long), "{seed}");
        }
    }
}

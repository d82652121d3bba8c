//! Which faults, when: all of it follows from the seed.

use dunlin_replica::seed::Seed;

/// Which node a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Whoever leads when it comes to that.
    Leader,
    /// One that does not.
    Follower,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A node loses its power: what it has not synced is gone.
    Kill(Who),
    /// All lose their power.
    KillAll,
    /// A node loses its power in the middle of a sync, by the decisions of this seed.
    Tear(Who, u64),
    /// A node stands still.
    Stop(Who),
    /// A node is cut off.
    Isolate(Who),
    /// A node is heard by nobody.
    Mute(Who),
    /// A node hears nobody.
    Deaf(Who),
    /// Two parts that do not reach one another, of as many nodes as this seed says.
    Halves(u64),
    /// Every node reaches a majority, and each another one.
    Ring,
    /// Two parts that share one node.
    Bridge,
    /// The leader is cut off; when another leads, one of its followers loses its power, and the old leader reaches that
    /// one when it comes back, and nobody else does.
    Moving,
    /// What nodes say to one another takes so long, ms.
    Delay(u64),
    /// So many thousand bytes a second, in pieces.
    Narrow(u64),
    /// Every connection between nodes ends.
    Break,
    /// Clients do not reach a node.
    CloseDoor(Who),
    /// Clients are not told what became of what they asked of a node.
    MuteDoor(Who),
    /// Every sync of every node takes so long, ms.
    SlowDisks(u64),
    /// A node's time of day is set so many seconds off, and back when all is made well.
    SetClock(Who, i64),
    /// A node's disk has no room.
    FullDisk(Who),
    /// A node's disk fails.
    BrokenDisk(Who),
}

/// Faults that come together, how long they last, and how long all is well afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub faults: Vec<Fault>,
    /// How long, ms.
    pub hold_ms: u64,
    /// And then, ms.
    pub rest_ms: u64,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How many nodes.
    pub nodes: u64,
    /// The bytes after which a log is replaced by a snapshot.
    pub log_bytes: u64,
    /// What goes wrong, in order.
    pub steps: Vec<Step>,
}

impl Fault {
    /// What is acknowledged while it lasts, all the same: a majority is there and reaches one another.
    pub fn goes_on(self) -> bool {
        matches!(self, Fault::SlowDisks(_) | Fault::Delay(_) | Fault::SetClock(..))
    }
}

/// So many steps.
pub fn plan(seed: u64, steps: u64) -> Plan {
    let mut seed = Seed::new(seed);
    let nodes = if seed.between(0, 2) == 0 { 5 } else { 3 };
    let log_bytes = [4 << 10, 32 << 10, 64 << 20][seed.between(0, 2) as usize];
    let steps = (0..steps).map(|_| step(&mut seed)).collect();
    Plan { nodes, log_bytes, steps }
}

fn step(seed: &mut Seed) -> Step {
    let mut faults = vec![fault(seed)];
    // Moving and the like say themselves who reaches whom.
    if !matches!(faults[0], Fault::Moving) && !faults[0].goes_on() && seed.between(0, 3) == 0 {
        faults.push(beside(seed));
    }
    Step { faults, hold_ms: seed.between(250, 1_300), rest_ms: seed.between(100, 700) }
}

fn who(seed: &mut Seed) -> Who {
    if seed.between(0, 2) == 0 { Who::Follower } else { Who::Leader }
}

fn fault(seed: &mut Seed) -> Fault {
    let who = who(seed);
    match seed.between(0, 99) {
        0..9 => Fault::Kill(who),
        9..19 => Fault::KillAll,
        19..25 => Fault::Tear(who, seed.between(1, u64::MAX >> 1)),
        25..33 => Fault::Stop(who),
        33..42 => Fault::Isolate(who),
        42..47 => Fault::Mute(who),
        47..52 => Fault::Deaf(who),
        52..57 => Fault::Halves(seed.draw()),
        57..61 => Fault::Ring,
        61..65 => Fault::Bridge,
        65..78 => Fault::Moving,
        78..82 => Fault::Delay(seed.between(20, 90)),
        82..85 => Fault::Narrow(seed.between(20, 200)),
        85..88 => Fault::SlowDisks(seed.between(40, 120)),
        88..92 => Fault::FullDisk(who),
        92..94 => Fault::BrokenDisk(who),
        94..98 => set_clock(seed, who),
        _ => beside(seed),
    }
}

/// By one hour to twelve, forward or back.
fn set_clock(seed: &mut Seed, who: Who) -> Fault {
    let off_s = seed.between(3_600, 43_200) as i64;
    Fault::SetClock(who, if seed.between(0, 1) == 0 { off_s } else { -off_s })
}

/// What may come with another.
fn beside(seed: &mut Seed) -> Fault {
    let who = who(seed);
    match seed.between(0, 4) {
        0 => Fault::Break,
        1 => Fault::CloseDoor(who),
        2 => Fault::MuteDoor(who),
        3 => Fault::Kill(who),
        _ => Fault::Stop(who),
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
        let kind = |fault: &Fault| format!("{fault:?}").split('(').next().map(str::to_owned);
        let plans = (0..200).flat_map(|seed| plan(seed, 8).steps);
        let kinds: std::collections::BTreeSet<_> =
            plans.flat_map(|step| step.faults).map(|fault| kind(&fault)).collect();
        assert_eq!(kinds.len(), 20, "{kinds:?}");
    }
}

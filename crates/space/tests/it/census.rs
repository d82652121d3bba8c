//! Tests that every entity of a world is counted once, at whichever step of a handover the states of the regions are
//! read.

use super::*;

const EDGE: f32 = 100.0;

/// Two regions with three entities: one flies from region 1 into region 2, and one stays in each region.
struct Pair {
    regions: [Region<3, dunlin_space::behaviour::Oscillation>; 2],
    outs: [RegionOutputs; 2],
    now: u64,
    /// For each of the two regions, all states that a reader could have read at some time.
    read: [Vec<RegionState<3>>; 2],
}

impl Pair {
    fn new() -> Pair {
        let behaviour = dunlin_space::behaviour::Oscillation { low: 1.0, high: 99.0 };
        let region = |id| {
            let setup = RegionSetup::new(RegionId(id), WorldBox::cube(EDGE).unwrap(), 5.0);
            let partition = Partition::even(3, &[RegionId(1), RegionId(2)]);
            Region::new(setup, behaviour, partition, RegionAuthority { epoch: 1, until_ns: u64::MAX })
        };
        let mut pair = Pair {
            regions: [region(1), region(2)],
            outs: Default::default(),
            now: 0,
            read: Default::default(),
        };
        for side in 0..2 {
            let other = RegionId(2 - side as u32);
            pair.regions[side].record_peer_epoch(other, 1, 0, &mut pair.outs[side]).unwrap();
        }
        // Opposite corners of the world are in different regions, along whichever axis the curve is cut.
        pair.regions[0].spawn(&Entity::at(1, [10.0; 3]), &mut pair.outs[0]).unwrap();
        pair.regions[1].spawn(&Entity::at(2, [90.0; 3]), &mut pair.outs[1]).unwrap();
        let crossing = Entity { velocity: [25.0; 3], ..Entity::at(3, [49.9; 3]) };
        pair.regions[0].spawn(&crossing, &mut pair.outs[0]).unwrap();
        pair.record_states();
        pair
    }

    fn record_states(&mut self) {
        for side in 0..2 {
            self.read[side].push(self.regions[side].state().clone());
        }
    }

    /// Delivers one message from region `from` to the other region; returns whether there was a message.
    fn deliver_one(&mut self, from: usize) -> bool {
        if self.outs[from].messages.is_empty() {
            return false;
        }
        let (_, message) = self.outs[from].messages.remove(0);
        let to = 1 - from;
        self.regions[to].receive(&message, self.now, &mut self.outs[to]).unwrap();
        self.record_states();
        true
    }

    fn run_until_handed_over(&mut self) {
        while self.regions[0].handover().counts().departed == 0
            || self.outs.iter().any(|out| !out.messages.is_empty())
        {
            self.now += 20_000_000;
            assert!(self.now < 10_000_000_000, "the entity is not handed over in time");
            for side in 0..2 {
                self.regions[side].tick(self.now, &mut self.outs[side]).unwrap();
                self.record_states();
            }
            while self.deliver_one(0) || self.deliver_one(1) {}
        }
    }
}

#[test]
fn entity_in_handover_is_counted_once() {
    let mut pair = Pair::new();
    pair.run_until_handed_over();
    assert_eq!(pair.regions[1].handover().counts().admitted, 1);
    let (mut in_none, mut in_two) = (0, 0);
    for (nth, first) in pair.read[0].iter().enumerate() {
        let second = &pair.read[1][nth];
        let census = Census::of([first, second]);
        assert_eq!(census.len(), 3, "read {nth}");
        let counted = [1, 2].map(|region| census.headcount(RegionId(region)));
        let in_handover = counted.iter().map(|count| count.in_handover).sum::<usize>();
        assert_eq!(counted.iter().map(|count| count.active).sum::<usize>() + in_handover, 3);
        assert_eq!(
            census.find(EntityId(3)).map(|(_, in_handover)| usize::from(in_handover)),
            Some(in_handover)
        );
        in_none += usize::from(first.store().len() + second.store().len() == 2);
        assert_eq!(in_handover == 1, first.store().len() + second.store().len() == 2);
        // The second region is read at the same time as the first region, or later.
        for later in &pair.read[1][nth..] {
            assert_eq!(Census::of([first, later]).len(), 3, "read {nth}");
            in_two += usize::from(first.store().len() + later.store().len() == 4);
        }
    }
    assert!(in_none > 0 && in_two > 0, "{in_none}, {in_two}: the stores alone count it right");
}

#[test]
fn census_of_states_from_different_ticks_may_lack_an_entity() {
    let mut pair = Pair::new();
    pair.run_until_handed_over();
    let whole = Census::of([&pair.read[0][0], &pair.read[1][0]]);
    let last = pair.read[0].len() - 1;
    let torn = Census::of([&pair.read[0][last], &pair.read[1][0]]);
    assert_eq!((torn.len(), torn.missing_count(&whole), whole.missing_count(&torn)), (2, 1, 0));
}

//! Division of workers' slots among shards.

use proptest::prelude::*;

use super::*;

fn want(demand: u64, weight: u32) -> TenantDemand {
    TenantDemand { demand, weight, kept: 0 }
}

const MANY: u64 = 1_000_000;

#[test]
fn slots_of_a_shard_follow_its_tenants_weight_and_demand() {
    assert_eq!(due(&[vec![want(MANY, 1); 3], vec![want(MANY, 1)]], 100), [75.0, 25.0]);
    assert_eq!(due(&[vec![want(10, 1)], vec![want(MANY, 1)], vec![want(MANY, 2)]], 100), [10.0, 30.0, 60.0]);
    // Slots that no tenant can use are divided evenly.
    assert_eq!(due(&[vec![want(2, 1)], vec![want(3, 5)], vec![]], 11), [4.0, 5.0, 2.0]);
    assert_eq!(due(&[vec![], vec![]], 10), [5.0, 5.0]);
}

#[test]
fn reserved_slots_belong_to_their_tenants_shard() {
    let kept = TenantDemand { demand: 0, weight: 1, kept: 30 };
    assert_eq!(due(&[vec![kept], vec![want(MANY, 1), want(MANY, 1)]], 100), [30.0, 70.0]);
    let busy = TenantDemand { demand: MANY, weight: 1, kept: 10 };
    assert_eq!(due(&[vec![busy], vec![want(MANY, 1)]], 100), [50.0, 50.0]);
    // More slots are reserved than there are.
    let much = TenantDemand { demand: 0, weight: 1, kept: 300 };
    assert_eq!(due(&[vec![much], vec![TenantDemand { kept: 100, ..much }]], 100), [75.0, 25.0]);
}

#[test]
fn single_slot_rotates_among_shards_by_weight() {
    let mut dealer = SlotApportioner::default();
    let due = due(&[vec![want(9, 1)], vec![want(9, 2)], vec![want(9, 1)]], 1);
    let mut had = [0; 3];
    for _ in 0..400 {
        let dealt = dealer.deal(1, &due);
        (0..3).for_each(|at| had[at] += dealt[at]);
    }
    assert_eq!(had, [100, 200, 100]);
}

fn wants() -> impl Strategy<Value = Vec<Vec<TenantDemand>>> {
    let one = (0..50u64, 1..20u32, 0..4u64).prop_map(|(demand, weight, kept)| TenantDemand {
        demand,
        weight,
        kept,
    });
    prop::collection::vec(prop::collection::vec(one, 0..6), 1..8)
}

/// Workers with random slots, and random numbers of tasks in them.
fn seats(shards: usize) -> impl Strategy<Value = Vec<WorkerSlots>> {
    let one = (1..9u32, 0..3u32, prop::collection::vec(0..9u32, shards));
    let seat = |(slots, ahead, mut allotted): (u32, u32, Vec<u32>)| {
        let mut left = slots;
        allotted.iter_mut().for_each(|has| {
            *has = (*has).min(left);
            left -= *has;
        });
        WorkerSlots { slots, ahead, pending: left, held: allotted.clone(), allotted }
    };
    prop::collection::vec(one.prop_map(seat), 1..12)
}

proptest! {
    #[test]
    fn all_slots_are_allotted_and_each_shard_with_demand_gets_some(shards in wants(), slots in 1..500u64) {
        let due = due(&shards, slots);
        prop_assert!((due.iter().sum::<f64>() - slots as f64).abs() < 1e-6, "{due:?}");
        let is_kept = shards.iter().flatten().any(|want| want.kept > 0);
        for (wants, due) in shards.iter().zip(&due) {
            let can_use: u64 = wants.iter().map(|want| want.demand.max(want.kept)).sum();
            // If slots are reserved for tenants of some shards, none may be left for the others.
            prop_assert!(is_kept || can_use == 0 || *due > 0.0);
        }
    }

    #[test]
    fn shard_is_at_most_one_slot_below_its_exact_share(rounds in prop::collection::vec((wants(), 1..40u64), 1..60)) {
        let shards = rounds[0].0.len();
        let (mut dealer, mut owed) = (SlotApportioner::default(), vec![0.0; shards]);
        for (wants, slots) in rounds.iter().filter(|(wants, _)| wants.len() == shards) {
            let due = due(wants, *slots);
            let dealt = dealer.deal(*slots, &due);
            prop_assert_eq!(dealt.iter().sum::<u64>(), *slots);
            for at in 0..shards {
                prop_assert!(dealt[at] as f64 >= due[at] - 1.0 - 1e-6, "{:?} of {:?}", dealt, due);
                owed[at] = if due[at] > 0.0 { owed[at] + due[at] - dealt[at] as f64 } else { 0.0 };
                prop_assert!(owed[at].abs() <= shards as f64, "{:?}", owed);
            }
        }
    }

    #[test]
    fn allotted_slots_converge_within_each_workers_task_limit(
        (mut seats, parts) in (2..6usize).prop_flat_map(|shards| (seats(shards), prop::collection::vec(1..100u32, shards))),
        ends in prop::collection::vec(any::<u8>(), 64),
    ) {
        let slots: u64 = seats.iter().map(|seat| u64::from(seat.slots)).sum();
        let due: Vec<f64> = parts.iter().map(|part| f64::from(*part)).collect();
        let dealt = SlotApportioner::default().deal(slots, &due);
        for turn in 0..1_000 {
            place(&dealt, &mut seats, true);
            for (at, seat) in seats.iter_mut().enumerate() {
                let (has, held) = (seat.allotted.iter().sum::<u32>(), seat.held.iter().sum::<u32>());
                prop_assert_eq!(has + seat.pending, seat.slots);
                prop_assert!(held <= seat.slots + seat.ahead, "{:?}", seat);
                // Tasks end, and shards with room start others.
                for shard in 0..seat.held.len() {
                    let ends = u32::from(ends[(turn + 7 * at + 3 * shard) % ends.len()] % 3);
                    seat.held[shard] = seat.held[shard].saturating_sub(ends).max(seat.allotted[shard]);
                    if ends > 0 && seat.held[shard] > seat.allotted[shard] {
                        seat.held[shard] -= 1;
                    }
                }
            }
            let has: Vec<u64> = (0..dealt.len()).map(|at| seats.iter().map(|seat| u64::from(seat.allotted[at])).sum()).collect();
            if has == dealt {
                return Ok(());
            }
            // In every 50th round, the longest tasks end too.
            if turn % 50 == 49 {
                seats.iter_mut().for_each(|seat| seat.held.clone_from(&seat.allotted));
            }
        }
        prop_assert!(false, "slots do not come to be {:?}: {:?}", dealt, seats);
    }
}

//! Tests of the division of workers' slots among shards.

use proptest::prelude::*;

use super::*;

fn tenant_demand(demand: u64, weight: u32) -> TenantDemand {
    TenantDemand { demand, weight, reserved: 0 }
}

const MANY: u64 = 1_000_000;

#[test]
fn shard_gets_slots_by_weight_and_demand_of_its_tenants() {
    assert_eq!(
        due_slots(&[vec![tenant_demand(MANY, 1); 3], vec![tenant_demand(MANY, 1)]], 100),
        [75.0, 25.0]
    );
    assert_eq!(
        due_slots(
            &[vec![tenant_demand(10, 1)], vec![tenant_demand(MANY, 1)], vec![tenant_demand(MANY, 2)]],
            100
        ),
        [10.0, 30.0, 60.0]
    );
    // Slots that no tenant can use are divided evenly.
    assert_eq!(
        due_slots(&[vec![tenant_demand(2, 1)], vec![tenant_demand(3, 5)], vec![]], 11),
        [4.0, 5.0, 2.0]
    );
    assert_eq!(due_slots(&[vec![], vec![]], 10), [5.0, 5.0]);
}

#[test]
fn reserved_slots_go_to_the_shard_of_their_tenant() {
    let reserved = TenantDemand { demand: 0, weight: 1, reserved: 30 };
    assert_eq!(
        due_slots(&[vec![reserved], vec![tenant_demand(MANY, 1), tenant_demand(MANY, 1)]], 100),
        [30.0, 70.0]
    );
    let busy = TenantDemand { demand: MANY, weight: 1, reserved: 10 };
    assert_eq!(due_slots(&[vec![busy], vec![tenant_demand(MANY, 1)]], 100), [50.0, 50.0]);
    // More slots are reserved than there are.
    let over_reserved = TenantDemand { demand: 0, weight: 1, reserved: 300 };
    assert_eq!(
        due_slots(&[vec![over_reserved], vec![TenantDemand { reserved: 100, ..over_reserved }]], 100),
        [75.0, 25.0]
    );
}

#[test]
fn single_slot_rotates_among_shards_by_weight() {
    let mut apportioner = SlotApportioner::default();
    let due =
        due_slots(&[vec![tenant_demand(9, 1)], vec![tenant_demand(9, 2)], vec![tenant_demand(9, 1)]], 1);
    let mut counts = [0; 3];
    for _ in 0..400 {
        let targets = apportioner.apportion(1, &due);
        (0..3).for_each(|at| counts[at] += targets[at]);
    }
    assert_eq!(counts, [100, 200, 100]);
}

fn tenant_demands() -> impl Strategy<Value = Vec<Vec<TenantDemand>>> {
    let one = (0..50u64, 1..20u32, 0..4u64).prop_map(|(demand, weight, reserved)| TenantDemand {
        demand,
        weight,
        reserved,
    });
    prop::collection::vec(prop::collection::vec(one, 0..6), 1..8)
}

/// Workers with random slots, and random numbers of tasks in them.
fn workers(shards: usize) -> impl Strategy<Value = Vec<WorkerSlots>> {
    let one = (1..9u32, 0..3u32, prop::collection::vec(0..9u32, shards));
    let worker = |(slots, ahead, mut allotted): (u32, u32, Vec<u32>)| {
        let mut left = slots;
        allotted.iter_mut().for_each(|has| {
            *has = (*has).min(left);
            left -= *has;
        });
        WorkerSlots { slots, ahead, pending: left, held: allotted.clone(), allotted }
    };
    prop::collection::vec(one.prop_map(worker), 1..12)
}

proptest! {
    #[test]
    fn exact_shares_of_all_shards_add_up_to_the_number_of_slots(shards in tenant_demands(), slots in 1..500u64) {
        let due = due_slots(&shards, slots);
        prop_assert!((due.iter().sum::<f64>() - slots as f64).abs() < 1e-6, "{due:?}");
        let any_reserved = shards.iter().flatten().any(|tenant| tenant.reserved > 0);
        for (tenants, due) in shards.iter().zip(&due) {
            let can_use: u64 = tenants.iter().map(|tenant| tenant.demand.max(tenant.reserved)).sum();
            // If slots are reserved for tenants of some shards, the other shards may be due no slot at all.
            prop_assert!(any_reserved || can_use == 0 || *due > 0.0);
        }
    }

    #[test]
    fn rounding_costs_a_shard_at_most_one_slot(rounds in prop::collection::vec((tenant_demands(), 1..40u64), 1..60)) {
        let shards = rounds[0].0.len();
        let (mut apportioner, mut owed) = (SlotApportioner::default(), vec![0.0; shards]);
        for (tenants, slots) in rounds.iter().filter(|(tenants, _)| tenants.len() == shards) {
            let due = due_slots(tenants, *slots);
            let targets = apportioner.apportion(*slots, &due);
            prop_assert_eq!(targets.iter().sum::<u64>(), *slots);
            for at in 0..shards {
                prop_assert!(targets[at] as f64 >= due[at] - 1.0 - 1e-6, "{:?} of {:?}", targets, due);
                owed[at] = if due[at] > 0.0 { owed[at] + due[at] - targets[at] as f64 } else { 0.0 };
                prop_assert!(owed[at].abs() <= shards as f64, "{:?}", owed);
            }
        }
    }

    #[test]
    fn shards_get_their_planned_slots_without_overloading_workers(
        (mut workers, parts) in (2..6usize).prop_flat_map(|shards| (workers(shards), prop::collection::vec(1..100u32, shards))),
        ends in prop::collection::vec(any::<u8>(), 64),
    ) {
        let slots: u64 = workers.iter().map(|worker| u64::from(worker.slots)).sum();
        let due: Vec<f64> = parts.iter().map(|part| f64::from(*part)).collect();
        let targets = SlotApportioner::default().apportion(slots, &due);
        for round in 0..1_000 {
            move_slots(&targets, &mut workers, true);
            for (at, worker) in workers.iter_mut().enumerate() {
                let (has, held) = (worker.allotted.iter().sum::<u32>(), worker.held.iter().sum::<u32>());
                prop_assert_eq!(has + worker.pending, worker.slots);
                prop_assert!(held <= worker.slots + worker.ahead, "{:?}", worker);
                // Tasks end, and shards with room start other tasks.
                for shard in 0..worker.held.len() {
                    let ends = u32::from(ends[(round + 7 * at + 3 * shard) % ends.len()] % 3);
                    worker.held[shard] = worker.held[shard].saturating_sub(ends).max(worker.allotted[shard]);
                    if ends > 0 && worker.held[shard] > worker.allotted[shard] {
                        worker.held[shard] -= 1;
                    }
                }
            }
            let has: Vec<u64> = (0..targets.len()).map(|at| workers.iter().map(|worker| u64::from(worker.allotted[at])).sum()).collect();
            if has == targets {
                return Ok(());
            }
            // In every 50th round, the longest tasks end too.
            if round % 50 == 49 {
                workers.iter_mut().for_each(|worker| worker.held.clone_from(&worker.allotted));
            }
        }
        prop_assert!(false, "slots do not converge to {:?}: {:?}", targets, workers);
    }
}

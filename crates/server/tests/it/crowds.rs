//! Tests worlds in which most entities walk to the same place. Regions must be rebalanced, and no entity may be lost.

use dunlin::space::{
    BalancePolicy, Behaviour, Entity, Host, Motion, NearbyEntities, OwnEntity, RegionId, RegionSetup,
    StandbyMode, TickContext, WorldBox,
};
use dunlin_client::Kv;
use dunlin_server::space::WorldRunner;

use crate::clients::connect;
use crate::serve;
use crate::worlds::{WorldMember, WorldSettings, until, wait_until_all_tick, wait_until_each_exists_once};

const REGIONS: [RegionId; 3] = [RegionId(1), RegionId(2), RegionId(3)];
const ENTITIES: u64 = 3_000;
/// Number of entities that walk to the place; the others stay where they are.
const WALKERS: usize = 2_400;
/// The place to which entities walk, and the distance from it at which they stop.
const PLACE: ([f32; 3], f32) = ([15.0, 15.0, 15.0], 12.0);
/// The loads of processes count as even if the largest load is at most this multiple of the mean load.
const EVEN: f64 = 1.15;

/// A behaviour with which entities walk to [`PLACE`].
#[derive(Clone)]
struct Gather;

impl Behaviour<3> for Gather {
    fn step(&self, own: &OwnEntity<3>, _: &impl NearbyEntities<3>, moment: &TickContext<3>) -> Motion<3> {
        let (place, near) = PLACE;
        let way: [f32; 3] = std::array::from_fn(|axis| place[axis] - own.position[axis]);
        let far = way.iter().map(|along| along * along).sum::<f32>().sqrt();
        if own.kind == 0 || far <= near {
            return Motion { position: own.position, velocity: [0.0; 3] };
        }
        let velocity = way.map(|along| along / far * 40.0);
        let position = std::array::from_fn(|axis| own.position[axis] + velocity[axis] * moment.seconds);
        Motion { position, velocity }
    }
}

fn populate(host: &mut Host<3, Gather>, region: RegionId) {
    for nth in 0..ENTITIES {
        let along = |axis: u64| ((nth + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 100.07;
        let kind = u32::from(nth % 5 != 0);
        let entity = Entity { kind, ..Entity::at(nth, [along(0), along(1), along(2)]) };
        if host.owner_of(&entity.position) == region {
            host.spawn(&entity).unwrap();
        }
    }
}

fn settings() -> WorldSettings<Gather> {
    let mut setup = RegionSetup::new(RegionId(0), WorldBox::cube(100.0).unwrap(), 4.0);
    (setup.tick_ns, setup.standby) = (20_000_000, StandbyMode::Required);
    let balance = Some(BalancePolicy { spare: 20.0, ..BalancePolicy::default() });
    WorldSettings {
        name: "crowded",
        setup,
        behaviour: Gather,
        regions: &REGIONS,
        expected: REGIONS.len(),
        balance,
        populate,
    }
}

fn version(member: &WorldMember<Gather>) -> u64 {
    member.space.call(|runner| runner.host().partition().version()).unwrap()
}

/// The largest number of entities in any process, divided by the mean number of entities in a process.
fn imbalance(members: &[WorldMember<Gather>]) -> f64 {
    let counts: Vec<usize> = members.iter().map(|member| member.ids().len()).collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    most as f64 * members.len() as f64 / ENTITIES as f64
}

/// The number of entities that have arrived at the place.
fn count_arrived(members: &[WorldMember<Gather>]) -> usize {
    let of_member = |member: &WorldMember<Gather>| {
        let count = |runner: &mut WorldRunner<3, Gather>| {
            let stores = runner.host().regions().map(|(_, region)| region.store());
            stores
                .map(|store| {
                    (0..store.len())
                        .filter(|row| has_arrived(store.kinds()[*row], &store.position(*row)))
                        .count()
                })
                .sum::<usize>()
        };
        member.space.call(count).unwrap()
    };
    members.iter().map(of_member).sum()
}

fn has_arrived(kind: u32, position: &[f32; 3]) -> bool {
    let (place, near) = PLACE;
    let far = (0..3).map(|axis| (place[axis] - position[axis]).powi(2)).sum::<f32>().sqrt();
    kind != 0 && far <= near
}

/// Stops the world's ticks, and checks that each entity exists exactly once.
fn assert_all_entities(kv: &Kv, members: &[WorldMember<Gather>]) {
    kv.put("space/crowded/hold/0", "1").unwrap();
    wait_until_each_exists_once(kv, members, 0..ENTITIES);
}

#[test]
fn entities_crowded_in_one_region_are_divided_among_processes() {
    let keys = serve();
    let kv = || connect(&keys.1).kv();
    let members: Vec<_> = (1..=3).map(|number| WorldMember::start(&settings(), kv(), number)).collect();
    wait_until_all_tick("all regions begin", &kv(), &members);
    // While the entities walk, the loads become uneven again and again, so that the partition changes several times.
    until("they have arrived, and loads are even", &kv(), &members, || {
        count_arrived(&members) == WALKERS && imbalance(&members) <= EVEN && version(&members[0]) >= 4
    });
    assert_all_entities(&kv(), &members);
    // Only one process may change the partition, and each new version must be announced exactly once.
    until("all go by the same cut, which was told once", &kv(), &members, || {
        let versions: Vec<u64> = members.iter().map(version).collect();
        let events = members.iter().flat_map(|member| member.events.lock().unwrap().clone());
        let cuts: Vec<String> = events.filter(|event| event.starts_with("Cut")).collect();
        let expected = (2..=versions[0]).map(|version| format!("Cut({version})"));
        versions.iter().all(|version| *version == versions[0]) && cuts.into_iter().eq(expected)
    });
}

#[test]
fn process_killed_during_repartitioning_loses_no_entity() {
    let keys = serve();
    let kv = || connect(&keys.1).kv();
    let mut members: Vec<_> = (1..=3).map(|number| WorldMember::start(&settings(), kv(), number)).collect();
    wait_until_all_tick("all regions begin", &kv(), &members);
    for round in 0..2 {
        // The killed process, `members[0]`, is also the one that decides on new partitions.
        let before = version(&members[0]);
        until("the curve is cut anew", &kv(), &members, || version(&members[0]) > before || round > 0);
        members.remove(0).kill();
        members.push(WorldMember::start(&settings(), kv(), 4 + round));
        wait_until_all_tick("all go on", &kv(), &members);
    }
    let newest = members.iter().map(version).max();
    until("all go by the same cut", &kv(), &members, || {
        members.iter().all(|member| Some(version(member)) >= newest)
    });
    until("it becomes even", &kv(), &members, || imbalance(&members) <= EVEN);
    assert_all_entities(&kv(), &members);
}

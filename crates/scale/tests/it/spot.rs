//! Tests of spot instances: how many there are, what happens when they are interrupted, and when on-demand instances
//! replace them.

use dunlin_scale::{
    InstanceMarket, InstancePhase, Policy, Provider, ProviderAction, ProviderDelays, ProviderEvent,
    SpotPolicy,
};

use super::simulation::{ScalerSimulation, calm, reliable_delays};

const SPOT: SpotPolicy = SpotPolicy { percent: 70, base: 4, fallback_after: 3, fallback_ms: 600_000 };

fn spot_count(simulation: &ScalerSimulation) -> usize {
    simulation
        .scaler
        .fleet()
        .iter()
        .filter(|(_, m)| m.market == InstanceMarket::Spot && m.phase == InstancePhase::Ready)
        .count()
}

#[test]
fn spot_percentage_applies_beyond_the_on_demand_minimum() {
    let simulation = ScalerSimulation::settled(Policy { spot: SPOT, ..Policy::cloud(24, 50) });
    assert_eq!(spot_count(&simulation), 14);
}

#[test]
fn interrupted_spot_worker_drains_and_is_replaced_at_once() {
    let mut simulation = ScalerSimulation::settled(Policy { spot: SPOT, ..Policy::cloud(24, 50) });
    let fleet = simulation.scaler.fleet();
    let (instance, _) = fleet.iter().find(|(_, member)| member.market == InstanceMarket::Spot).unwrap();
    let mut actions = Vec::new();
    let event = ProviderEvent::Interrupted { instance, notice_ms: 120_000 };
    simulation.scaler.on_event(simulation.now_ms, &event, &mut actions);
    assert_eq!(actions[0], ProviderAction::Drain { instance, grace_ms: 120_000 });
    assert!(matches!(
        actions[1],
        ProviderAction::Launch { market: InstanceMarket::Spot, is_warm: false, .. }
    ));
    assert_eq!(actions.len(), 2);
    actions.iter().for_each(|action| simulation.provider.act(simulation.now_ms, action));
    simulation.run(60, |_| calm());
    assert_eq!(simulation.ready(), 24);
}

#[test]
fn on_demand_workers_replace_refused_spot_workers_for_a_while() {
    let delays = ProviderDelays { spot_max: Some(5), ..reliable_delays() };
    let mut simulation = ScalerSimulation::new(Policy { spot: SPOT, ..Policy::cloud(24, 50) }, delays, 1);
    simulation.run(120, |_| calm());
    assert_eq!((simulation.ready(), spot_count(&simulation)), (24, 5));
    assert!(simulation.scaler.is_without_spot(simulation.now_ms));
    simulation.run(600, |_| calm());
    assert!(!simulation.scaler.is_without_spot(simulation.now_ms));
}

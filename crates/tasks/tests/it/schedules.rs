//! Tests of schedules.

use super::*;

const MIDNIGHT_MS: u64 = 1_700_006_400_000; // 2023-11-15 00:00 UTC
const HOUR_MS: u64 = 3_600_000;

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.advance(1_000);
    scene.must_apply(TaskCommand::Clock { unix_ms: MIDNIGHT_MS });
    scene
}

fn hourly(scene: &mut Scene) {
    scene.must_apply(TaskCommand::Schedule {
        tenant: b"a",
        name: b"report",
        cron: b"0 * * * *",
        task: work(),
    });
}

#[test]
fn schedule_submits_a_task_each_time_it_is_due() {
    let mut scene = scene();
    hourly(&mut scene);
    scene.advance(1_000 + HOUR_MS - 1);
    assert_eq!(scene.state.len(), 0);
    for hour in 1..=5 {
        scene.advance(1_000 + hour * HOUR_MS);
        assert_eq!(scene.state.len(), hour);
    }
    scene.must_apply(TaskCommand::Unschedule { tenant: b"a", name: b"report" });
    scene.advance(1_000 + 10 * HOUR_MS);
    assert_eq!(scene.state.len(), 5);
}

#[test]
fn several_missed_schedule_times_submit_a_single_task() {
    let mut scene = scene();
    hourly(&mut scene);
    scene.advance(1_000 + 7 * HOUR_MS + 5);
    assert_eq!(scene.state.len(), 1);
    scene.advance(1_000 + 8 * HOUR_MS);
    assert_eq!(scene.state.len(), 2);
}

#[test]
fn schedule_time_does_not_repeat_when_the_clock_is_set_back() {
    let mut scene = scene();
    hourly(&mut scene);
    scene.must_apply(TaskCommand::Clock { unix_ms: MIDNIGHT_MS + HOUR_MS - 10 });
    scene.advance(1_010);
    assert_eq!(scene.state.len(), 1, "01:00 has come");
    scene.must_apply(TaskCommand::Clock { unix_ms: MIDNIGHT_MS + HOUR_MS - 10 });
    scene.advance(1_030);
    assert_eq!(scene.state.len(), 1, "and does not again");
    scene.advance(1_030 + HOUR_MS);
    assert_eq!(scene.state.len(), 2);
}

#[test]
fn start_time_of_a_submitted_task_is_unaffected_by_clock_change() {
    let mut scene = scene();
    let task = scene.submit(NewTask { not_before_ms: MIDNIGHT_MS + 500, ..work() });
    let past = NewTask { deadline_ms: MIDNIGHT_MS - 250, ..work() };
    let refused = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![past] });
    assert_eq!(refused, Err(TaskRefusal::DeadlinePast { by_ms: 250 }));
    scene.must_apply(TaskCommand::Clock { unix_ms: MIDNIGHT_MS - 24 * HOUR_MS });
    scene.advance(1_499);
    assert_eq!(scene.stage(task), TaskStage::Delayed);
    scene.advance(1_500);
    assert_eq!(scene.stage(task), TaskStage::Ready);
}

#[test]
fn scheduled_task_publishes_its_record_at_each_due_time() {
    let mut scene = scene();
    let task = NewTask { kind: PUBLISH, subject: b"tick", ..work() };
    scene.must_apply(TaskCommand::Schedule { tenant: b"a", name: b"tick", cron: b"*/30 * * * * *", task });
    scene.advance(1_000 + 60_000);
    assert_eq!(scene.effects.publishes.len(), 1);
    scene.advance(1_000 + 90_000);
    assert_eq!(
        scene.effects.publishes.iter().filter(|publish| &*publish.subject == b"tick").count(),
        3,
        "one of them again"
    );
}

#[test]
fn schedule_that_is_never_due_within_fifty_years_is_refused() {
    let mut scene = scene();
    let mut schedule = |cron: &'static [u8]| {
        let (tenant, name, task) = (&b"a"[..], &b"rare"[..], work());
        scene.apply(TaskCommand::Schedule { tenant, name, cron, task })
    };
    assert_eq!(schedule(b"0 0 29 2 *"), Ok(CommandReply::Done));
    assert_eq!(schedule(b"0 0 0 1 1 * 2073"), Ok(CommandReply::Done));
    for cron in [&b"0 0 0 1 1 * 2074"[..], b"0 0 30 2 *", b"0 0 31 4,6,9,11 *", b"0 0 8 * +MON#1"] {
        assert_eq!(schedule(cron), Err(TaskRefusal::Cron), "{}", String::from_utf8_lossy(cron));
    }
}

#[test]
fn scheduler_knows_if_more_timers_than_a_limit_are_due() {
    let mut scene = Scene::new();
    scene.submit_all("a", vec![NewTask { not_before_ms: 100, ..work() }; 10]);
    assert!(!scene.state.has_more_due(99, 0));
    assert!(scene.state.has_more_due(100, 9) && !scene.state.has_more_due(100, 10));
    scene.advance(100);
    assert!(!scene.state.has_more_due(100, 0));
}

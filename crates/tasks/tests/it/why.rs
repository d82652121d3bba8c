//! Tests of the explanations of why a task does not run.

use super::*;

#[test]
fn task_explanation_is_one_sentence_with_numbers() {
    let mut scene = Scene::default();
    let limits = vec![KeyLimit::running(b"user", 1)];
    scene.set_tenant(TenantSettings { concurrency: Quota::at_most(3), limits, ..TenantSettings::new(b"a") });
    scene.set_tenant(TenantSettings::new(b"b"));
    let first = scene.submit_plain();
    assert_eq!(
        scene.why(first),
        "waiting: no worker serves kind work in queue default; tasks ahead of it: 0"
    );
    scene.submit_all("a", vec![work(); 12]);
    let last = scene.submit_plain();
    scene.join(5);
    assert_eq!(scene.why(last), "waiting: tenant a uses 3 of 3 allowed tasks; tasks ahead of it: 10");
    scene.advance(2_500);
    assert_eq!(
        scene.why(last),
        "waiting: tenant a uses 3 of 3 allowed tasks; tasks ahead of it: 10; it starts in about 8.3 s"
    );
    let running = scene.starts().remove(0);
    assert_eq!(scene.why(first), format!("running: at worker {:x} for 2.5 s, attempt 1", running.worker));
    let other = scene.submit_all("b", vec![work(); 4])[3];
    assert_eq!(
        scene.why(other),
        "waiting: all 1 workers are busy, and tenant b has 2 running tasks; tasks ahead of it: 1"
    );
    let of_ann = || NewTask { labels: vec![Label { key: b"user", value: b"ann" }], ..work() };
    let ann = scene.submit_all("a", vec![of_ann(), of_ann(), of_ann()]);
    assert_eq!(
        scene.why(ann[2]),
        "waiting: 0 of 1 allowed tasks with user ann are running, 1 more wait for a worker; tasks ahead of it: 1"
    );
    let later = scene.submit(NewTask { not_before_ms: 62_500, ..work() });
    assert_eq!(scene.why(later), "waiting: it may start in 1 min");
    let after = scene.submit(NewTask { after: vec![TaskDependency::Task { task: later }], ..work() });
    assert_eq!(
        scene.why(after),
        format!("waiting: other tasks must be completed first (1): {later:x} (waiting)")
    );
    scene.must_apply(TaskCommand::Cancel { task: later });
    assert_eq!(scene.why(later), "cancelled 0 ms ago");
}

#[test]
fn task_explanation_names_the_outcome_of_the_last_attempt() {
    let mut scene = Scene::new();
    let retry = Some(RetryPolicy { retries: 1, backoff: Backoff::Fixed { delay_ms: 3_000 } });
    let task = scene.submit(NewTask { retry, ..work() });
    scene.join(1);
    let start = scene.only_start();
    scene.fail(&start, true).unwrap();
    assert_eq!(scene.why(task), "waiting: attempt 1 failed; retry 1 of 1 starts in 3 s");
    scene.advance(3_000);
    let start = scene.only_start();
    scene.fail(&start, true).unwrap();
    assert_eq!(scene.why(task), "dead: attempt 2 failed 0 ms ago: no luck");
    let next = scene.submit_plain();
    let start = scene.only_start();
    scene.complete(&start, 2_000).unwrap();
    assert_eq!(scene.why(next), "completed 0 ms ago, after 2 ms of work");
    assert_eq!(scene.state.why(99).unwrap_err(), TaskRefusal::NoTask { task: 99 });
}

//! Tests of the encoding of queries, results and orders.

use super::*;

fn check_round_trip<T: PartialEq + std::fmt::Debug>(
    value: &T,
    encode: impl Fn(&T, &mut Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, TaskDecodeError>,
) {
    let mut bytes = Vec::new();
    encode(value, &mut bytes);
    assert_eq!(decode(&bytes).as_ref(), Ok(value));
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len} of {} bytes of {value:?}", bytes.len());
    }
}

#[test]
fn every_query_and_its_result_are_read_back_as_written() {
    let mut scene = Scene::new();
    let labels = vec![Label { key: b"user", value: b"ann" }];
    let first = scene.submit(NewTask { labels, ..work() });
    scene.submit_all("a", vec![work(); 5]);
    scene.join(2);
    let start = scene.starts().remove(0);
    scene.complete(&start, 1_000).unwrap();
    let filter = ListFilter { tenant: b"a", kind: b"work", ..ListFilter::default() };
    for query in [
        TaskQuery::Get { task: first },
        TaskQuery::List { filter: filter.clone(), from: 0, limit: 0, whole: true },
        TaskQuery::Why { task: first },
        TaskQuery::Queues { tenant: b"" },
        TaskQuery::Tenants { tenant: b"a" },
        TaskQuery::Workers,
        TaskQuery::Signals,
        TaskQuery::Status,
    ] {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        assert_eq!(TaskQuery::decode(&bytes).as_ref(), Ok(&query));
        let result = scene.state.answer(&query).unwrap();
        check_round_trip(&result, TaskQueryResult::encode, TaskQueryResult::decode);
    }
    assert_eq!(scene.state.answer(&TaskQuery::Get { task: 9 }), Err(TaskRefusal::NoTask { task: 9 }));
    let none = scene.state.answer(&TaskQuery::Tenants { tenant: b"nobody" }).unwrap();
    assert_eq!(none, TaskQueryResult::Tenants { tenants: vec![] });
}

#[test]
fn task_list_is_paged_and_has_payloads_only_on_request() {
    let mut scene = Scene::new();
    let ids = scene.submit_all("a", vec![work(); 25]);
    let mut result = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let query =
            TaskQuery::List { filter: ListFilter::default(), from: at, limit: 10, whole: result.is_empty() };
        let Ok(TaskQueryResult::Tasks { tasks, next, .. }) = scene.state.answer(&query) else {
            panic!("{query:?}")
        };
        assert!(tasks.len() <= 10);
        result.extend(tasks);
        from = next;
    }
    assert_eq!(result.iter().map(|task| task.task).collect::<Vec<_>>(), ids);
    assert_eq!((&*result[0].payload, &*result[10].payload), (&b"payload"[..], &b""[..]));
}

#[test]
fn start_and_stop_messages_of_tasks_are_read_back_as_written() {
    let mut scene = Scene::new();
    scene.submit_all("a", vec![work(); 3]);
    let worker = scene.join(5);
    let starts = scene.starts();
    let held = scene.state.held(worker).unwrap();
    assert_eq!((&held.starts, held.credit, held.is_draining), (&starts, 2, false));
    scene.must_apply(TaskCommand::Cancel { task: starts[1].task });
    let stop = WorkerOrder::Stop { worker, task: starts[1].task, token: starts[1].token };
    assert_eq!(scene.state.held(worker).unwrap().stops, std::slice::from_ref(&stop));
    assert_eq!(scene.state.held(worker + 1), Err(TaskRefusal::NoWorker { worker: worker + 1 }));
    assert_eq!(scene.state.tenant_of_task(starts[0].task), Some(&b"a"[..]));
    let orders = [WorkerOrder::Start(starts[0].clone()), stop, WorkerOrder::Drained { worker }];
    let mut bytes = Vec::new();
    WorkerOrder::begin(&mut bytes);
    orders.iter().for_each(|order| order.encode(&mut bytes));
    assert_eq!(WorkerOrder::decode_all(&bytes).unwrap(), orders);
    assert!(
        (1..bytes.len())
            .all(|len| WorkerOrder::decode_all(&bytes[..len]).ok().as_deref() != Some(&orders[..]))
    );
}

#[test]
fn request_to_attach_a_worker_is_read_back_as_written() {
    let new = NewWorker { name: b"w", kinds: vec![b"k"], ttl_ms: 5, ..NewWorker::default() };
    let attach = AttachRequest { worker: 1, epoch: 2, slots: 3, ahead: 6, held: vec![(4, 5)], new };
    let mut bytes = Vec::new();
    attach.encode(&mut bytes);
    assert_eq!(AttachRequest::decode(&bytes), Ok(attach));
    let response = AttachResponse { worker: 1, epoch: 2, lost: vec![(3, 4)] };
    check_round_trip(&response, AttachResponse::encode, AttachResponse::decode);
    let outcome = TaskCommandOutcome::from(Err(TaskRefusal::NoTenant));
    check_round_trip(&outcome, TaskCommandOutcome::encode, TaskCommandOutcome::decode);
}

#[test]
fn creating_an_existing_tenant_again_keeps_its_settings() {
    let mut scene = Scene::default();
    scene.must_apply(TaskCommand::EnsureTenant { tenant: b"new" });
    scene.set_tenant(TenantSettings { weight: 7, ..TenantSettings::new(b"new") });
    scene.must_apply(TaskCommand::EnsureTenant { tenant: b"new" });
    let tenants: Vec<_> = scene.state.tenants().collect();
    assert_eq!((tenants.len(), tenants[0].weight), (1, 7));
    assert_eq!(scene.apply(TaskCommand::EnsureTenant { tenant: b"" }), Err(TaskRefusal::EmptyName));
}

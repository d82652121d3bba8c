//! Tests the gRPC service `dunlin.v1.Tasks` with a generated client.

use dunlin_server::grpc::proto::dunlin as v1;
use tonic::Code;
use tonic::transport::Channel;
use v1::tasks_client::TasksClient;

use super::kv::refused;
use super::{channel, run, serve_grpc, until};

type Tasks = TasksClient<Channel>;

async fn connect_tasks(server: &dunlin_server::Server) -> Tasks {
    TasksClient::new(channel(server).await)
}

fn draft(kind: &str) -> v1::TaskDraft {
    v1::TaskDraft { kind: kind.to_owned(), payload: "payload".into(), ..Default::default() }
}

async fn submit(client: &mut Tasks, tenant: &str, tasks: Vec<v1::TaskDraft>) -> Vec<v1::TakenTask> {
    let request = v1::SubmitTasksRequest { tenant: tenant.to_owned(), tasks };
    client.submit(request).await.unwrap().into_inner().tasks
}

async fn get(client: &mut Tasks, task: u64) -> v1::TaskInfo {
    let request = v1::GetTaskRequest { task, stale: false };
    client.get(request).await.unwrap().into_inner().task.unwrap()
}

fn label(key: &str, value: &str) -> v1::TaskLabel {
    v1::TaskLabel { key: key.to_owned(), value: value.to_owned() }
}

#[test]
fn grpc_call_may_submit_as_many_tasks_as_the_scheduler_allows() {
    run(async {
        let (node, server) = serve_grpc();
        let mut client = connect_tasks(&server).await;
        submit(&mut client, "acme", vec![draft("k")]).await;
        let before = node.budget().used();
        // The scheduler accepts at most 10,000 tasks in one request.
        let labels = vec![label("user", "ann"), label("zone", "eu")];
        let tasks = vec![v1::TaskDraft { labels, ..draft("k") }; 10_000];
        let taken = submit(&mut client, "acme", tasks).await;
        assert_eq!(taken.len(), 10_000);
        let charged = 10_000 * size_of::<v1::TaskDraft>() as u64;
        until(async || node.budget().used() < before + charged).await;
    });
}

#[test]
fn grpc_client_submits_finds_explains_and_cancels_tasks() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_tasks(&server).await;
        let first = v1::TaskDraft {
            queue: "q".to_owned(),
            priority: Some(9),
            timeout_ms: 5_000,
            retry: Some(v1::RetryPolicy { retries: 2, delay: Some(v1::retry_policy::Delay::FixedMs(7)) }),
            idempotency_key: "once".into(),
            labels: vec![label("user", "ann")],
            needs: vec![label("zone", "eu"), label("gpu", "a100")],
            cpu_milli: 500,
            memory_bytes: 1_000,
            ..draft("k")
        };
        let task_reference = Some(v1::task_after::TaskReference::Index(0));
        let second = v1::TaskDraft { after: vec![v1::TaskAfter { task_reference }], ..draft("k") };
        let taken = submit(&mut client, "acme", vec![first.clone(), second]).await;
        assert_eq!(taken.iter().map(|taken| taken.known).collect::<Vec<_>>(), [false, false]);
        let again = submit(&mut client, "acme", vec![first]).await;
        assert_eq!((again[0].task, again[0].known), (taken[0].task, true));
        let found = get(&mut client, taken[0].task).await;
        let words = (found.tenant.as_str(), found.queue.as_str(), found.kind.as_str(), &found.payload[..]);
        assert_eq!(words, ("acme", "q", "k", &b"payload"[..]));
        assert_eq!((found.stage(), found.priority), (v1::TaskStage::Ready, 9));
        assert_eq!((found.cpu_milli, found.memory_bytes), (500, 1_000));
        assert_eq!(
            (&found.labels[..], &found.needs[..]),
            (&[label("user", "ann")][..], &[label("gpu", "a100"), label("zone", "eu")][..])
        );
        assert_eq!(get(&mut client, taken[1].task).await.after, [taken[0].task]);
        let why =
            client.why(v1::WhyRequest { task: taken[1].task, stale: true }).await.unwrap().into_inner().why;
        assert!(why.starts_with("waiting: other tasks must be completed first (1)"), "{why}");
        let stage = v1::TaskStage::Blocked.into();
        let request = v1::ListTasksRequest { tenant: "acme".to_owned(), stage, ..Default::default() };
        let listed = client.list(request.clone()).await.unwrap().into_inner();
        assert_eq!(listed.tasks.iter().map(|task| task.task).collect::<Vec<_>>(), [taken[1].task]);
        assert!(listed.tasks[0].payload.is_empty(), "the payload was not requested");
        let of_ann =
            v1::ListTasksRequest { stage: 0, label: Some(label("user", "ann")), whole: true, ..request };
        let listed = client.list(of_ann).await.unwrap().into_inner();
        assert_eq!(&listed.tasks[0].payload[..], b"payload");
        let page = v1::ListTasksRequest { limit: 1, ..Default::default() };
        let page = client.list(page).await.unwrap().into_inner();
        let next = v1::ListTasksRequest { limit: 1, from: page.next.unwrap(), ..Default::default() };
        let next = client.list(next).await.unwrap().into_inner();
        assert_eq!((page.tasks.len(), next.tasks.len()), (1, 1));
        assert_ne!(page.tasks[0].task, next.tasks[0].task);
        client.cancel(v1::CancelTaskRequest { task: taken[0].task }).await.unwrap();
        assert_eq!(get(&mut client, taken[1].task).await.stage(), v1::TaskStage::Cancelled);
        let over = refused(client.cancel(v1::CancelTaskRequest { task: taken[0].task }).await);
        assert_eq!(over, (Code::FailedPrecondition, "TASK_OVER".to_owned()));
    });
}

#[test]
fn dead_tasks_are_retried_one_by_one_or_all_together() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_tasks(&server).await;
        // On a slow machine, the short deadlines may pass before the tasks are submitted. The tasks are then refused,
        // and a longer deadline is tried.
        let mut dead = Vec::new();
        for patience_ms in [500, 5_000, 50_000] {
            let deadline_ms = dunlin::now_ns() / 1_000_000 + patience_ms;
            let tasks = vec![v1::TaskDraft { deadline_ms, ..draft("k") }; 3];
            let request = v1::SubmitTasksRequest { tenant: String::new(), tasks };
            if let Ok(taken) = client.submit(request).await {
                dead = taken.into_inner().tasks.iter().map(|taken| taken.task).collect();
                break;
            }
        }
        assert_eq!(dead.len(), 3);
        for &task in &dead {
            until(async || get(&mut client, task).await.stage() == v1::TaskStage::Dead).await;
        }
        let outcome = get(&mut client, dead[0]).await.outcome.unwrap();
        assert_eq!(outcome.failure(), v1::TaskFailure::Deadline);
        client.retry(v1::RetryTaskRequest { task: dead[0] }).await.unwrap();
        assert_eq!(get(&mut client, dead[0]).await.stage(), v1::TaskStage::Ready);
        let none = refused(client.retry(v1::RetryTaskRequest { task: dead[0] }).await);
        assert_eq!(none, (Code::FailedPrecondition, "TASK_OVER".to_owned()));
        let begun =
            client.redrive(v1::RedriveRequest { count: 1, ..Default::default() }).await.unwrap().into_inner();
        assert_eq!((begun.changed, begun.more), (1, true));
        let begun = client.redrive(v1::RedriveRequest::default()).await.unwrap().into_inner();
        assert_eq!((begun.changed, begun.more), (1, false));
    });
}

#[test]
fn invalid_grpc_task_calls_are_refused_with_their_code() {
    run(async {
        let (_node, server) = serve_grpc();
        let mut client = connect_tasks(&server).await;
        let submission =
            |task: v1::TaskDraft| v1::SubmitTasksRequest { tasks: vec![task], ..Default::default() };
        let bad = (Code::InvalidArgument, "BAD_TASK".to_owned());
        let retries = v1::RetryPolicy { retries: 70_000, ..Default::default() };
        for task in [
            draft(""),
            v1::TaskDraft { priority: Some(10), ..draft("k") },
            v1::TaskDraft { priority: Some(300), ..draft("k") },
            v1::TaskDraft { retry: Some(retries), ..draft("k") },
            v1::TaskDraft { after: vec![v1::TaskAfter::default()], ..draft("k") },
            v1::TaskDraft { subject: "s".to_owned(), ..draft("k") },
            v1::TaskDraft { deadline_ms: 1, ..draft("k") },
        ] {
            assert_eq!(refused(client.submit(submission(task.clone())).await), bad, "{task:?}");
        }
        let unknown = v1::TaskAfter { task_reference: Some(v1::task_after::TaskReference::Task(0xabc)) };
        let many = vec![label("a", "b"); 65];
        for (task, reason) in [
            (v1::TaskDraft { priority: Some(300), ..draft("k") }, "priority 300 is not one of 0 to 9"),
            (draft(&"k".repeat(300)), "the kind is too long: name_bytes_max = 255, but the size is 300"),
            (
                v1::TaskDraft { needs: many.clone(), ..draft("k") },
                "labels_max = 64, but the number would be 65",
            ),
            (v1::TaskDraft { after: vec![unknown], ..draft("k") }, "waits for task abc, which is not known"),
        ] {
            let status = client.submit(submission(task)).await.unwrap_err();
            assert!(status.message().contains(reason), "{status}");
        }
        let limit = refused(client.submit(submission(v1::TaskDraft { needs: many, ..draft("k") })).await);
        assert_eq!(limit, (Code::ResourceExhausted, "LIMIT".to_owned()));
        let none = refused(client.get(v1::GetTaskRequest { task: 77, stale: false }).await);
        assert_eq!(none, (Code::NotFound, "NO_TASK".to_owned()));
        let stage = v1::ListTasksRequest { stage: 99, ..Default::default() };
        assert_eq!(refused(client.list(stage).await), bad);
    });
}

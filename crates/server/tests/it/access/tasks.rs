//! Tests permissions for tasks. The user `ana` submits tasks for her tenant and sees no tasks of other tenants. The
//! user `walt` runs tasks of this tenant only.

use dunlin_client::scheduler::{Destination, NewTask, TaskCommand, TaskDependency, TaskStage};
use dunlin_client::{ErrorCode, TasksError, WorkerOptions};
use dunlin_server::Protocol;
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_wait::find;
use serde_json::json;
use tonic::Code;
use v1::tasks_client::TasksClient;

use super::{Guarded, PASSWORD, PATIENCE, as_ana, basic, request_of};
use crate::grpc::{channel, kv::refused, run};

const USERS: &str = "[tenants.acme]\n[tenants.other]\n\
                     [users.ana]\npassword = \"HASH\"\ntenant = \"acme\"\ntasks = [\"submit\"]\n\
                     [users.walt]\npassword = \"HASH\"\ntenant = \"acme\"\ntasks = [\"work:acme\"]\n\
                     [users.root]\npassword = \"HASH\"\ntasks = [\"manage\"]\n\
                     [users.guest]\npassword = \"HASH\"\ntenant = \"acme\"\n";

#[test]
fn http_user_reaches_only_the_tasks_of_its_tenant() {
    let guarded = Guarded::new(USERS);
    let request = |user: &str, method: &str, path: &str, body: &str| {
        guarded.http(method, path, &basic(user, PASSWORD), body.as_bytes())
    };
    let one = json!({"kind": "k"}).to_string();
    let own = request("ana", "POST", "/v1/tasks", &one);
    assert_eq!(own.status, 201, "{own:?}");
    let own = format!("/v1/tasks/{}", own.json()["task"].as_str().unwrap());
    assert_eq!(request("ana", "GET", &own, "").json()["tenant"], "acme");
    assert_eq!(request("ana", "POST", "/v1/tasks?tenant=other", &one).status, 403);
    assert_eq!(request("guest", "POST", "/v1/tasks", &one).status, 403);
    assert_eq!(guarded.http("POST", "/v1/tasks", "", one.as_bytes()).status, 401);
    let others = request("root", "POST", "/v1/tasks?tenant=other", &one);
    assert_eq!(others.status, 201, "{others:?}");
    let others = format!("/v1/tasks/{}", others.json()["task"].as_str().unwrap());
    assert_eq!(request("ana", "GET", &others, "").status, 403);
    assert_eq!(request("ana", "DELETE", &others, "").status, 403);
    assert_eq!(request("walt", "GET", &own, "").json()["tenant"], "acme");
    assert_eq!(request("walt", "GET", &others, "").status, 403);
    assert_eq!(request("walt", "DELETE", &own, "").status, 403);
    assert_eq!(request("ana", "GET", "/v1/tasks", "").json()["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(request("root", "GET", "/v1/tasks", "").json()["tasks"].as_array().unwrap().len(), 2);
}

fn refusal_of<T: std::fmt::Debug>(result: Result<T, TasksError>) -> ErrorCode {
    match result {
        Err(TasksError::Refused(refused)) => refused.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tcp_worker_of_a_tenant_gets_only_tasks_of_that_tenant() {
    let guarded = Guarded::new(USERS);
    let (root, walt) = (guarded.by_password("root").tasks(), guarded.by_password("walt").tasks());
    let others = root.submit("other", NewTask::new(b"k", b"")).unwrap().task;
    let own = root.submit("acme", NewTask::new(b"k", b"")).unwrap().task;
    let options = |tenants: &[&str]| WorkerOptions {
        kinds: vec!["k".to_owned()],
        slots: 2,
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        ..WorkerOptions::default()
    };
    let everybodys = walt.attach(options(&["other"])).unwrap();
    everybodys.next(PATIENCE).unwrap_err();
    assert_eq!(everybodys.error().unwrap().code(), Some(ErrorCode::Forbidden));
    let attachment = walt.attach(options(&[])).unwrap();
    let assigned = attachment.next(PATIENCE).unwrap().expect("a task");
    assert_eq!((assigned.task(), assigned.tenant()), (own, &b"acme"[..]));
    attachment.complete(&assigned, b"done", &Default::default());
    attachment.flush(PATIENCE);
    assert_eq!(attachment.load().answered, 1);
    // The other tenant's task is older than `second`. If the worker were not restricted to the tenant `acme`, it would
    // receive the older task first.
    let second = root.submit("acme", NewTask::new(b"k", b"")).unwrap().task;
    let assigned = attachment.next(PATIENCE).unwrap().expect("a task");
    assert_eq!(assigned.task(), second);
    attachment.complete(&assigned, b"done", &Default::default());
    attachment.flush(PATIENCE);
    assert!(walt.get(own).is_ok());
    assert_eq!(refusal_of(walt.get(others)), ErrorCode::Forbidden);
    assert_eq!(refusal_of(walt.workers()), ErrorCode::Forbidden);
    assert_eq!(refusal_of(walt.submit("acme", NewTask::new(b"k", b""))), ErrorCode::Forbidden);

    // A user must not use the id of another user's worker in a command.
    let at_large = root.attach(options(&[])).unwrap();
    let assigned = at_large.next(PATIENCE).unwrap().expect("a task");
    assert_eq!(assigned.task(), others);
    let worker = root.get(others).unwrap().worker.unwrap();
    for command in [TaskCommand::Leave { worker }, TaskCommand::Renew { workers: vec![worker] }] {
        assert_eq!(refusal_of(walt.command(&command)), ErrorCode::Forbidden);
    }
}

#[test]
fn grpc_user_reaches_only_the_tasks_of_its_tenant() {
    run(async {
        let guarded = Guarded::new(USERS);
        assert!(guarded.address(Protocol::Grpc).port() > 0);
        let mut client = TasksClient::new(channel(&guarded.server).await);
        let submit = |tenant: &str| v1::SubmitTasksRequest {
            tenant: tenant.to_owned(),
            tasks: vec![v1::TaskDraft { kind: "k".to_owned(), ..Default::default() }],
        };
        let own = client.submit(request_of("ana", submit(""))).await.unwrap().into_inner().tasks[0].task;
        let others =
            client.submit(request_of("root", submit("other"))).await.unwrap().into_inner().tasks[0].task;
        let get = |task| v1::GetTaskRequest { task, stale: false };
        let found = client.get(request_of("ana", get(own))).await.unwrap().into_inner().task.unwrap();
        assert_eq!(found.tenant, "acme");
        let forbidden = (Code::PermissionDenied, "FORBIDDEN".to_owned());
        assert_eq!(refused(client.submit(request_of("ana", submit("other"))).await), forbidden);
        assert_eq!(refused(client.submit(request_of("guest", submit(""))).await), forbidden);
        assert_eq!(refused(client.get(request_of("ana", get(others))).await), forbidden);
        assert_eq!(
            client.get(request_of("walt", get(own))).await.unwrap().into_inner().task.unwrap().tenant,
            "acme"
        );
        assert_eq!(refused(client.get(request_of("walt", get(others))).await), forbidden);
        assert_eq!(refused(client.submit(request_of("walt", submit(""))).await), forbidden);
        let why = v1::WhyRequest { task: others, stale: false };
        assert_eq!(refused(client.why(request_of("ana", why)).await), forbidden);
        assert_eq!(
            refused(client.cancel(request_of("ana", v1::CancelTaskRequest { task: others })).await),
            forbidden
        );
        assert_eq!(
            refused(client.retry(request_of("ana", v1::RetryTaskRequest { task: others })).await),
            forbidden
        );
        let redrive = v1::RedriveRequest { tenant: "other".to_owned(), ..Default::default() };
        assert_eq!(refused(client.redrive(request_of("ana", redrive)).await), forbidden);
        let listed = |user| request_of(user, v1::ListTasksRequest::default());
        assert_eq!(client.list(listed("ana")).await.unwrap().into_inner().tasks.len(), 1);
        assert_eq!(client.list(listed("root")).await.unwrap().into_inner().tasks.len(), 2);
    });
}

#[test]
fn worker_ends_when_its_permission_is_taken_away() {
    let everything = USERS.replace("[\"work:acme\"]", "[\"work\"]");
    for (before, after) in [
        (USERS, USERS.replace("[\"work:acme\"]", "[\"submit\"]")),
        (USERS, USERS.replace("[\"work:acme\"]", "[\"work:other\"]")),
        (&everything, USERS.to_owned()),
    ] {
        let guarded = Guarded::new(before);
        let (root, walt) = (guarded.by_password("root").tasks(), guarded.by_password("walt").tasks());
        let kinds = vec!["k".to_owned()];
        let options = WorkerOptions { kinds, slots: 2, ..WorkerOptions::default() };
        let attachment = walt.attach(options.clone()).unwrap();
        let held = root.submit("acme", NewTask::new(b"k", b"")).unwrap().task;
        let assigned = attachment.next(PATIENCE).unwrap().expect("a task");
        assert_eq!(assigned.task(), held);
        let worker = root.get(held).unwrap().worker.unwrap();
        guarded.rewrite(&after);
        attachment.next(PATIENCE).unwrap_err();
        assert_eq!(attachment.error().unwrap().code(), Some(ErrorCode::Forbidden));
        let extend = TaskCommand::Extend { worker, task: held, token: assigned.token(), timeout_ms: 1 };
        for command in [TaskCommand::Renew { workers: vec![worker] }, extend] {
            assert_eq!(refusal_of(walt.command(&command)), ErrorCode::Forbidden);
        }
        // The first worker was detached. Another worker must receive the task of that worker, and the new task.
        let fresh = root.submit("acme", NewTask::new(b"k", b"")).unwrap().task;
        let other = root.attach(options).unwrap();
        let mut assigned = [0, 0].map(|_| other.next(PATIENCE).unwrap().expect("a task").task());
        assigned.sort_unstable();
        assert_eq!(assigned, [held, fresh]);
    }
}

/// Returns a users file with the user `ana`, who may submit tasks for the tenant `acme` and has this `publish`
/// permission, and the user `root`.
fn publishing(publish: &str) -> String {
    format!(
        "[tenants.acme]\n[tenants.other]\n\
         [users.ana]\npassword = \"HASH\"\ntenant = \"acme\"\ntasks = [\"submit\"]\npublish = [{publish}]\n\
         [users.root]\npassword = \"HASH\"\ntasks = [\"manage\"]\npublish = [\">\"]\nsubscribe = [\">\"]\ncreate = [\">\"]\n"
    )
}

fn publish_to(subject: &str) -> NewTask<'_> {
    NewTask { subject: subject.as_bytes(), ..NewTask::new(b"publish", b"payload") }
}

/// Waits until the task is over. Returns its stage and the text of its outcome.
fn wait_for_end(tasks: &dunlin_client::Tasks, task: u64) -> (TaskStage, String) {
    let view = find(format!("the end of task {task}"), || {
        let view = tasks.get(task).unwrap();
        view.stage.is_over().then_some(view)
    });
    let why = view.outcome.map_or_else(String::new, |outcome| String::from_utf8_lossy(&outcome.bytes).into());
    (view.stage, why)
}

#[test]
fn submitter_of_a_publish_task_needs_permission_to_publish() {
    let guarded = Guarded::new(&publishing("\"acme.open\""));
    let ana = guarded.by_password("ana").tasks();
    let forged = Destination { subject: b"admin.cmd", user: Some(b"root") }.bytes();
    for subject in ["admin.cmd", "other.x", "acme.closed", "$kv", "acme.open\r\nMSG"] {
        ana.submit("acme", publish_to(subject)).unwrap_err();
        ana.schedule("acme", "s", "0 0 1 1 *", publish_to(subject)).unwrap_err();
    }
    assert_eq!(refusal_of(ana.submit("acme", publish_to("admin.cmd"))), ErrorCode::Forbidden);
    let forged = NewTask { subject: &forged, ..NewTask::new(b"publish", b"") };
    assert_eq!(refusal_of(ana.submit("acme", forged)), ErrorCode::Subject);
    let task = ana.submit("acme", publish_to("acme.open")).unwrap().task;
    assert_eq!(wait_for_end(&ana, task).0, TaskStage::Completed);

    let body = json!({"kind": "publish", "subject": "admin.cmd"}).to_string();
    let http =
        |body: &str| guarded.http("POST", "/v1/tasks", &basic("ana", PASSWORD), body.as_bytes()).status;
    assert_eq!(http(&body), 403);
    assert_eq!(http(&body.replace("admin.cmd", "acme.open")), 201);
    run(async {
        let mut client = TasksClient::new(channel(&guarded.server).await);
        let draft = |subject: &str| {
            let (kind, subject) = ("publish".to_owned(), subject.to_owned());
            let tasks = vec![v1::TaskDraft { kind, subject, ..Default::default() }];
            as_ana(v1::SubmitTasksRequest { tenant: String::new(), tasks })
        };
        let forbidden = (Code::PermissionDenied, "FORBIDDEN".to_owned());
        assert_eq!(refused(client.submit(draft("admin.cmd")).await), forbidden);
        client.submit(draft("acme.open")).await.unwrap();
    });
}

#[test]
fn revoked_permission_stops_a_task_that_waits_to_publish() {
    let guarded = Guarded::new(&publishing("\"acme.open\", \"acme.shut\""));
    let (ana, root) = (guarded.by_password("ana").tasks(), guarded.by_password("root").tasks());
    let first = ana.submit("acme", NewTask::new(b"k", b"")).unwrap().task;
    let after =
        |subject| NewTask { after: vec![TaskDependency::Task { task: first }], ..publish_to(subject) };
    let open = ana.submit("acme", after("acme.open")).unwrap().task;
    let shut = ana.submit("acme", after("acme.shut")).unwrap().task;
    guarded.rewrite(&publishing("\"acme.open\""));
    let worker =
        root.attach(WorkerOptions { kinds: vec!["k".to_owned()], ..WorkerOptions::default() }).unwrap();
    let assigned = worker.next(PATIENCE).unwrap().expect("a task");
    worker.complete(&assigned, b"", &Default::default());
    assert_eq!(wait_for_end(&root, open).0, TaskStage::Completed);
    let (stage, why) = wait_for_end(&root, shut);
    assert_eq!(stage, TaskStage::Dead);
    assert!(why.contains("no permission to publish to \"acme.shut\""), "{why}");
    guarded.rewrite(&publishing("").replace("[users.ana]", "[users.anna]"));
    root.retry(shut).unwrap();
    let (stage, why) = wait_for_end(&root, shut);
    assert_eq!(stage, TaskStage::Dead);
    assert!(why.contains("user \"ana\" no longer exists"), "{why}");
}

#[test]
fn task_dependency_on_another_tenant_is_refused_as_unknown() {
    let guarded = Guarded::new(USERS);
    let (ana, root) = (guarded.by_password("ana").tasks(), guarded.by_password("root").tasks());
    let others = root.submit("other", NewTask::new(b"k", b"")).unwrap().task;
    let submit = |task| {
        let after = vec![TaskDependency::Task { task }];
        match ana.submit("acme", NewTask { after, ..NewTask::new(b"k", b"") }) {
            // The text contains the number of the missing task. The number is replaced so that the texts of two
            // refusals can be compared.
            Err(TasksError::Refused(refused)) => {
                (refused.code, refused.text.replace(&format!("{task:x}"), "N"))
            }
            other => panic!("{other:?}"),
        }
    };
    let missing = submit(others + 7);
    assert_eq!(submit(others), missing);
    root.cancel(others).unwrap();
    assert_eq!(submit(others), missing, "a cancelled one is not told apart either");
}

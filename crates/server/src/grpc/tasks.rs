//! The calls of `dunlin.v1.Tasks`: submitting, describing, cancelling and retrying tasks.
//!
//! Invariant: a command is proposed to the cluster once. If the command's outcome is unknown, the client receives an
//! error that says so.
//!
//! Workers use Dunlin's own protocol instead.

mod translate;

use std::sync::Arc;

use dunlin::scheduler::{CommandReply, NewTask, TaskCommand, TaskQuery, TaskQueryResult};
use dunlin::{Consistency, Refused, TaskRule};
use tonic::{Request, Response, Status};
use v1::tasks_server::Tasks;

use super::calls::calls;
use super::connection::GrpcConnection;
use super::dispatch::charged_response;
use super::proto::dunlin as v1;
use super::status::status;
use crate::access::slow_down;
use crate::submitting::{Submitted, submit, unexpected_reply};

/// The gRPC service for tasks, for one connection.
#[derive(Debug, Clone)]
pub(super) struct TasksService(pub(super) Arc<GrpcConnection>);

fn response<T>(outcome: Result<T, Refused>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(|refused| status(&refused))
}

impl TasksService {
    fn rule(&self) -> TaskRule {
        self.0.node.task_rule()
    }

    async fn submit_tasks(
        &self,
        request: &v1::SubmitTasksRequest,
    ) -> Result<v1::SubmitTasksResponse, Refused> {
        let tasks: Vec<NewTask<'_>> = request.tasks.iter().map(translate::draft).collect::<Result<_, _>>()?;
        slow_down(self.0.admit_command(&tasks, prost::Message::encoded_len(request))).await?;
        let Submitted { tasks, slow_down_ms } =
            submit(&self.0.node, &self.rule(), &request.tenant, tasks).await?;
        let tasks = tasks.iter().map(|task| v1::TakenTask { task: task.task, known: task.known });
        Ok(v1::SubmitTasksResponse { tasks: tasks.collect(), slow_down_ms })
    }

    async fn command(&self, command: &TaskCommand<'_>) -> Result<CommandReply, Refused> {
        slow_down(self.0.admit_command(command, 0)).await?;
        self.0.node.execute_task_command(command).await
    }

    async fn run_query(&self, query: &TaskQuery<'_>, stale: bool) -> Result<TaskQueryResult, Refused> {
        let node = &self.0.node;
        let tasks = node.tasks_async().await.map_err(|error| Refused::from(&error))?;
        if !stale {
            // Waits until the node has applied the latest changes, because the permission depends on the tasks'
            // tenants.
            tasks.catch_up().await.map_err(|error| Refused::from(&error))?;
        }
        node.may_query_tasks(query).map_err(|error| Refused::from(&error))?;
        tasks.query(Consistency::Stale, query).await.map_err(|error| Refused::from(&error))
    }

    async fn describe(&self, request: &v1::GetTaskRequest) -> Result<v1::GetTaskResponse, Refused> {
        match self.run_query(&TaskQuery::Get { task: request.task }, request.stale).await? {
            TaskQueryResult::Task { task, now_ms } => {
                Ok(v1::GetTaskResponse { task: Some(translate::info(&task, now_ms)) })
            }
            _ => Err(unexpected_reply()),
        }
    }

    async fn list_tasks(&self, request: &v1::ListTasksRequest) -> Result<v1::ListTasksResponse, Refused> {
        let rule = self.rule();
        let mut filter = translate::filter(request)?;
        if !rule.manage && filter.tenant.is_empty() {
            filter.tenant = rule.tenant.as_bytes();
        }
        let (from, limit, whole) = (request.from, request.limit, request.whole);
        match self.run_query(&TaskQuery::List { filter, from, limit, whole }, request.stale).await? {
            TaskQueryResult::Tasks { tasks, next, now_ms } => {
                let tasks = tasks.iter().map(|task| translate::info(task, now_ms));
                Ok(v1::ListTasksResponse { tasks: tasks.collect(), next })
            }
            _ => Err(unexpected_reply()),
        }
    }

    async fn reason(&self, request: &v1::WhyRequest) -> Result<v1::WhyResponse, Refused> {
        match self.run_query(&TaskQuery::Why { task: request.task }, request.stale).await? {
            TaskQueryResult::Why { why } => Ok(v1::WhyResponse { why }),
            _ => Err(unexpected_reply()),
        }
    }

    async fn redrive_tasks(&self, request: &v1::RedriveRequest) -> Result<v1::RedriveResponse, Refused> {
        let rule = self.rule();
        let tenant = if request.tenant.is_empty() { &rule.tenant } else { &request.tenant };
        let (tenant, count) = (tenant.as_bytes(), request.count);
        let command = match request.poisoned {
            true => TaskCommand::Redrive { tenant, count },
            false => TaskCommand::RedriveSafe { tenant, count },
        };
        match self.command(&command).await? {
            CommandReply::Changed { tasks, more } => Ok(v1::RedriveResponse { changed: tasks, more }),
            _ => Err(unexpected_reply()),
        }
    }
}

calls! {
    Tasks for TasksService {
        submit(v1::SubmitTasksRequest) -> v1::SubmitTasksResponse;
        get(v1::GetTaskRequest) -> v1::GetTaskResponse;
        list(v1::ListTasksRequest) -> v1::ListTasksResponse;
        why(v1::WhyRequest) -> v1::WhyResponse;
        cancel(v1::CancelTaskRequest) -> v1::CancelTaskResponse;
        retry(v1::RetryTaskRequest) -> v1::RetryTaskResponse;
        redrive(v1::RedriveRequest) -> v1::RedriveResponse;
    }
}

impl TasksService {
    async fn submit(
        self,
        request: Request<v1::SubmitTasksRequest>,
    ) -> Result<Response<v1::SubmitTasksResponse>, Status> {
        response(self.submit_tasks(request.get_ref()).await)
    }

    async fn get(
        self,
        request: Request<v1::GetTaskRequest>,
    ) -> Result<Response<v1::GetTaskResponse>, Status> {
        charged_response(&self.0, self.describe(request.get_ref()).await, Refused::from)
    }

    async fn list(
        self,
        request: Request<v1::ListTasksRequest>,
    ) -> Result<Response<v1::ListTasksResponse>, Status> {
        charged_response(&self.0, self.list_tasks(request.get_ref()).await, Refused::from)
    }

    async fn why(self, request: Request<v1::WhyRequest>) -> Result<Response<v1::WhyResponse>, Status> {
        response(self.reason(request.get_ref()).await)
    }

    async fn cancel(
        self,
        request: Request<v1::CancelTaskRequest>,
    ) -> Result<Response<v1::CancelTaskResponse>, Status> {
        let cancelled = self.command(&TaskCommand::Cancel { task: request.get_ref().task }).await;
        response(cancelled.map(|_| v1::CancelTaskResponse {}))
    }

    async fn retry(
        self,
        request: Request<v1::RetryTaskRequest>,
    ) -> Result<Response<v1::RetryTaskResponse>, Status> {
        let retried = self.command(&TaskCommand::Retry { task: request.get_ref().task }).await;
        response(retried.map(|_| v1::RetryTaskResponse {}))
    }

    async fn redrive(
        self,
        request: Request<v1::RedriveRequest>,
    ) -> Result<Response<v1::RedriveResponse>, Status> {
        response(self.redrive_tasks(request.get_ref()).await)
    }
}

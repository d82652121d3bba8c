//! `GET /v1/node/{about}` returns what the node reports about one of its parts (`crate::node_report`).

use axum::http::StatusCode;
use axum::{Extension, Json};
use dunlin::wire::ErrorCode;
use serde_json::Value;

use super::context::Context;
use super::problem::Problem;
use super::routes::PathName;
use crate::node_report::{ReportKind, build};

pub(super) async fn about(
    Extension(context): Extension<Context>,
    PathName(about): PathName,
) -> Result<Json<Value>, Problem> {
    context.node().may_survey_node()?;
    let Some(about) = ReportKind::ALL.into_iter().find(|known| known.name() == about) else {
        let text = format!("{about}: expected {}", ReportKind::ALL.map(ReportKind::name).join(", "));
        return Err(Problem::of(StatusCode::NOT_FOUND, ErrorCode::Protocol, text));
    };
    Ok(Json(build(context.shared(), about).await))
}

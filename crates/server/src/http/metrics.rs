//! `GET /metrics` returns the node's figures in the text format of Prometheus.
//!
//! A scrape reads counters that the logs keep anyway, so metrics do not slow down publishing. Only the busiest topics
//! and the slowest subscriptions have metrics of their own.

mod control;
mod exposition;
mod node;
mod process;
mod space;
mod subscriptions;
mod tasks;
mod topics;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;

use super::context::Context;
use super::problem::Problem;
use super::surveys::Surveys;
use exposition::Exposition;
pub(crate) use process::ProcessFigures;

/// The media type of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn metrics(Extension(context): Extension<Context>) -> Result<impl IntoResponse, Problem> {
    context.may_survey()?;
    let shared = context.shared();
    let survey = Surveys::of(&context).await;
    let mut out = Exposition::default();
    match context.bounds() {
        None => {
            node::write(shared, &survey, &mut out);
            control::write(&shared.node, &mut out);
            tasks::write(&shared.node, &mut out);
            space::write(&shared.node, &mut out);
        }
        Some(_) => {
            let tenant = context.login().map(|login| login.account().tenant().name().to_owned());
            node::write_for_tenant(shared, &survey, tenant.as_deref(), &mut out);
        }
    }
    topics::write(&survey.busiest, |topic| !shared.is_elsewhere(topic), &mut out);
    let shown = survey.slowest.len().min(shared.limits.http.metrics_subscriptions_max as usize);
    subscriptions::write(&survey.slowest[..shown], &mut out);
    if context.bounds().is_none() {
        process::write(&mut out);
    }
    Ok(([(header::CONTENT_TYPE, TEXT)], out.into_text()))
}

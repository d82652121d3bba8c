//! Surveys of the node, made by a thread of their own and shared by those who ask together.
//!
//! Limits: one survey at a time; it is as good for [`FRESH`] after it was made. It holds `http.topics_shown`
//! topics and `http.subscriptions_shown` subscriptions. Who may see what lies within a tenant's bounds gets a survey of just
//! that, made for them; of those, too, one at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{Survey, Totals};
use tokio::sync::Mutex;

use super::context::Context;
use crate::shared::Shared;

/// How old a survey may be that somebody is shown.
const FRESH: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    survey: Option<(Instant, Arc<Survey>)>,
    /// The highest there were: a topic that is deleted while it is looked at must not make them go back.
    totals: Totals,
}

impl Surveys {
    /// Of what the one who asks may see.
    pub(super) async fn of(context: &Context) -> Arc<Survey> {
        let shared = context.shared();
        let Some(bounds) = context.bounds() else { return Surveys::take(shared).await };
        // One at a time, so that a tenant that asks on and on takes no more than one thread.
        let _last = shared.surveys.0.lock().await;
        let (node, limits) = (shared.node.clone(), shared.limits);
        let (topics_max, subscriptions_max) = (limits.http.topics_shown, limits.http.subscriptions_shown);
        let survey = move || node.survey_within(&bounds, topics_max as usize, subscriptions_max as usize);
        Arc::new(tokio::task::spawn_blocking(survey).await.unwrap_or_default())
    }

    pub(crate) async fn take(shared: &Arc<Shared>) -> Arc<Survey> {
        let mut last = shared.surveys.0.lock().await;
        if let Some((made, survey)) = &last.survey
            && made.elapsed() < FRESH
        {
            return Arc::clone(survey);
        }
        let (node, limits) = (shared.node.clone(), shared.limits);
        let survey =
            move || node.survey(limits.http.topics_shown as usize, limits.http.subscriptions_shown as usize);
        // Should it panic, its thread says so, and who asks sees no topics.
        let mut survey = tokio::task::spawn_blocking(survey).await.unwrap_or_default();
        last.totals = highest(last.totals, survey.totals);
        survey.totals = last.totals;
        let survey = Arc::new(survey);
        last.survey = Some((Instant::now(), Arc::clone(&survey)));
        survey
    }
}

fn highest(mut a: Totals, b: Totals) -> Totals {
    a.records = a.records.max(b.records);
    a.bytes = a.bytes.max(b.bytes);
    a.losses.warnings = a.losses.warnings.max(b.losses.warnings);
    a.losses.gaps = a.losses.gaps.max(b.losses.gaps);
    a.losses.records = a.losses.records.max(b.losses.records);
    a
}

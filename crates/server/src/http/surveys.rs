//! Surveys of the node, made on a thread of their own and shared by concurrent requests.
//!
//! Limits: one survey at a time, which is valid for [`VALID_FOR`]. A survey holds `http.topics_shown` topics and
//! `http.subscriptions_shown` subscriptions. A user whose tenant is restricted gets a survey of that tenant only; the
//! server also makes one such survey at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{Survey, TopicTotals};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::context::Context;
use crate::shared::SharedServer;

const VALID_FOR: Duration = Duration::from_millis(100);

/// The newest survey of a node. A survey holds the lock until the survey ends, even if its request ends earlier.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Arc<Mutex<LastSurvey>>);

#[derive(Debug, Default)]
struct LastSurvey {
    survey: Option<(Instant, Arc<Survey>)>,
    /// The highest totals so far. A counter must never decrease, even if a topic is deleted during a survey.
    totals: TopicTotals,
}

impl Surveys {
    /// Returns a survey that contains what the user may see.
    pub(super) async fn of(context: &Context) -> Arc<Survey> {
        let shared = context.shared();
        let Some(bounds) = context.bounds() else { return Surveys::latest(shared).await };
        // Waits for its turn: the server makes one survey at a time, so that a tenant occupies at most one thread.
        let turn = shared.surveys.lock().await;
        let (node, limits) = (shared.node.clone(), shared.limits);
        let (topics_max, subscriptions_max) = (limits.http.topics_shown, limits.http.subscriptions_shown);
        let survey = move || {
            let _turn = turn;
            Arc::new(node.survey_within(&bounds, topics_max as usize, subscriptions_max as usize))
        };
        tokio::task::spawn_blocking(survey).await.unwrap_or_default()
    }

    pub(crate) async fn latest(shared: &Arc<SharedServer>) -> Arc<Survey> {
        let mut last = shared.surveys.lock().await;
        if let Some((made_at, survey)) = &last.survey
            && made_at.elapsed() < VALID_FOR
        {
            return Arc::clone(survey);
        }
        let (node, limits) = (shared.node.clone(), shared.limits);
        let survey = move || {
            let (topics_max, subscriptions_max) = (limits.http.topics_shown, limits.http.subscriptions_shown);
            let mut survey = node.survey(topics_max as usize, subscriptions_max as usize);
            last.totals = max_totals(last.totals, survey.totals);
            survey.totals = last.totals;
            let survey = Arc::new(survey);
            last.survey = Some((Instant::now(), Arc::clone(&survey)));
            survey
        };
        // If the survey panics, its thread logs the panic, and the result is empty.
        tokio::task::spawn_blocking(survey).await.unwrap_or_default()
    }

    async fn lock(&self) -> OwnedMutexGuard<LastSurvey> {
        Arc::clone(&self.0).lock_owned().await
    }
}

fn max_totals(mut a: TopicTotals, b: TopicTotals) -> TopicTotals {
    a.records = a.records.max(b.records);
    a.bytes = a.bytes.max(b.bytes);
    a.losses.warnings = a.losses.warnings.max(b.losses.warnings);
    a.losses.gaps = a.losses.gaps.max(b.losses.gaps);
    a.losses.records = a.losses.records.max(b.losses.records);
    a
}

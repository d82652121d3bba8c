//! Makes surveys: a survey has the figures of a node's busiest topics and slowest subscriptions at one time. It is made
//! on a thread of its own and shared by concurrent requests.
//!
//! Limits: the server makes one survey at a time, and uses each survey for [`VALID_FOR`]. A survey holds
//! `http.topics_shown` topics and `http.subscriptions_shown` subscriptions. A user whose tenant may not use all
//! subjects gets a survey of this tenant, which is not shared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{Survey, TopicTotals};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::context::Context;
use crate::shared::SharedServer;

const VALID_FOR: Duration = Duration::from_millis(100);

/// The newest survey of a node. The lock is held while a survey is made, even if the request that started the survey
/// has ended.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Arc<Mutex<LastSurvey>>);

#[derive(Debug, Default)]
struct LastSurvey {
    survey: Option<(Instant, Arc<Survey>)>,
    /// The highest totals of all surveys so far. They are kept because a counter must not decrease, even if a topic is
    /// deleted during a survey.
    totals: TopicTotals,
}

impl Surveys {
    /// Returns a survey that contains only the figures that the user may see.
    pub(super) async fn of(context: &Context) -> Arc<Survey> {
        let shared = context.shared();
        let Some(bounds) = context.bounds() else { return Surveys::latest(shared).await };
        // Waits for the lock. Only one survey is made at a time, so a tenant cannot occupy several threads.
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
        // If making the survey panics, its thread logs the panic, and an empty survey is returned.
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

//! `GET /v1/subscriptions`: who reads, who is behind and by how much, and why.

use axum::extract::RawQuery;
use axum::{Extension, Json};
use dunlin::wire::ErrorCode;
use dunlin::{Refused, SubscriptionInfo};
use serde_json::{Value, json};

use super::context::Context;
use super::problem::Problem;
use super::query::{Query, shown_time};
use super::surveys::Surveys;
use super::topics::reader_json;
use crate::departures::Departure;

/// Subscriptions of a list that does not say how many.
const LISTED: usize = 20;

pub(super) async fn subscriptions(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Problem> {
    context.may_survey()?;
    let query = Query::parse(query.as_deref(), &["sort", "limit", "recent"])?;
    if let Some(sort) = query.get("sort").filter(|sort| *sort != "lag") {
        return Err(Problem::bad_request(format!("sort={sort}: expected lag")));
    }
    let shown = context.limits().http.subscriptions_shown as usize;
    let limit = query.count("limit", LISTED, shown)?;
    let survey = Surveys::of(&context).await;
    let subscriptions: Vec<_> = survey.slowest.iter().take(limit).map(subscription_json).collect();
    let mut answer = json!({"subscriptions": subscriptions, "total": survey.subscriptions});
    if query.switch("recent")? {
        // Who was turned away is nobody's, or another's.
        if context.bounds().is_some() {
            let text = "recent: who was refused or cut off is told to users of a tenant without bounds";
            return Err(Refused::new(ErrorCode::Forbidden, text).into());
        }
        let departures = context.shared().departures.newest(limit);
        answer["recent"] = departures.iter().map(departure_json).collect();
    }
    Ok(Json(answer))
}

/// Somebody who was refused or cut off.
pub(crate) fn departure_json(departure: &Departure) -> Value {
    let Departure { door, fate, name, peer, why, behind, times, first_ns, last_ns } = departure;
    json!({
        "door": door.name(),
        "what": fate.name(),
        "why": why,
        "name": name,
        "peer": peer.map(|peer| peer.to_string()),
        "behind": behind,
        "times": times,
        "first": shown_time(*first_ns),
        "last": shown_time(*last_ns),
    })
}

pub(crate) fn subscription_json(subscription: &SubscriptionInfo) -> Value {
    let mut object = reader_json(&subscription.reader);
    object["topic"] = subscription.topic.name().into();
    object["why"] = why(subscription).into();
    object
}

/// What is to be known of it, in a sentence.
fn why(subscription: &SubscriptionInfo) -> String {
    let reader = &subscription.reader;
    let now = match reader.behind {
        0 => "it has read everything".to_owned(),
        behind => format!("{behind} records lie ahead of it"),
    };
    if reader.lost_ns > 0 {
        let (lost, at) = (reader.lost, shown_time(reader.lost_ns));
        return format!(
            "{now}; it lost {lost} records, last at {at}, when the history no longer held its place"
        );
    }
    if reader.lagging_ns > 0 {
        let at = shown_time(reader.lagging_ns);
        return format!("{now}; it was warned at {at} that half of the history lay ahead of it");
    }
    now
}

//! `GET /v1/subscriptions` lists subscriptions. Each entry has the subscription's lag and the reason for it.

use axum::extract::RawQuery;
use axum::{Extension, Json};
use dunlin::wire::ErrorCode;
use dunlin::{Refused, SubscriptionInfo};
use serde_json::{Value, json};

use super::context::Context;
use super::problem::Problem;
use super::query::{QueryParameters, format_time};
use super::surveys::Surveys;
use super::topics::subscriber_json;
use crate::departures::ClientDeparture;
use crate::figures::{ClusterFigures, FiguresRequest};

const LIMIT_DEFAULT: usize = 20;

pub(super) async fn subscriptions(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Problem> {
    context.may_survey()?;
    let query = QueryParameters::parse(query.as_deref(), &["sort", "limit", "recent"])?;
    if let Some(sort) = query.get("sort").filter(|sort| *sort != "lag") {
        return Err(Problem::bad_request(format!("sort={sort}: expected lag")));
    }
    let shown = context.limits().http.subscriptions_shown as usize;
    let limit = query.count("limit", LIMIT_DEFAULT, shown)?;
    let (subscriptions, total, silent) = subscriptions_at_all_nodes(&context, limit).await;
    let mut body = json!({"subscriptions": subscriptions, "total": total, "silent_nodes": silent});
    if query.switch("recent")? {
        // The list of departed clients contains names of other tenants' clients, so users of a restricted tenant may
        // not read it.
        if context.bounds().is_some() {
            let text = "recent: the user's tenant may not use all subjects; leave out `recent`";
            return Err(Refused::new(ErrorCode::Forbidden, text).into());
        }
        let departures = context.shared().departures.newest(limit);
        body["recent"] = departures.iter().map(departure_json).collect();
    }
    Ok(Json(body))
}

/// Returns the slowest subscriptions of all nodes, the total number of subscriptions, and the numbers of the nodes that
/// did not respond. If any node did not respond, the total is `None`.
async fn subscriptions_at_all_nodes(
    context: &Context,
    limit: usize,
) -> (Vec<Value>, Option<usize>, Vec<u64>) {
    let shared = context.shared();
    let survey = Surveys::of(context).await;
    let visible_topics = || survey.busiest.iter().map(|busy| busy.topic.name().to_owned()).collect();
    let requested = shared.request_figures(|| match context.bounds() {
        Some(_) => FiguresRequest { names: visible_topics(), ..FiguresRequest::default() },
        None => FiguresRequest { subscribers_max: limit, ..FiguresRequest::default() },
    });
    let here = shared.cluster.get().and_then(|seat| seat.ownership()).map(|ownership| ownership.id());
    let mut found: Vec<(Option<u64>, SubscriptionInfo)> =
        survey.slowest.iter().cloned().map(|subscription| (here, subscription)).collect();
    let mut figures = match requested {
        Some(requested) => requested.await,
        None => ClusterFigures::default(),
    };
    let elsewhere = figures.take_subscribers();
    let total = match context.bounds() {
        Some(_) => survey.subscriptions + elsewhere.len(),
        None => survey.subscriptions + figures.subscriptions(),
    };
    found.extend(elsewhere.into_iter().filter_map(|(node, topic, subscriber)| {
        let topic = context.node().topic(&topic)?;
        Some((Some(node), SubscriptionInfo { topic, subscriber }))
    }));
    found.sort_by_key(|(_, subscription)| std::cmp::Reverse(subscription.subscriber.lag));
    let shown = found.iter().take(limit);
    let shown = shown.map(|(node, subscription)| subscription_json(*node, subscription)).collect();
    let silent: Vec<u64> = figures.silent.into_iter().collect();
    (shown, silent.is_empty().then_some(total), silent)
}

/// Converts the entry of a client that was refused or disconnected to JSON.
pub(crate) fn departure_json(departure: &ClientDeparture) -> Value {
    let ClientDeparture { protocol, kind, name, peer, why, lag, times, first_ns, last_ns } = departure;
    json!({
        "protocol": protocol.name(),
        "outcome": kind.name(),
        "why": why,
        "name": name,
        "peer": peer.map(|peer| peer.to_string()),
        "lag": lag,
        "times": times,
        "first": format_time(*first_ns),
        "last": format_time(*last_ns),
    })
}

/// Converts a subscription to JSON. `node` is the number of its node in the cluster.
pub(crate) fn subscription_json(node: Option<u64>, subscription: &SubscriptionInfo) -> Value {
    let mut object = subscriber_json(node, &subscription.subscriber);
    object["topic"] = subscription.topic.name().into();
    object["why"] = lag_reason(subscription).into();
    object
}

/// A sentence that explains the subscription's lag.
fn lag_reason(subscription: &SubscriptionInfo) -> String {
    let subscriber = &subscription.subscriber;
    let now = match subscriber.lag {
        0 => "the subscriber has read everything".to_owned(),
        lag => format!("the subscriber is {lag} records behind"),
    };
    if subscriber.missed_ns > 0 {
        let (missed, at) = (subscriber.missed, format_time(subscriber.missed_ns));
        return format!(
            "{now}; it missed {missed} records, last at {at}, because they left the log before it read them"
        );
    }
    if subscriber.lagging_ns > 0 {
        let at = format_time(subscriber.lagging_ns);
        return format!(
            "{now}; at {at}, the node warned it that more than half of the retained records were unread"
        );
    }
    now
}

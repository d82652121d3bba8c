//! Metrics of the node.

use dunlin::Survey;
use dunlin::topic::LossTotals;

use std::sync::atomic::Ordering;

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};
use crate::access::{Access, TenantCounts};
use crate::shared::SharedServer;

pub(super) fn write(shared: &SharedServer, survey: &Survey, out: &mut Exposition) {
    let node = &shared.node;
    let labels = [("version", env!("CARGO_PKG_VERSION").to_owned()), ("node", node.config().name.clone())];
    out.family(Gauge, "dunlin_build_info", "Always 1; the version of the node and its name.", [(labels, 1)]);
    write_totals(survey, out);
    let budget = node.budget();
    out.metric(Gauge, "dunlin_memory_used_bytes", "Memory charged to the node's budget.", budget.used());
    out.metric(Gauge, "dunlin_memory_limit_bytes", "The node's memory budget.", budget.limit());
    write_connections(shared, out);
    if let Some(access) = &shared.access {
        write_access(access, out);
    }
    let requests = shared.traffic.responses();
    let requests = requests.iter().map(|(method, status, count)| {
        ([("method", (*method).to_owned()), ("status", status.to_string())], *count)
    });
    out.family(Counter, "dunlin_http_requests_total", "Requests answered over HTTP.", requests);
    out.metric(
        Counter,
        "dunlin_listener_stalls_total",
        "Times that a listener's thread made no progress for a second while it had work.",
        shared.stalls.load(Ordering::Relaxed),
    );
    out.metric(
        Counter,
        "dunlin_dead_letters_dropped_total",
        "Dead letters that could not be stored and were dropped.",
        node.dropped_dead_letters(),
    );
    let losses = node.losses();
    let series = |pick: fn(&LossTotals) -> u64| {
        losses.iter().map(move |totals| ([("cause", totals.cause.name().to_owned())], pick(totals)))
    };
    let help = "Records that topics have lost, each counted once, as far as their number is known.";
    out.family(Counter, "dunlin_lost_records_total", help, series(|totals| totals.records));
    let help = "Ranges of records that topics have lost, each counted once.";
    out.family(Counter, "dunlin_lost_ranges_total", help, series(|totals| totals.ranges));
    let since = shared.housekeeping.since_last().as_secs_f64();
    out.metric(
        Gauge,
        "dunlin_housekeeping_age_seconds",
        "Time since housekeeping last ran; it runs once a second.",
        since,
    );
}

pub(super) fn write_for_tenant(
    shared: &SharedServer,
    survey: &Survey,
    tenant: Option<&str>,
    out: &mut Exposition,
) {
    write_totals(survey, out);
    if let Some(access) = &shared.access {
        let tenants = access.tenants().into_iter().filter(|counts| Some(counts.name.as_str()) == tenant);
        write_tenants(&tenants.collect::<Vec<_>>(), out);
    }
}

fn write_totals(survey: &Survey, out: &mut Exposition) {
    let totals = &survey.totals;
    let losses = &totals.losses;
    for (name, help, value) in [
        ("dunlin_records_total", "Records appended to all topics.", totals.records),
        ("dunlin_bytes_total", "Bytes of records appended to all topics by this process.", totals.bytes),
        (
            "dunlin_lagging_total",
            "Warnings to subscribers that were behind by half of a log.",
            losses.warnings,
        ),
        ("dunlin_gaps_total", "Gaps delivered to subscribers.", losses.gaps),
        ("dunlin_gap_records_total", "Records that subscribers lost in gaps.", losses.records),
    ] {
        out.metric(Counter, name, help, value);
    }
    for (name, help, value) in [
        ("dunlin_topics", "Topics, without those of the system and of sessions.", survey.topics),
        ("dunlin_subscriptions", "Named subscriptions.", survey.subscriptions),
        ("dunlin_disks_full", "Durable topics whose disk is full.", survey.disks_full),
        ("dunlin_disks_failed", "Durable topics whose disk failed.", survey.disks_failed),
    ] {
        out.metric(Gauge, name, help, value);
    }
}

fn write_connections(shared: &SharedServer, out: &mut Exposition) {
    let listeners: Vec<_> = shared.traffic.listeners().collect();
    let series = |pick: fn(&(crate::protocol::Protocol, u64, u64)) -> u64| {
        listeners.iter().map(move |protocol| ([("protocol", protocol.0.name().to_owned())], pick(protocol)))
    };
    out.family(Gauge, "dunlin_connections", "Connections that are open.", series(|protocol| protocol.1));
    out.family(
        Counter,
        "dunlin_connections_accepted_total",
        "Connections accepted since the start.",
        series(|protocol| protocol.2),
    );
    let refusals = shared.traffic.refusals();
    let help = "Connections refused because of limits.connections.";
    out.metric(Counter, "dunlin_connections_refused_total", help, refusals);
    let limit = shared.limits.sessions_max;
    out.metric(Gauge, "dunlin_connections_limit", "Limit of open connections.", limit);
}

fn write_access(access: &Access, out: &mut Exposition) {
    let counts = access.counts();
    let outcomes =
        [("accepted", &counts.accepted), ("failed", &counts.failed), ("throttled", &counts.throttled)];
    let logins =
        outcomes.map(|(outcome, count)| ([("outcome", outcome.to_owned())], count.load(Ordering::Relaxed)));
    out.family(Counter, "dunlin_logins_total", "Login attempts.", logins);
    write_tenants(&access.tenants(), out);
}

fn write_tenants(tenants: &[TenantCounts], out: &mut Exposition) {
    let series = |pick: fn(&TenantCounts) -> u64| {
        tenants.iter().map(move |tenant| ([("tenant", tenant.name.clone())], pick(tenant)))
    };
    let help = "Connections of a tenant's users.";
    out.family(Gauge, "dunlin_tenant_connections", help, series(|tenant| tenant.connections));
    let help = "Topics that a tenant's users created.";
    out.family(Gauge, "dunlin_tenant_topics", help, series(|tenant| tenant.topics));
    let help = "Unused topics of a tenant that were deleted.";
    out.family(Counter, "dunlin_tenant_topics_expired_total", help, series(|tenant| tenant.expired));
}

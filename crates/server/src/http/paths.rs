//! The paths that the HTTP listener serves, with placeholders in braces.

pub(super) const INDEX: &str = "/";
pub(super) const TOPICS: &str = "/v1/topics";
pub(super) const TOPIC: &str = "/v1/topics/{name}";
pub(super) const OWNER: &str = "/v1/topics/{name}/owner";
pub(super) const BATCH: &str = "/v1/topics/{name}/batch";
pub(super) const EVENTS: &str = "/v1/topics/{name}/events";
pub(super) const SUBSCRIPTIONS: &str = "/v1/subscriptions";
pub(super) const KV: &str = "/v1/kv";
/// The path of a key. The key is the rest of the path, including slashes.
pub(super) const KEY: &str = "/v1/kv/{*name}";
pub(super) const WATCH: &str = "/v1/watch";
pub(super) const LEASES: &str = "/v1/leases";
pub(super) const LEASE: &str = "/v1/leases/{name}";
pub(super) const LOCK: &str = "/v1/locks/{*name}";
pub(super) const NODE: &str = "/v1/node/{name}";
pub(super) const WS: &str = "/v1/ws";
pub(super) const TASKS: &str = "/v1/tasks";
pub(super) const TASK: &str = "/v1/tasks/{name}";
pub(super) const HEALTHZ: &str = "/healthz";
pub(super) const READYZ: &str = "/readyz";
pub(super) const STARTUPZ: &str = "/startupz";
/// The health probes, which are also served over connections beyond the limit on connections.
pub(super) const PROBES: [&str; 3] = [HEALTHZ, READYZ, STARTUPZ];
pub(super) const METRICS: &str = "/metrics";
pub(super) const REPORT: &str = "/report";

const ALL: [&str; 22] = [
    INDEX,
    TOPICS,
    TOPIC,
    OWNER,
    BATCH,
    EVENTS,
    SUBSCRIPTIONS,
    KV,
    KEY,
    WATCH,
    LEASES,
    LEASE,
    LOCK,
    NODE,
    WS,
    TASKS,
    TASK,
    HEALTHZ,
    READYZ,
    STARTUPZ,
    METRICS,
    REPORT,
];

/// The route, one of the constants above, to which a request's path belongs; `None` if there is none.
pub(super) fn route_of(path: &str) -> Option<&'static str> {
    ALL.into_iter().find(|route| matches_route(path, route))
}

fn matches_route(path: &str, route: &str) -> bool {
    let (mut actual, mut expected) = (path.split('/'), route.split('/'));
    loop {
        match (actual.next(), expected.next()) {
            (None, None) => return true,
            (Some(first), Some("{*name}")) => return !first.is_empty() || actual.next().is_some(),
            (Some(actual), Some(expected))
                if actual == expected || expected == "{name}" && !actual.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_path_maps_to_its_route_or_to_none_if_it_is_unknown() {
        for route in ALL {
            let path = route.replace("{name}", "orders.eu").replace("{*name}", "a/b");
            assert_eq!(route_of(&path), Some(route));
        }
        for path in ["/v1/topics/", "/v1/topics/a/b", "/v1/topics/a/events/", "/healthz/", "", "/v2/topics"] {
            assert_eq!(route_of(path), None, "{path}");
        }
    }
}

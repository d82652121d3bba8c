//! The table of all keys of a node's configuration, with names, defaults and help texts.
//!
//! The names of flags (`--retention-bytes`), of environment variables (`DUNLIN_RETENTION_BYTES`) and of keys in the
//! file (`retention.bytes`) are made from this table, and so are the output of `dunlin config show` and the help. All
//! of them therefore agree.

/// The description of one configuration key: its name, default and help text.
#[derive(Debug)]
pub struct ConfigKey {
    /// The key's name in the configuration file, with dots between its parts.
    pub name: &'static str,
    /// The placeholder for the value in the help text, such as `DURATION`.
    pub value: &'static str,
    /// The default value, as text.
    pub default: &'static str,
    pub help: &'static str,
}

impl ConfigKey {
    pub fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Whether the value is `true` or `false`. The flag then needs no value.
    pub fn is_switch(&self) -> bool {
        self.value == SWITCH
    }
}

/// The listeners, with their addresses, that `dunlin dev` opens by default and other nodes do not. If another program
/// uses a listener's port, the listener stays off, and `dunlin dev` prints a warning.
pub const DEV_DEFAULTS: &[(&str, &str)] = &[
    ("nats.listen", "127.0.0.1:4222"),
    ("http.listen", "127.0.0.1:8222"),
    ("grpc.listen", "127.0.0.1:50051"),
];

pub const VARIABLE_PREFIX: &str = "DUNLIN_";

const SWITCH: &str = "true|false";

pub const KEYS: &[ConfigKey] = &[
    ConfigKey {
        name: "listen",
        value: "ADDRESS|off",
        default: "127.0.0.1:4220",
        help: "TCP address of Dunlin's own protocol; port 0 selects a free port",
    },
    ConfigKey {
        name: "name",
        value: "NAME",
        default: "dunlin",
        help: "Name of the node, shown to clients and in metrics",
    },
    ConfigKey {
        name: "unix",
        value: "PATH|off",
        default: "off",
        help: "Path of the Unix socket of Dunlin's own protocol",
    },
    ConfigKey {
        name: "nats.listen",
        value: "ADDRESS|off",
        default: "off",
        help: "TCP address of the NATS client protocol",
    },
    ConfigKey {
        name: "nats.publish_timeout",
        value: "DURATION",
        default: "30s",
        help: "Maximum time between the first and the last byte of a NATS client's operation",
    },
    ConfigKey {
        name: "nats.ping_interval",
        value: "DURATION",
        default: "2m",
        help: "Time between two pings to a NATS client",
    },
    ConfigKey {
        name: "nats.pings_max",
        value: "COUNT",
        default: "2",
        help: "Number of unanswered pings after which a NATS client is disconnected",
    },
    ConfigKey { name: "grpc.listen", value: "ADDRESS|off", default: "off", help: "TCP address of gRPC" },
    ConfigKey {
        name: "grpc.streams_max",
        value: "COUNT",
        default: "1024",
        help: "Maximum number of concurrent calls on a gRPC connection; the client delays further calls",
    },
    ConfigKey {
        name: "grpc.message_bytes_max",
        value: "BYTES",
        default: "16MiB",
        help: "Largest message that a gRPC client may send",
    },
    ConfigKey {
        name: "grpc.message_elements_max",
        value: "COUNT",
        default: "262144",
        help: "Maximum number of repeated elements in a gRPC message, such as records, headers, tasks and labels",
    },
    ConfigKey {
        name: "grpc.message_ms_max",
        value: "MILLISECONDS",
        default: "30000",
        help: "Maximum time between the first and the last byte of a gRPC message, in milliseconds",
    },
    ConfigKey {
        name: "grpc.header_bytes_max",
        value: "BYTES",
        default: "16KiB",
        help: "Largest metadata of a gRPC call",
    },
    ConfigKey {
        name: "grpc.subjects_max",
        value: "COUNT",
        default: "1024",
        help: "Maximum number of subjects in a gRPC subscription",
    },
    ConfigKey {
        name: "grpc.batch_bytes_max",
        value: "BYTES",
        default: "1MiB",
        help: "Largest response size that a gRPC subscriber may request",
    },
    ConfigKey {
        name: "grpc.message_subscribers_max",
        value: "COUNT",
        default: "1000",
        help: "Maximum number of subscribers of a topic through Ratatoskr's MessageBroker",
    },
    ConfigKey {
        name: "grpc.keep_alive_ms",
        value: "MILLISECONDS",
        default: "20000",
        help: "Idle time after which a gRPC connection is pinged, and maximum time for its response, in milliseconds",
    },
    ConfigKey {
        name: "grpc.idle_ms_max",
        value: "MILLISECONDS",
        default: "600000",
        help: "Time without a call after which a gRPC connection is closed, in milliseconds",
    },
    ConfigKey {
        name: "grpc.stream_window_bytes",
        value: "BYTES",
        default: "1MiB",
        help: "Flow-control window of a gRPC call: bytes that the client may send before the node reads them",
    },
    ConfigKey {
        name: "grpc.connection_window_bytes",
        value: "BYTES",
        default: "2MiB",
        help: "Flow-control window of a gRPC connection: bytes that the client may send in all calls before the node reads them",
    },
    ConfigKey {
        name: "http.listen",
        value: "ADDRESS|off",
        default: "off",
        help: "TCP address of HTTP: topics, server-sent events, health checks, metrics and the dashboard",
    },
    ConfigKey {
        name: "http.origins",
        value: "ORIGINS|off",
        default: "off",
        help: "Origins of web pages that may use HTTP from a browser, separated by commas, such as https://example.com",
    },
    ConfigKey {
        name: "http.report",
        value: "FILE|off",
        default: "off",
        help: "Report file to show in the dashboard, written by `dunlin report --out`",
    },
    ConfigKey {
        name: "tls.cert",
        value: "FILE|off",
        default: "off",
        help: "File with the node's certificate and its chain (PEM); every TCP listener for clients then uses TLS",
    },
    ConfigKey {
        name: "tls.key",
        value: "FILE|off",
        default: "off",
        help: "File with the private key of tls.cert (PEM)",
    },
    ConfigKey {
        name: "tls.client_ca",
        value: "FILE|off",
        default: "off",
        help: "File with certificate authorities (PEM), one of which must have signed each client's certificate",
    },
    ConfigKey {
        name: "nats.tls_first",
        value: SWITCH,
        default: "false",
        help: "Start TLS before the INFO message of NATS; clients need the setting `tls_first` (handshake first)",
    },
    ConfigKey {
        name: "insecure_listen_without_tls",
        value: SWITCH,
        default: "false",
        help: "Allow a non-loopback address without TLS: anyone who reaches it can read and publish everything",
    },
    ConfigKey {
        name: "insecure_listen_without_authentication",
        value: SWITCH,
        default: "false",
        help: "Allow a non-loopback address with TLS but without authentication: anyone who reaches it can read and publish \
               everything",
    },
    ConfigKey {
        name: "auth.users_file",
        value: "FILE|off",
        default: "off",
        help: "File with users and their permissions; without it, every client has all permissions",
    },
    ConfigKey {
        name: "data_dir",
        value: "DIRECTORY|off",
        default: "off",
        help: "Directory for durable topics, keys and tasks; without it, they do not outlive the node",
    },
    ConfigKey {
        name: "memory_bytes_max",
        value: "BYTES",
        default: "1GiB",
        help: "Maximum memory for records, states, topics, subscriptions and requests in progress; at least 1MiB",
    },
    ConfigKey {
        name: "memory_of_tenant_max",
        value: "BYTES|auto",
        default: "auto",
        help: "Maximum memory of a tenant without memory_bytes in the users file, if there are several tenants; auto is half of \
               memory_bytes_max",
    },
    ConfigKey {
        name: "cluster.listen",
        value: "ADDRESS|off",
        default: "off",
        help: "TCP address for the other nodes of a cluster, such as 127.0.0.1:6222; needs data_dir, and either `dunlin cluster \
               init` or cluster.join",
    },
    ConfigKey {
        name: "cluster.advertise",
        value: "HOST:PORT|off",
        default: "off",
        help: "Address at which other nodes reach cluster.listen, if it differs",
    },
    ConfigKey {
        name: "cluster.join",
        value: "HOST:PORT|off",
        default: "off",
        help: "Address of a node in the cluster to join; needs an empty data_dir, and has no effect after the node has joined",
    },
    ConfigKey {
        name: "cluster.token_file",
        value: "FILE|off",
        default: "off",
        help: "File with the join token that `dunlin cluster token` printed; --token-file sets it too",
    },
    ConfigKey {
        name: "cluster.heartbeat",
        value: "DURATION",
        default: "250ms",
        help: "Time between the leader's heartbeats, and maximum time for each response; longer than a round trip between the \
               nodes. A lost leader is replaced after 4 to 5 heartbeats. 10ms to 10s, equal on all nodes",
    },
    ConfigKey {
        name: "cluster.lease_ttl",
        value: "DURATION",
        default: "2s",
        help: "Time without contact after which a node's volatile topics get new owners. 500ms to 1m, and at least 4 times \
               cluster.heartbeat, so that an election does not move topics",
    },
    ConfigKey {
        name: "workers",
        value: "COMMAND|off",
        default: "off",
        help: "Command that runs a task worker. The node starts as many as tasks need within `scale`, passes its address in \
               DUNLIN_URL, and stops them with SIGTERM",
    },
    ConfigKey {
        name: "scale",
        value: "MIN..MAX",
        default: "1..4",
        help: "Minimum and maximum number of workers that the node runs; a minimum of 0 runs none without tasks",
    },
    ConfigKey {
        name: "scale_warm",
        value: "COUNT",
        default: "0",
        help: "Number of additional workers that are started in advance and wait for tasks; their command must support \
               DUNLIN_WORKER_WARM",
    },
    ConfigKey {
        name: "scale_season",
        value: "DURATION|off",
        default: "off",
        help: "Period after which load repeats, 1m to 31d, such as 1h. After two periods, workers start before the expected \
               load",
    },
    ConfigKey {
        name: "kv.history_bytes",
        value: "BYTES",
        default: "64MiB",
        help: "Size of the retained history of key changes, for watches that start at an earlier revision; at least 64KiB",
    },
    ConfigKey {
        name: "kv.bytes_max",
        value: "BYTES|auto",
        default: "auto",
        help: "Approximate maximum size of all keys and values; further writes are refused. auto is a quarter of \
               memory_bytes_max. The leader's value applies, so set it equal on all nodes",
    },
    ConfigKey {
        name: "tasks.history_bytes",
        value: "BYTES|off",
        default: "64MiB",
        help: "Size of the retained history of task events in the topic $tasks; off: no such topic",
    },
    ConfigKey {
        name: "tasks.bytes_max",
        value: "BYTES|auto",
        default: "auto",
        help: "Approximate maximum size of all tasks with payloads and results; further tasks are refused. auto is a quarter of \
               memory_bytes_max. The leader's value applies, so set it equal on all nodes",
    },
    ConfigKey {
        name: "tasks.shards",
        value: "COUNT",
        default: "1",
        help: "Number of Raft groups among which tasks are distributed by tenant. 1 to 16, equal on all nodes, and fixed when \
               the node or cluster is created",
    },
    ConfigKey {
        name: "retention.bytes",
        value: "BYTES",
        default: "16MiB",
        help: "Default history of each log, in bytes",
    },
    ConfigKey {
        name: "retention.records",
        value: "COUNT|off",
        default: "off",
        help: "Default history of each log, in records",
    },
    ConfigKey {
        name: "retention.age",
        value: "DURATION|off",
        default: "off",
        help: "Default history of each log, by age",
    },
    ConfigKey {
        name: "topics.auto_create",
        value: SWITCH,
        default: "true",
        help: "Create a topic when a client publishes or subscribes to a subject that no topic owns",
    },
    ConfigKey { name: "limits.topics", value: "COUNT", default: "1000000", help: "Maximum number of topics" },
    ConfigKey {
        name: "limits.connections",
        value: "COUNT",
        default: "50000",
        help: "Maximum number of client connections",
    },
    ConfigKey {
        name: "limits.subscriptions",
        value: "COUNT",
        default: "65536",
        help: "Maximum number of subscriptions of a connection",
    },
    ConfigKey {
        name: "limits.producers",
        value: "COUNT",
        default: "1024",
        help: "Number of producers whose retries each log recognises; the least recently used producer is forgotten first",
    },
    ConfigKey {
        name: "limits.groups",
        value: "COUNT",
        default: "10000",
        help: "Maximum number of groups of all topics",
    },
    ConfigKey {
        name: "limits.group_members",
        value: "COUNT",
        default: "1024",
        help: "Maximum number of members of a group",
    },
    ConfigKey {
        name: "limits.group_unconfirmed",
        value: "COUNT",
        default: "65536",
        help: "Maximum number of records of a share group that a member has received and not confirmed",
    },
    ConfigKey {
        name: "limits.group_claims",
        value: "COUNT",
        default: "16384",
        help: "Maximum number of claims in a work group",
    },
    ConfigKey {
        name: "limits.group_member_claims",
        value: "COUNT",
        default: "1024",
        help: "Maximum number of claims of a member of a work group",
    },
    ConfigKey {
        name: "limits.group_look_ahead",
        value: "COUNT",
        default: "65536",
        help: "Maximum number of records that a work group tracks, from its oldest record that is neither acknowledged nor a \
               dead letter",
    },
    ConfigKey {
        name: "limits.group_idle",
        value: "DURATION",
        default: "1h",
        help: "Time without members after which a group is removed",
    },
    ConfigKey {
        name: "limits.deleted_age",
        value: "DURATION",
        default: "1m",
        help: "Time during which existing subscribers can still read the records of a deleted topic",
    },
    ConfigKey {
        name: "limits.record_bytes",
        value: "BYTES",
        default: "8MiB",
        help: "Largest record, unless its topic sets a lower limit",
    },
    ConfigKey {
        name: "heartbeat_ms",
        value: "MILLISECONDS",
        default: "1000",
        help: "Time between heartbeats on an idle connection, in milliseconds; without any for twice that time, the connection \
               is closed",
    },
    ConfigKey {
        name: "spin",
        value: SWITCH,
        default: "false",
        help: "Never suspend the threads that serve connections: lowest latency, at the cost of one busy core per thread",
    },
    ConfigKey {
        name: "threads",
        value: "COUNT|auto",
        default: "auto",
        help: "Number of threads that serve connections; auto is one per core",
    },
    ConfigKey {
        name: "log",
        value: "LEVEL",
        default: "warn",
        help: "Minimum level of log lines on standard error: error, warn, info, debug or trace",
    },
    ConfigKey {
        name: "log_format",
        value: "FORMAT",
        default: "text",
        help: "Format of log lines: text for people, json for programs (one object per line)",
    },
    ConfigKey {
        name: "otlp.endpoint",
        value: "URL|off",
        default: "off",
        help: "URL of the OpenTelemetry collector to send traces to, such as http://127.0.0.1:4318; needs a program built with \
               --features otel",
    },
];

/// Returns the index in [`KEYS`] of the key named `name`.
pub fn find(name: &str) -> Option<usize> {
    KEYS.iter().position(|key| key.name == name)
}

/// Returns the name in `names` that is most similar to `wrong`, if `wrong` may be a misspelling of it.
pub fn nearest(wrong: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let distance = |name: &str| strsim::damerau_levenshtein(wrong, name);
    names.min_by_key(|name| distance(name)).filter(|name| distance(name) <= (name.len() / 2).max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key_is_suggested_for_a_typo_but_not_for_nonsense() {
        let names = || KEYS.iter().map(|key| key.name.to_owned());
        assert_eq!(nearest("retention.byte", names()).as_deref(), Some("retention.bytes"));
        assert_eq!(nearest("lisen", names()).as_deref(), Some("listen"));
        assert_eq!(nearest("zzzzzzzzzzzzzzzzz", names()), None);
    }

    #[test]
    fn flag_and_variable_names_derive_from_the_key() {
        let key = &KEYS[find("retention.bytes").unwrap()];
        assert_eq!(
            (key.flag().as_str(), key.variable().as_str()),
            ("retention-bytes", "DUNLIN_RETENTION_BYTES")
        );
    }
}

//! Every key of a node's configuration, once: its name, its default, and what it means.
//!
//! Flags (`--retention-bytes`), variables (`DUNLIN_RETENTION_BYTES`), the file (`retention.bytes`), `config show` and the
//! help text are all made from this table, so they cannot disagree.

/// One key.
#[derive(Debug)]
pub struct Key {
    /// As in the file, with dots.
    pub name: &'static str,
    /// What stands for its value in the help.
    pub value: &'static str,
    /// As one would write it.
    pub default: &'static str,
    pub help: &'static str,
}

impl Key {
    pub fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.replace('.', "_").to_uppercase())
    }

    /// `true` and `false` only; its flag needs no value.
    pub fn is_switch(&self) -> bool {
        self.value == SWITCH
    }
}

/// Doors that `dunlin dev` opens at their usual ports, though they are shut by default. Where another program has the
/// port, the door stays shut and `dev` says so.
pub const DEV_DEFAULTS: &[(&str, &str)] = &[
    ("nats.listen", "127.0.0.1:4222"),
    ("http.listen", "127.0.0.1:8222"),
    ("grpc.listen", "127.0.0.1:50051"),
];

pub const VARIABLE_PREFIX: &str = "DUNLIN_";

const SWITCH: &str = "true|false";

pub const KEYS: &[Key] = &[
    Key {
        name: "listen",
        value: "ADDRESS|off",
        default: "127.0.0.1:4220",
        help: "TCP address of Dunlin's own protocol; port 0 takes any free port",
    },
    Key {
        name: "name",
        value: "NAME",
        default: "dunlin",
        help: "What the node is called, to clients and in metrics",
    },
    Key { name: "unix", value: "PATH|off", default: "off", help: "Unix socket of Dunlin's own protocol" },
    Key {
        name: "nats.listen",
        value: "ADDRESS|off",
        default: "off",
        help: "TCP address of the NATS client protocol",
    },
    Key {
        name: "nats.publish_timeout",
        value: "DURATION",
        default: "30s",
        help: "How long a NATS client may take over one operation, from its first byte to its last",
    },
    Key {
        name: "nats.ping_interval",
        value: "DURATION",
        default: "2m",
        help: "How often a NATS client is asked for a sign of life",
    },
    Key {
        name: "nats.pings_max",
        value: "COUNT",
        default: "2",
        help: "A NATS client that leaves so many of them unanswered is disconnected",
    },
    Key { name: "grpc.listen", value: "ADDRESS|off", default: "off", help: "TCP address of gRPC" },
    Key {
        name: "grpc.streams_max",
        value: "COUNT",
        default: "1024",
        help: "Calls of one gRPC connection at a time; more wait with the client",
    },
    Key {
        name: "grpc.message_bytes_max",
        value: "SIZE",
        default: "16MiB",
        help: "Size of one message that a gRPC client sends at most",
    },
    Key {
        name: "grpc.message_ms_max",
        value: "MILLISECONDS",
        default: "30000",
        help: "How long a gRPC message may take from its first byte to its last",
    },
    Key {
        name: "grpc.header_bytes_max",
        value: "SIZE",
        default: "16KiB",
        help: "Metadata of one gRPC call at most",
    },
    Key {
        name: "grpc.subjects_max",
        value: "COUNT",
        default: "1024",
        help: "Subjects of one gRPC subscription at most",
    },
    Key {
        name: "grpc.batch_bytes_max",
        value: "SIZE",
        default: "1MiB",
        help: "What a gRPC subscriber may ask for as the size of its answers",
    },
    Key {
        name: "grpc.message_subscribers_max",
        value: "COUNT",
        default: "1000",
        help: "Subscribers of one topic through Ratatoskr's MessageBroker at most",
    },
    Key {
        name: "grpc.keep_alive_ms",
        value: "MILLISECONDS",
        default: "20000",
        help: "How often a silent gRPC connection is asked for a sign of life, and how long it has for it",
    },
    Key {
        name: "grpc.idle_ms_max",
        value: "MILLISECONDS",
        default: "600000",
        help: "How long a gRPC connection stands without a call",
    },
    Key {
        name: "grpc.stream_window_bytes",
        value: "SIZE",
        default: "1MiB",
        help: "What a gRPC client may send of one call before it is read",
    },
    Key {
        name: "grpc.connection_window_bytes",
        value: "SIZE",
        default: "2MiB",
        help: "What a gRPC client may send of all its calls before it is read",
    },
    Key {
        name: "http.listen",
        value: "ADDRESS|off",
        default: "off",
        help: "TCP address of HTTP: topics, server-sent events, probes and metrics",
    },
    Key {
        name: "http.origins",
        value: "ORIGINS|off",
        default: "off",
        help: "Pages that may use HTTP from a browser, like https://example.com, with commas between them",
    },
    Key {
        name: "http.report",
        value: "FILE|off",
        default: "off",
        help: "A file of `dunlin report --out`, which the dashboard shows",
    },
    Key {
        name: "tls.cert",
        value: "FILE|off",
        default: "off",
        help: "The node's certificate and those that lead to its authority, PEM: with it every TCP address speaks TLS",
    },
    Key {
        name: "tls.key",
        value: "FILE|off",
        default: "off",
        help: "The key of the node's certificate, PEM",
    },
    Key {
        name: "tls.client_ca",
        value: "FILE|off",
        default: "off",
        help: "Authorities of clients, PEM: every client has to show a certificate that one of them has signed",
    },
    Key {
        name: "nats.tls_first",
        value: SWITCH,
        default: "false",
        help: "NATS clients begin with TLS, before INFO; they have to be told so (tls_first, handshake first)",
    },
    Key {
        name: "insecure_listen_without_tls",
        value: SWITCH,
        default: "false",
        help: "Listen off loopback without TLS: everyone who reaches the address can read and publish everything",
    },
    Key {
        name: "insecure_listen_without_authentication",
        value: SWITCH,
        default: "false",
        help: "Listen off loopback by TLS without asking clients who they are: everyone who reaches the address can read \
               and publish everything",
    },
    Key {
        name: "auth.users_file",
        value: "FILE|off",
        default: "off",
        help: "Who may come in, and what they may do; without it everyone who reaches a door may do everything",
    },
    Key {
        name: "data_dir",
        value: "DIR|off",
        default: "off",
        help: "Where durable topics are kept; without it the node has none",
    },
    Key {
        name: "memory_bytes_max",
        value: "SIZE",
        default: "1GiB",
        help: "Memory for records, states, topics, subscriptions and what clients have under way; 1MiB at least",
    },
    Key {
        name: "cluster.listen",
        value: "ADDRESS|off",
        default: "off",
        help: "TCP address for the other nodes of a cluster, like 127.0.0.1:6222; needs a data directory, which begins a cluster \
               unless it is one's already",
    },
    Key {
        name: "cluster.advertise",
        value: "HOST:PORT|off",
        default: "off",
        help: "The same as the other nodes reach it, where they have to write it otherwise",
    },
    Key {
        name: "cluster.join",
        value: "HOST:PORT|off",
        default: "off",
        help: "A node of the cluster to join, with an empty data directory; once it has joined this says nothing",
    },
    Key {
        name: "cluster.token_file",
        value: "FILE|off",
        default: "off",
        help: "The file with the join token that `dunlin cluster token` made; --token-file will do as well",
    },
    Key {
        name: "cluster.heartbeat",
        value: "DURATION",
        default: "250ms",
        help: "How often the leader sends a heartbeat, and how long each answer may take: longer than a round trip between the nodes. A \
               leader that is gone is replaced after 4 to 5 of it. 10ms to 10s, the same on every node",
    },
    Key {
        name: "cluster.lease_ttl",
        value: "DURATION",
        default: "2s",
        help: "How long a node that gives no sign of life keeps its volatile topics; then they get other owners. 500ms to 1m, and at \
               least 4 times cluster.heartbeat: topics stand still when it is shorter than a change of the leader",
    },
    Key {
        name: "workers",
        value: "COMMAND|off",
        default: "off",
        help: "Workers for tasks: this command is run as often as it takes, within `scale`; each run finds the node by DUNLIN_URL, and is \
               ended by SIGTERM",
    },
    Key {
        name: "scale",
        value: "MIN..MAX",
        default: "1..4",
        help: "How many workers there are at least and at most, where `workers` says what they are; 0 at least: none without work",
    },
    Key {
        name: "scale_warm",
        value: "COUNT",
        default: "0",
        help: "So many workers more are started and then wait, loaded and connected, until they are needed; their command has to heed \
               DUNLIN_WORKER_WARM",
    },
    Key {
        name: "scale_season",
        value: "DURATION|off",
        default: "off",
        help: "Work that comes back after so long, like 1h, is forecast once it has come twice, and workers are there before it is; 1m to 31d",
    },
    Key {
        name: "kv.history_bytes",
        value: "SIZE",
        default: "64MiB",
        help: "How much of the past changes of keys and values is held for who watches from a revision; 64KiB at least",
    },
    Key {
        name: "kv.bytes_max",
        value: "SIZE|auto",
        default: "auto",
        help: "What keys and their values may take together, roughly; more is refused. auto is a quarter of memory_bytes_max. Of a cluster's \
               nodes, the one that leads has its say: set it the same on every node",
    },
    Key {
        name: "tasks.history_bytes",
        value: "SIZE|off",
        default: "64MiB",
        help: "How much of what happened to tasks is held for who reads the topic $tasks; off: no such topic",
    },
    Key {
        name: "tasks.bytes_max",
        value: "SIZE|auto",
        default: "auto",
        help: "What tasks may take together, roughly, with their payloads and results; more is refused. auto is a quarter of memory_bytes_max. Of a \
               cluster's nodes, the one that leads has its say: set it the same on every node",
    },
    Key {
        name: "tasks.shards",
        value: "COUNT",
        default: "1",
        help: "Raft groups that tasks are spread over, by tenant: 1 to 16, the same on every node; decided when the node or cluster is made, and \
               never changed",
    },
    Key {
        name: "retention.bytes",
        value: "SIZE",
        default: "16MiB",
        help: "History kept by topics that do not say otherwise, bytes",
    },
    Key {
        name: "retention.records",
        value: "COUNT|off",
        default: "off",
        help: "History kept by topics that do not say otherwise, records",
    },
    Key {
        name: "retention.age",
        value: "DURATION|off",
        default: "off",
        help: "History kept by topics that do not say otherwise, age",
    },
    Key {
        name: "topics.auto_create",
        value: SWITCH,
        default: "true",
        help: "Publishing or subscribing to a subject that no topic owns creates one",
    },
    Key { name: "limits.topics", value: "COUNT", default: "1000000", help: "Topics at most" },
    Key { name: "limits.connections", value: "COUNT", default: "50000", help: "Client connections at most" },
    Key {
        name: "limits.subscriptions",
        value: "COUNT",
        default: "65536",
        help: "Subscriptions of one connection at most",
    },
    Key {
        name: "limits.producers",
        value: "COUNT",
        default: "1024",
        help: "Producers each log remembers, so that their retries are found; the least recently used is forgotten",
    },
    Key { name: "limits.groups", value: "COUNT", default: "10000", help: "Groups of all topics at most" },
    Key {
        name: "limits.group_members",
        value: "COUNT",
        default: "1024",
        help: "Members of one group at most",
    },
    Key {
        name: "limits.group_unconfirmed",
        value: "COUNT",
        default: "65536",
        help: "Records of a share group that one member may have and not have confirmed",
    },
    Key {
        name: "limits.group_claims",
        value: "COUNT",
        default: "16384",
        help: "Claims in flight of one work group at most",
    },
    Key {
        name: "limits.group_member_claims",
        value: "COUNT",
        default: "1024",
        help: "Claims in flight of one member at most",
    },
    Key {
        name: "limits.group_look_ahead",
        value: "COUNT",
        default: "65536",
        help: "Records from the oldest that is not settled on to which a work group looks",
    },
    Key {
        name: "limits.group_idle",
        value: "DURATION",
        default: "1h",
        help: "How long a group stands without members",
    },
    Key {
        name: "limits.deleted_age",
        value: "DURATION",
        default: "1m",
        help: "How long what a deleted topic held stays readable for those who subscribed before",
    },
    Key {
        name: "limits.record_bytes",
        value: "SIZE",
        default: "8MiB",
        help: "Size of one record at most, unless its topic says less",
    },
    Key {
        name: "heartbeat_ms",
        value: "MILLISECONDS",
        default: "1000",
        help: "How often an idle connection is shown to be alive; one that is silent for two of them is dead",
    },
    Key {
        name: "spin",
        value: SWITCH,
        default: "false",
        help: "Never park the threads that serve connections: lowest latency, one busy core each",
    },
    Key {
        name: "threads",
        value: "COUNT|auto",
        default: "auto",
        help: "Threads that serve connections; auto is one per core",
    },
    Key {
        name: "log",
        value: "LEVEL",
        default: "warn",
        help: "error, warn, info, debug or trace; to standard error",
    },
    Key {
        name: "log_format",
        value: "FORMAT",
        default: "text",
        help: "text for people, json for programs: an object on each line",
    },
    Key {
        name: "otlp.endpoint",
        value: "URL|off",
        default: "off",
        help: "Collector of OpenTelemetry that is sent traces, like http://127.0.0.1:4318; needs a program built with \
               --features otel",
    },
];

/// The key of this name, and its place in the table.
pub fn find(name: &str) -> Option<usize> {
    KEYS.iter().position(|key| key.name == name)
}

/// The best guess at what was meant by a name that is none.
pub fn nearest(wrong: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let distance = |name: &str| strsim::damerau_levenshtein(wrong, name);
    names.min_by_key(|name| distance(name)).filter(|name| distance(name) <= (name.len() / 2).max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_key_finds_the_nearest_and_nonsense_none() {
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

//! A node's configuration: [`RawConfig`] contains the values as text, and [`NodeConfig`] the values after validation.

mod example;
mod flags;
pub mod keys;
mod limits;
mod raw;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use dunlin::NodeLimits;
use dunlin::raft::HEARTBEAT_MS;
use dunlin_server::{GrpcLimits, TlsConfig};

pub use example::example;
pub use flags::ConfigFlags;
pub use keys::nearest;
pub use raw::{ConfigValue, RawConfig, ValueOrigin};
pub use values::{ByteSize, ValueOrOff};

use crate::commands::parse::DURATION_MAX;
use crate::outcome::CommandRefusal;
use crate::workers::WorkersConfig;

/// A node's validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    pub name: String,
    pub listen: Option<SocketAddr>,
    pub unix: Option<PathBuf>,
    pub nats: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    /// The origins (scheme, host and port) of web pages whose scripts may use the HTTP listener.
    pub http_origins: Vec<String>,
    /// A report that `dunlin report` wrote, which the dashboard shows.
    pub http_report: Option<PathBuf>,
    pub grpc: Option<SocketAddr>,
    pub grpc_limits: GrpcLimits,
    pub tls: Option<TlsConfig>,
    pub users_file: Option<PathBuf>,
    pub data_dir: Option<PathBuf>,
    pub cluster: Option<ClusterSettings>,
    pub retention_bytes: u64,
    pub retention_records: Option<u64>,
    pub retention_age: Option<Duration>,
    pub auto_create: bool,
    /// Limits of the node.
    pub limits: NodeLimits,
    pub connections_max: usize,
    pub subscriptions_max: usize,
    pub record_bytes_max: usize,
    pub heartbeat: Duration,
    pub spin: bool,
    pub threads: Option<usize>,
    pub log: String,
    pub log_as_json: bool,
    /// The URL of the OpenTelemetry collector, if the configuration sets it.
    pub otlp_endpoint: Option<String>,
    /// The maximum time between the first and the last byte of one operation that a NATS client sends.
    pub nats_publish: Duration,
    /// The interval at which the node sends a ping to each NATS client.
    pub nats_ping: Duration,
    pub nats_pings_max: u32,
    /// The worker processes that the node starts.
    pub workers: Option<WorkersConfig>,
}

/// The settings with which a node takes part in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    pub listen: SocketAddr,
    pub advertise: Option<String>,
    /// The address of a member of the cluster to join, and the path of the file with the join token.
    pub join: Option<(String, PathBuf)>,
    pub heartbeat: Duration,
    pub lease_ttl: Duration,
}

impl TryFrom<&RawConfig> for NodeConfig {
    type Error = anyhow::Error;

    fn try_from(raw: &RawConfig) -> Result<NodeConfig> {
        let config = NodeConfig {
            listen: address(raw, "listen", "an address like 127.0.0.1:4220, or off")?,
            unix: value::<ValueOrOff<PathBuf>>(raw, "unix", "a path, or off")?.0,
            nats: address(raw, "nats.listen", "an address like 127.0.0.1:4222, or off")?,
            http: address(raw, "http.listen", "an address like 127.0.0.1:8222, or off")?,
            http_origins: origins(raw)?,
            http_report: value::<ValueOrOff<PathBuf>>(raw, "http.report", "a file, or off")?.0,
            grpc: address(raw, "grpc.listen", "an address like 127.0.0.1:50051, or off")?,
            grpc_limits: limits::grpc(raw)?,
            tls: tls(raw)?,
            users_file: value::<ValueOrOff<PathBuf>>(raw, "auth.users_file", "a file, or off")?.0,
            data_dir: value::<ValueOrOff<PathBuf>>(raw, "data_dir", "a directory, or off")?.0,
            cluster: cluster(raw)?,
            retention_bytes: size(raw, "retention.bytes")?,
            retention_records: value::<ValueOrOff<NonZeroU64>>(
                raw,
                "retention.records",
                "a whole number over 0, or off",
            )?
            .0
            .map(NonZeroU64::get),
            retention_age: match raw.get("retention.age").text.as_str() {
                "off" => None,
                _ => Some(duration(raw, "retention.age")?),
            },
            auto_create: switch(raw, "topics.auto_create")?,
            limits: limits::node(raw)?,
            connections_max: count(raw, "limits.connections")?,
            subscriptions_max: count(raw, "limits.subscriptions")?,
            record_bytes_max: size(raw, "limits.record_bytes")? as usize,
            heartbeat: Duration::from_millis(count(raw, "heartbeat_ms")? as u64),
            spin: switch(raw, "spin")?,
            threads: threads(raw)?,
            log: log_level(raw)?,
            log_as_json: log_as_json(raw)?,
            otlp_endpoint: value::<ValueOrOff<String>>(raw, "otlp.endpoint", "a URL, or off")?.0,
            nats_publish: duration(raw, "nats.publish_timeout")?,
            nats_ping: duration(raw, "nats.ping_interval")?,
            nats_pings_max: u32::try_from(count(raw, "nats.pings_max")?).unwrap_or(u32::MAX),
            name: raw.get("name").text.clone(),
            workers: WorkersConfig::of(raw)?,
        };
        check_network_exposure(&config, raw)?;
        if config.addresses().next().is_none() && config.unix.is_none() {
            bail!(
                "all listeners are off, so no client could reach the node: set listen, unix, nats.listen, http.listen or grpc.listen"
            );
        }
        Ok(config)
    }
}

impl NodeConfig {
    /// The TCP addresses of all listeners that are on.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen, self.nats, self.http, self.grpc].into_iter().flatten()
    }
}

fn address(raw: &RawConfig, name: &str, expected: &str) -> Result<Option<SocketAddr>> {
    value::<ValueOrOff<SocketAddr>>(raw, name, expected).map(|address| address.0)
}

fn cluster(raw: &RawConfig) -> Result<Option<ClusterSettings>> {
    let text = |name, expected| value::<ValueOrOff<String>>(raw, name, expected).map(|text| text.0);
    let listen = address(raw, "cluster.listen", "an address like 127.0.0.1:6222, or off")?;
    let advertise = text("cluster.advertise", "a host and a port, or off")?;
    let join = text("cluster.join", "a host and a port, or off")?;
    let token_file = value::<ValueOrOff<PathBuf>>(raw, "cluster.token_file", "a file, or off")?.0;
    let heartbeat = heartbeat(raw)?;
    let lease_ttl = lease_ttl(raw, heartbeat)?;
    let Some(listen) = listen else {
        if join.is_some() {
            bail!(
                "cluster.join is set, but not cluster.listen: set cluster.listen to an address that the other nodes can reach"
            );
        }
        return Ok(None);
    };
    if raw.get("data_dir").text == "off" {
        bail!(
            "cluster.listen is set, but not data_dir: set data_dir, because a node of a cluster stores the cluster's state"
        );
    }
    let join = match (join, token_file) {
        (Some(join), Some(file)) => Some((join, file)),
        (Some(_), None) => bail!(
            "cluster.join is set, but not cluster.token_file: run `dunlin cluster token` on a node of the cluster for a token"
        ),
        (None, _) => None,
    };
    Ok(Some(ClusterSettings { listen, advertise, join, heartbeat, lease_ttl }))
}

/// The smallest time to live that a topic owner's lease may have. With a shorter one, each change of the cluster's
/// leader would move topics to other nodes.
const LEASE_TTL_MIN: Duration = Duration::from_millis(500);
/// The largest time to live that a topic owner's lease may have.
const LEASE_TTL_MAX: Duration = Duration::from_secs(60);

/// The smallest time to live of a topic owner's lease, as a number of heartbeat intervals of the cluster's leader.
const LEASE_HEARTBEATS_MIN: u32 = 4;

fn heartbeat(raw: &RawConfig) -> Result<Duration> {
    match duration(raw, "cluster.heartbeat")? {
        heartbeat if HEARTBEAT_MS.contains(&(heartbeat.as_millis() as u64)) => Ok(heartbeat),
        _ => Err(out_of_bounds(raw, "cluster.heartbeat", "10ms to 10s")),
    }
}

fn lease_ttl(raw: &RawConfig, heartbeat: Duration) -> Result<Duration> {
    let ttl = match duration(raw, "cluster.lease_ttl")? {
        ttl if (LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&ttl) => ttl,
        _ => return Err(out_of_bounds(raw, "cluster.lease_ttl", "500ms to 1m")),
    };
    let least = heartbeat * LEASE_HEARTBEATS_MIN;
    if ttl < least {
        bail!(
            "cluster.lease_ttl is {ttl:?}, less than {LEASE_HEARTBEATS_MIN} times cluster.heartbeat, {heartbeat:?}: set \
             cluster.lease_ttl to {least:?} at least, or cluster.heartbeat to {:?} at most",
            ttl / LEASE_HEARTBEATS_MIN
        );
    }
    Ok(ttl)
}

fn tls(raw: &RawConfig) -> Result<Option<TlsConfig>> {
    let file = |name| value::<ValueOrOff<PathBuf>>(raw, name, "a file, or off").map(|file| file.0);
    let (cert, key, client_ca) = (file("tls.cert")?, file("tls.key")?, file("tls.client_ca")?);
    let nats_first = switch(raw, "nats.tls_first")?;
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(TlsConfig { cert, key, client_ca, nats_first })),
        (Some(_), None) => bail!("tls.cert is set and tls.key is not: set both, or neither"),
        (None, Some(_)) => bail!("tls.key is set and tls.cert is not: set both, or neither"),
        (None, None) if client_ca.is_some() => {
            bail!("tls.client_ca is set, but not tls.cert and tls.key: set all three")
        }
        (None, None) if nats_first => {
            bail!("nats.tls_first is set, but not tls.cert and tls.key: set all three")
        }
        (None, None) => Ok(None),
    }
}

/// Returns an error if a listener on a non-loopback address has no TLS or no authentication, unless the operator
/// accepts this risk with another option.
fn check_network_exposure(config: &NodeConfig, raw: &RawConfig) -> Result<()> {
    let Some(ip) = config.addresses().map(|address| address.ip()).find(|ip| !is_loopback(*ip)) else {
        return Ok(());
    };
    let everyone = "anyone who reaches that address could read and publish everything. Listen on 127.0.0.1,";
    if config.tls.is_none() && !switch(raw, "insecure_listen_without_tls")? {
        bail!(CommandRefusal(format!(
            "listening on {ip} needs TLS and authentication: without them {everyone} give --tls-cert and \
             --tls-key, with --auth-users-file or --tls-client-ca; or accept the risk with \
             --insecure-listen-without-tls"
        )));
    }
    if config.tls.is_some()
        && !requires_authentication(config)
        && !switch(raw, "insecure_listen_without_authentication")?
    {
        bail!(CommandRefusal(format!(
            "listening on {ip} needs authentication in addition to TLS: without it {everyone} give --auth-users-file, or \
             --tls-client-ca to require client certificates, or accept the risk with --insecure-listen-without-authentication"
        )));
    }
    Ok(())
}

/// Whether all clients must authenticate themselves.
fn requires_authentication(config: &NodeConfig) -> bool {
    config.users_file.is_some() || config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn value<T: FromStr>(raw: &RawConfig, name: &str, expected: &str) -> Result<T> {
    let setting = raw.get(name);
    setting
        .text
        .parse()
        .map_err(|_| anyhow!("{name} = {:?} ({}): expected {expected}", setting.text, setting.origin))
}

fn size(raw: &RawConfig, name: &str) -> Result<u64> {
    value::<ByteSize>(raw, name, "a size over 0, like 64MiB, 10MB or 4096").map(|size| size.0)
}

fn count(raw: &RawConfig, name: &str) -> Result<usize> {
    value::<std::num::NonZeroU32>(raw, name, "a whole number over 0").map(|number| number.get() as usize)
}

/// The shortest duration that the configuration accepts. A node cannot measure shorter ones.
const DURATION_MIN: Duration = Duration::from_millis(1);

fn duration(raw: &RawConfig, name: &str) -> Result<Duration> {
    match duration_or_zero(raw, name)? {
        duration if duration >= DURATION_MIN => Ok(duration),
        _ => Err(out_of_bounds(raw, name, "a duration of 1ms at least, like 500ms, 10m or 1h")),
    }
}

/// Reads a duration that may be 0.
fn duration_or_zero(raw: &RawConfig, name: &str) -> Result<Duration> {
    match value::<humantime::Duration>(raw, name, "a duration like 500ms, 10m or 1h")?.into() {
        duration if duration <= DURATION_MAX => Ok(duration),
        _ => Err(out_of_bounds(raw, name, "a duration of 100 years at most, like 500ms, 10m or 1h")),
    }
}

fn switch(raw: &RawConfig, name: &str) -> Result<bool> {
    value(raw, name, "true or false")
}

fn threads(raw: &RawConfig) -> Result<Option<usize>> {
    if raw.get("threads").text == "auto" {
        return Ok(None);
    }
    match count(raw, "threads")? {
        threads @ 1..=THREADS_MAX => Ok(Some(threads)),
        _ => Err(out_of_bounds(raw, "threads", &format!("auto, or 1 to {THREADS_MAX}"))),
    }
}

/// The maximum number of threads. There is a limit, because each thread needs memory and has a runtime of its own.
const THREADS_MAX: usize = 1_024;
fn out_of_bounds(raw: &RawConfig, name: &str, expected: &str) -> anyhow::Error {
    let setting = raw.get(name);
    anyhow!("{name} = {:?} ({}): expected {expected}", setting.text, setting.origin)
}

fn log_level(raw: &RawConfig) -> Result<String> {
    let setting = raw.get("log");
    if !["error", "warn", "info", "debug", "trace"].contains(&setting.text.as_str()) {
        bail!("log = {:?} ({}): expected error, warn, info, debug or trace", setting.text, setting.origin);
    }
    Ok(setting.text.clone())
}

fn log_as_json(raw: &RawConfig) -> Result<bool> {
    let setting = raw.get("log_format");
    match setting.text.as_str() {
        "text" => Ok(false),
        "json" => Ok(true),
        text => bail!("log_format = {text:?} ({}): expected text or json", setting.origin),
    }
}

/// Reads `http.origins`: origins of web pages, in the form in which browsers send them. An origin is a scheme, a host,
/// and the port if it is not the scheme's default.
fn origins(raw: &RawConfig) -> Result<Vec<String>> {
    let setting = raw.get("http.origins");
    if setting.text == "off" {
        return Ok(Vec::new());
    }
    let is_origin = |text: &&str| {
        let rest = text.strip_prefix("https://").or(text.strip_prefix("http://"));
        rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ', '@']))
    };
    let written: Vec<&str> = setting.text.split(',').map(str::trim).collect();
    match written.iter().find(|text| !is_origin(text)) {
        Some(wrong) => {
            let expected = "expected origins like https://example.com, with commas between them, or off";
            bail!("http.origins = {wrong:?} ({}): {expected}", setting.origin)
        }
        None => Ok(written.into_iter().map(str::to_owned).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, text: &str) -> Result<NodeConfig> {
        let mut raw = RawConfig::defaults();
        raw.set(keys::find(name).unwrap(), text.to_owned(), ValueOrigin::Flag(name.to_owned()));
        NodeConfig::try_from(&raw)
    }

    #[test]
    fn default_configuration_is_valid() {
        let config = NodeConfig::try_from(&RawConfig::defaults()).unwrap();
        assert_eq!(config.listen.unwrap().port(), 4220);
        assert_eq!(config.retention_bytes, 16 << 20);
        assert_eq!(config.limits, NodeLimits::default(), "the keys say what a node does without them");
        assert_eq!(config.grpc_limits, GrpcLimits::default(), "the same");
    }

    #[test]
    fn error_for_an_invalid_value_names_the_key_and_the_source() {
        assert_eq!(
            with("retention.bytes", "lots").unwrap_err().to_string(),
            "retention.bytes = \"lots\" (--retention.bytes): expected a size over 0, like 64MiB, 10MB or 4096"
        );
        assert!(with("limits.topics", "0").is_err());
        assert_eq!(
            with("memory_bytes_max", "1").unwrap_err().to_string(),
            "memory_bytes_max = \"1\" (--memory_bytes_max): expected 1MiB at least"
        );
        assert_eq!(
            with("kv.bytes_max", "1KiB").unwrap_err().to_string(),
            "kv.bytes_max = \"1KiB\" (--kv.bytes_max): expected auto, or 64KiB at least"
        );
        assert!(with("tasks.bytes_max", "none").is_err());
        assert!(with("kv.history_bytes", "1KiB").unwrap_err().to_string().contains("expected 64KiB to 1TiB"));
        assert_eq!(with("kv.history_bytes", "1MiB").unwrap().limits.control.history_bytes, 1 << 20);
        assert!(with("cluster.lease_ttl", "1ms").unwrap_err().to_string().contains("expected 500ms to 1m"));
        assert!(with("cluster.heartbeat", "1ms").unwrap_err().to_string().contains("expected 10ms to 10s"));
        assert_eq!(
            with("cluster.heartbeat", "1s").unwrap_err().to_string(),
            "cluster.lease_ttl is 2s, less than 4 times cluster.heartbeat, 1s: set cluster.lease_ttl to 4s at least, or \
             cluster.heartbeat to 500ms at most"
        );
        assert_eq!(with("tasks.history_bytes", "off").unwrap().limits.tasks.history_bytes, 0);
        assert!(with("tasks.history_bytes", "1KiB").is_err());
        assert_eq!(with("tasks.shards", "4").unwrap().limits.tasks.shards, 4);
        assert!(with("tasks.shards", "17").unwrap_err().to_string().contains("expected 1 to 16"));
        assert!(with("threads", "1000000").unwrap_err().to_string().contains("expected auto, or 1 to 1024"));
        assert_eq!(with("threads", "1024").unwrap().threads, Some(1_024));
        assert!(with("log", "loud").is_err());
        assert!(with("listen", "off").unwrap_err().to_string().contains("all listeners are off"));
    }

    #[test]
    fn durations_and_counts_out_of_range_are_refused() {
        let durations = keys::KEYS.iter().filter(|key| key.value.starts_with("DURATION"));
        for key in durations {
            let (too_long, too_short) = (with(key.name, "101years"), with(key.name, "10us"));
            assert!(too_long.unwrap_err().to_string().contains("expected"), "{}", key.name);
            let may_be_zero = ["limits.group_idle", "limits.deleted_age"].contains(&key.name);
            assert_eq!(too_short.is_ok(), may_be_zero, "{}", key.name);
            assert_eq!(with(key.name, "0s").is_ok(), may_be_zero, "{}", key.name);
            assert!(with(key.name, "1h").is_ok() || key.name.starts_with("cluster."), "{}", key.name);
        }
        for key in keys::KEYS
            .iter()
            .filter(|key| ["COUNT", "MILLI", "BYTES"].iter().any(|kind| key.value.starts_with(kind)))
        {
            assert!(with(key.name, "0").is_err() || key.name == "scale_warm", "{}", key.name);
            assert!(with(key.name, "-1").is_err(), "{}", key.name);
        }
        assert_eq!(
            with("retention.age", "0s").unwrap_err().to_string(),
            "retention.age = \"0s\" (--retention.age): expected a duration of 1ms at least, like 500ms, 10m or 1h"
        );
    }

    #[test]
    fn http_origin_with_path_or_wildcard_is_refused() {
        let read = |text| with("http.origins", text).map(|config| config.http_origins);
        assert_eq!(read("off").unwrap(), Vec::<String>::new());
        let two = "https://app.example, http://localhost:3000";
        assert_eq!(read(two).unwrap(), ["https://app.example", "http://localhost:3000"]);
        for wrong in
            ["*", "app.example", "https://", "https://app.example/", "https://*.example", "https://a,,"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(with("log_format", "xml").is_err() && with("log_format", "json").unwrap().log_as_json);
    }

    #[test]
    fn non_loopback_address_needs_the_insecure_setting() {
        let error = with("listen", "0.0.0.0:4220").unwrap_err();
        assert!(
            error.is::<CommandRefusal>() && error.to_string().contains("--insecure-listen-without-tls"),
            "{error}"
        );
        let error = with("nats.listen", "0.0.0.0:4222").unwrap_err();
        assert!(error.is::<CommandRefusal>(), "every listener: {error}");
        assert!(with("listen", "[::1]:0").is_ok());
        assert!(with("listen", "[::ffff:127.0.0.1]:0").is_ok());

        let mut raw = RawConfig::defaults();
        raw.set(keys::find("listen").unwrap(), "0.0.0.0:0".into(), ValueOrigin::Default);
        raw.set(keys::find("insecure_listen_without_tls").unwrap(), "true".into(), ValueOrigin::Default);
        assert!(NodeConfig::try_from(&raw).is_ok());
    }

    #[test]
    fn tls_without_authentication_allows_only_loopback_addresses() {
        let set = |more: &[(&str, &str)]| {
            let mut raw = RawConfig::defaults();
            let tls = [("listen", "0.0.0.0:0"), ("tls.cert", "c.pem"), ("tls.key", "k.pem")];
            for (name, text) in tls.iter().chain(more) {
                raw.set(keys::find(name).unwrap(), (*text).to_owned(), ValueOrigin::Default);
            }
            NodeConfig::try_from(&raw)
        };
        let error = set(&[]).unwrap_err();
        assert!(
            error.is::<CommandRefusal>()
                && error.to_string().contains("--insecure-listen-without-authentication"),
            "{error}"
        );
        assert!(set(&[("tls.client_ca", "ca.pem")]).is_ok());
        assert!(set(&[("insecure_listen_without_authentication", "true")]).is_ok());
        assert!(
            set(&[("insecure_listen_without_tls", "true")]).is_err(),
            "that says nothing of authentication"
        );
    }

    #[test]
    fn incomplete_tls_settings_are_refused() {
        for (name, missing) in [
            ("tls.cert", "tls.key is not"),
            ("tls.key", "tls.cert is not"),
            ("tls.client_ca", "not tls.cert and tls.key"),
        ] {
            let error = with(name, "file.pem").unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}

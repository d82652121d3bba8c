//! A connection to a node and all handles made from it. Python's class `Client` wraps the connection, and adds keyword
//! arguments and types.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dunlin_client::tls::TlsOptions;
use dunlin_client::{
    Client, ClientOptions, Credentials, DeadLetterTarget, Group, GroupKind, GroupOptions, PublisherOptions,
    Requester, Responder,
};
use dunlin_feed::Replica;
use dunlin_topic::{OnGap, Pattern, Start, SubscribeOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::drafts::{OutgoingRecord, PublishOptions, prefix_of_pattern};
use crate::events::{BufferedSubscriber, timeout};
use crate::failure::Failure;
use crate::handle::{Closable, SharedHandle, run_detached, run_interruptible};
use crate::member::{PrefetchingMember, PyMember};
use crate::publisher::PyPublisher;
use crate::replica::PyReplica;
use crate::state::State;
use crate::subscription::{self, Subscription};
use crate::topics::{self, TopicArguments};

/// The largest number of requesters that a connection keeps for later requests. Concurrent requests may create more.
const REQUESTERS_MAX: usize = 32;

/// A connection to a node.
#[pyclass(frozen, module = "dunlin")]
pub struct Connection {
    client: SharedHandle<Client>,
    requesters: SharedHandle<Vec<Requester>>,
    responder: SharedHandle<Responder>,
    /// The handles to close when the connection is closed.
    handles: Mutex<Vec<Weak<dyn Closable>>>,
}

impl Connection {
    /// Returns the client for one call. The caller must drop the client after the call: the connection stays open as
    /// long as any client exists.
    pub fn client(&self, py: Python<'_>) -> PyResult<Client> {
        self.client.with_lock(py, |client| Ok(client.clone()))
    }

    /// Runs `call`, which may wait for the node, without the interpreter's lock.
    pub fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Client) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        let client = self.client(py)?;
        let watched = self.client.clone();
        run_interruptible(py, move || watched.is_closed(), || call(&client))
    }

    /// Registers a handle, so that closing the connection closes the handle too.
    pub fn register_handle(&self, closer: &Arc<dyn Closable>) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|other| other.strong_count() > 0);
        handles.push(Arc::downgrade(closer));
    }
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (
        url, *, name = "", tenant = "", credentials = None, ca = None, client_cert = None, client_key = None, wait = "default"
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        url: &str,
        name: &str,
        tenant: &str,
        credentials: Option<Vec<u8>>,
        ca: Option<Vec<u8>>,
        client_cert: Option<Vec<u8>>,
        client_key: Option<Vec<u8>>,
        wait: &str,
    ) -> PyResult<Connection> {
        let mut tls = TlsOptions::default();
        (tls.ca, tls.cert, tls.key) = (ca, client_cert, client_key);
        let options = ClientOptions {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            credentials: Credentials::token(credentials.unwrap_or_default()),
            tls,
            wait: subscription::wait(wait)?,
            ..ClientOptions::default()
        };
        let client = run_interruptible(py, || false, || Ok(Client::connect(url, options)?))?;
        let responder = SharedHandle::new(client.responder());
        let requesters = SharedHandle::new(Vec::new());
        Ok(Connection { client: SharedHandle::new(client), requesters, responder, handles: Mutex::default() })
    }

    #[getter]
    fn node_name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.client(py)?.node_name())
    }

    #[getter]
    fn is_up(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.client(py)?.is_up())
    }

    #[getter]
    fn connections(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.client(py)?.connections())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.client.is_closed()
    }

    #[pyo3(signature = (subject, *, quiet = false))]
    fn publisher(&self, py: Python<'_>, subject: &str, quiet: bool) -> PyResult<PyPublisher> {
        let options = PublisherOptions { quiet, identity: None };
        let publisher = self.call(py, |client| Ok(client.publisher_with(subject, options)?))?;
        let publisher = SharedHandle::new(publisher);
        self.register_handle(&publisher.closer());
        Ok(PyPublisher { subject: subject.to_owned(), prefix: prefix_of_pattern(subject), publisher })
    }

    #[pyo3(signature = (pattern, *, name, start, on_gap, registered, conflate, wait))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn subscribe(
        &self,
        py: Python<'_>,
        pattern: &str,
        name: &str,
        start: &Bound<'_, PyAny>,
        on_gap: &str,
        registered: bool,
        conflate: bool,
        wait: &str,
    ) -> PyResult<Subscription> {
        let options = SubscribeOptions {
            name: name.to_owned(),
            start: subscription::start(start)?,
            on_gap: subscription::on_gap(on_gap)?,
            wait: subscription::wait(wait)?,
            registered,
            conflate,
            ..SubscribeOptions::default()
        };
        let follows_state = subscription::follows_state(&options);
        let subscriber = self.call(py, |client| Ok(client.subscribe(pattern, options)?))?;
        let source = Arc::new(BufferedSubscriber::new(subscriber));
        self.register_handle(&source.subscriber.closer());
        Ok(Subscription { pattern: pattern.to_owned(), name: name.to_owned(), follows_state, source })
    }

    #[pyo3(signature = (topic, group, *, kind, member, start, claim, attempts_max, dead_letter, prefetch))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn join(
        &self,
        py: Python<'_>,
        topic: &str,
        group: &str,
        kind: &str,
        member: &str,
        start: &Bound<'_, PyAny>,
        claim: Option<f64>,
        attempts_max: u32,
        dead_letter: Option<&str>,
        prefetch: u64,
    ) -> PyResult<PyMember> {
        let kind = match kind {
            "share" => GroupKind::Share,
            "work" => GroupKind::Work,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "kind must be \"share\" or \"work\", not {kind:?}"
                )));
            }
        };
        let options = GroupOptions {
            member: member.to_owned(),
            kind,
            start: subscription::start(start)?,
            claim: timeout(claim)?,
            attempts_max,
            dead_letters: match dead_letter {
                None => DeadLetterTarget::Drop,
                Some("") => DeadLetterTarget::Default,
                Some(subject) => DeadLetterTarget::Subject(subject.to_owned()),
            },
            ..GroupOptions::default()
        };
        let joined = self.call(py, |client| Ok(client.join(Group { topic, name: group }, options)?))?;
        let settler = SharedHandle::new(joined.settler());
        let prefetch = if kind == GroupKind::Work { prefetch.max(1) } else { 0 };
        let member = SharedHandle::new(PrefetchingMember { member: joined, prefetch, requested: 0 });
        self.register_handle(&member.closer());
        self.register_handle(&settler.closer());
        Ok(PyMember { topic: topic.to_owned(), group: group.to_owned(), member, settler })
    }

    /// Makes a replica of a topic's state. Returns the replica, the kind of the state, and the state's options.
    #[pyo3(signature = (topic, *, name, conflate, wait))]
    fn follow(
        &self,
        py: Python<'_>,
        topic: &str,
        name: &str,
        conflate: bool,
        wait: &str,
    ) -> PyResult<(PyReplica, String, BTreeMap<String, String>)> {
        let options = SubscribeOptions {
            name: name.to_owned(),
            start: Start::Snapshot,
            on_gap: OnGap::Snapshot,
            wait: subscription::wait(wait)?,
            conflate,
            ..SubscribeOptions::default()
        };
        let (replica, config) = self.call(py, |client| {
            let described = client.describe_topic(topic)?;
            let last_append_ns = described.logs.iter().map(|log| log.last_append_ns).max();
            let append_ns = last_append_ns.filter(|&append_ns| append_ns > 0);
            let partitions = described.config.partitions;
            let reducer = described.config.reducer;
            let config = reducer.ok_or_else(|| Failure::Value(format!("topic {topic:?} keeps no state")))?;
            let is_table = State::of(&config)?.values().is_some();
            if partitions > 1 && !is_table {
                let kind = &config.kind;
                return Err(Failure::Value(format!(
                    "topic {topic:?} has {partitions} partitions, each with a state of kind {kind:?} of its own: \
                     create a topic with one partition for each state"
                )));
            }
            let state_config = config.clone();
            // `State::of` cannot fail here, because the call above with the same configuration has succeeded.
            let make =
                move |_: &_| State::of(&state_config).unwrap_or_else(|_| State::Last(Default::default()));
            // Subscribes with the topic's pattern, because the topic's name need not match that pattern.
            let pattern = described.config.pattern.as_deref().unwrap_or(topic);
            let replica = Replica::new(client.subscribe(pattern, options)?, make);
            Ok((PyReplica::new(replica, partitions.into(), append_ns), config))
        })?;
        self.register_handle(&replica.following.closer());
        Ok((replica, config.kind, config.options))
    }

    /// Sends a request. Returns the payload and headers of the first reply.
    #[pyo3(signature = (subject, payload, *, timeout, key = None, headers = None))]
    fn request<'py>(
        &self,
        py: Python<'py>,
        subject: &str,
        payload: &Bound<'py, PyAny>,
        timeout: f64,
        key: Option<Bound<'py, PyAny>>,
        headers: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyTuple>)> {
        let timeout = self::timeout(Some(timeout))?.unwrap_or(Duration::ZERO);
        let options = PublishOptions { key, headers, ..PublishOptions::default() };
        let outgoing = OutgoingRecord::of(payload, options, None)?;
        let idle = self.requesters.with_lock(py, |requesters| Ok(requesters.pop()))?;
        let (outcome, requester) = self.call(py, |client| {
            let mut requester = idle.unwrap_or_else(|| client.requester());
            let outcome = outgoing.with_draft(|draft| requester.request(subject, draft, timeout));
            Ok((outcome, requester))
        })?;
        self.requesters.with_lock(py, |requesters| {
            if requesters.len() < REQUESTERS_MAX {
                requesters.push(requester);
            }
            Ok(())
        })?;
        let reply = outcome.map_err(Failure::from)?;
        let headers = reply.headers.iter().map(|(name, value)| (name.as_str(), PyBytes::new(py, value)));
        Ok((PyBytes::new(py, &reply.payload), PyTuple::new(py, headers.collect::<Vec<_>>())?))
    }

    /// Publishes a reply to the reply subject of a request: an inbox, or a subject that matches the pattern `within`.
    #[pyo3(signature = (subject, payload, *, headers = None, within = None))]
    fn reply<'py>(
        &self,
        py: Python<'py>,
        subject: &str,
        payload: &Bound<'py, PyAny>,
        headers: Option<Bound<'py, PyAny>>,
        within: Option<&str>,
    ) -> PyResult<()> {
        let allowed = within.map(Pattern::parse).transpose();
        let allowed = allowed.map_err(|error| PyValueError::new_err(format!("within: {error}")))?;
        let outgoing =
            OutgoingRecord::of(payload, PublishOptions { headers, ..PublishOptions::default() }, None)?;
        self.responder.with_lock(py, |responder| {
            Ok(outgoing.with_draft(|draft| responder.reply_within(allowed.as_slice(), subject, draft))?)
        })
    }

    fn create_topic(
        &self,
        py: Python<'_>,
        name: &str,
        wanted: TopicArguments,
        exist_ok: bool,
    ) -> PyResult<()> {
        let config = wanted.config()?;
        self.call(py, |client| Ok(client.create_topic(name, &config, exist_ok)?))
    }

    fn delete_topic(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |client| Ok(client.delete_topic(name)?))
    }

    /// Returns a row for each topic: its name, its pattern, its number of partitions, and whether it is reliable. Four
    /// counts follow: retained records, bytes of retained records, appended records, and subscribers.
    #[expect(clippy::type_complexity, reason = "a row, which Python names")]
    fn topics(
        &self,
        py: Python<'_>,
        pattern: &str,
    ) -> PyResult<Vec<(String, String, u16, bool, Option<u64>, Option<u64>, Option<u64>, Option<u32>)>> {
        let all = self.call(py, |client| Ok(client.topics(pattern)?))?;
        let row = |t: dunlin_client::TopicSummary| {
            (t.name, t.pattern, t.partitions, t.reliable, t.records, t.bytes, t.appended, t.subscribers)
        };
        Ok(all.into_iter().map(row).collect())
    }

    fn describe<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let topic = self.call(py, |client| Ok(client.describe_topic(name)?))?;
        topics::description(py, &topic)
    }

    /// Closes the connection and all handles made from it.
    fn close(&self, py: Python<'_>) {
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        run_detached(py, || handles.iter().filter_map(Weak::upgrade).for_each(|handle| handle.close()));
        self.responder.close(py);
        self.requesters.close(py);
        self.client.close(py);
    }
}

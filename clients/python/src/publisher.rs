//! Python's classes `Publisher` and `Receipt`, for publishing records and for the node's responses.

use dunlin_client::Publisher;
use dunlin_topic::{Draft, Publish, PublishError, Receipt};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments;
use crate::drafts::{OutgoingRecord, PublishOptions};
use crate::failure::Failure;
use crate::handle::SharedHandle;
use crate::position::PyPosition;

/// Maximum number of payloads passed to the client together.
const SEND_BATCH_MAX: usize = 512;

/// The position of a published record; for records that were published together, the position of the last one.
#[pyclass(frozen, name = "Receipt", module = "dunlin")]
pub struct PyReceipt(Receipt);

#[pymethods]
impl PyReceipt {
    #[getter]
    fn position(&self) -> PyPosition {
        PyPosition(self.0.position)
    }

    #[getter]
    fn partition(&self) -> u16 {
        self.0.partition
    }

    /// Whether the record existed already, because an earlier attempt to publish it had succeeded.
    #[getter]
    fn duplicate(&self) -> bool {
        self.0.duplicate
    }

    /// Whether the topic's epoch has changed since the last receipt. Acknowledged records may then be lost.
    #[getter]
    fn new_epoch(&self) -> bool {
        self.0.new_epoch
    }

    /// The acknowledgement level of the response: memory, written or synced.
    #[getter]
    fn acknowledged(&self) -> String {
        self.0.acknowledged.to_string()
    }

    fn __repr__(&self) -> String {
        let Receipt { partition, position, acknowledged, .. } = self.0;
        format!("Receipt({position}, partition={partition}, acknowledged={acknowledged:?})")
    }
}

/// Collects the errors about refused records, so that a call can send all its records before it reports these errors.
#[derive(Default)]
struct RefusedRecords(Option<PublishError>);

impl RefusedRecords {
    /// Sends a record through `publisher`. If the publisher reports that earlier records were refused, this function
    /// keeps the error and succeeds, because the publisher has sent the new record nevertheless.
    fn send(&mut self, publisher: &mut Publisher, draft: Draft<'_>) -> Result<(), PublishError> {
        match publisher.send(draft) {
            Err(PublishError::LeftOut { record, more, why }) => {
                match &mut self.0 {
                    Some(PublishError::LeftOut { more: further, .. }) => *further += 1 + more,
                    first => *first = Some(PublishError::LeftOut { record, more, why }),
                }
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Adds the collected errors about refused records to the outcome of a call. If the call has succeeded, returns
    /// these errors instead of its result. If the call has failed, these errors become the cause of the call's own
    /// error.
    fn report<R>(self, py: Python<'_>, outcome: PyResult<R>) -> PyResult<R> {
        let Some(refused) = self.0 else { return outcome };
        let refused = PyErr::from(Failure::from(refused));
        match outcome {
            Ok(_) => Err(refused),
            Err(error) => {
                error.set_cause(py, Some(refused));
                Err(error)
            }
        }
    }
}

/// Publishes records to one subject, or to the subjects of a topic. Calls from several threads run one at a time.
#[pyclass(frozen, weakref, name = "Publisher", module = "dunlin")]
pub struct PyPublisher {
    pub subject: String,
    /// The part of `subject` before its first wildcard; `None` if `subject` is no pattern.
    pub prefix: Option<String>,
    pub publisher: SharedHandle<Publisher>,
}

#[pymethods]
impl PyPublisher {
    #[getter]
    fn subject(&self) -> &str {
        &self.subject
    }

    /// Publishes a record, and waits for the node's response. With `expect_seq`, the node refuses the record unless the
    /// log's last record has this sequence number.
    #[pyo3(signature = (payload, *, key = None, headers = None, subject = None, reply = None,
        event_time_ns = None, expires_ns = None, expect_seq = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn publish<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        key: Option<Bound<'py, PyAny>>,
        headers: Option<Bound<'py, PyAny>>,
        subject: Option<String>,
        reply: Option<String>,
        event_time_ns: Option<Bound<'py, PyAny>>,
        expires_ns: Option<Bound<'py, PyAny>>,
        expect_seq: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyReceipt> {
        let options = PublishOptions { key, headers, subject, reply, event_time_ns, expires_ns };
        let outgoing = OutgoingRecord::of(payload, options, self.prefix.as_deref())?;
        let expect_seq = arguments::optional_u64("expect_seq", expect_seq.as_ref())?;
        self.publisher
            .with_lock(py, |publisher| {
                let receipt = outgoing.with_draft(|draft| match expect_seq {
                    Some(last_seq) => publisher.publish_expecting(last_seq, draft),
                    None => publisher.publish(draft),
                });
                Ok(receipt?)
            })
            .map(PyReceipt)
    }

    /// Publishes a record without waiting for the response. If the node refuses the record, a later call reports the
    /// error. `flush` reports all errors that were not reported before.
    #[pyo3(signature = (payload, *, key = None, headers = None, subject = None, reply = None,
        event_time_ns = None, expires_ns = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn send<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        key: Option<Bound<'py, PyAny>>,
        headers: Option<Bound<'py, PyAny>>,
        subject: Option<String>,
        reply: Option<String>,
        event_time_ns: Option<Bound<'py, PyAny>>,
        expires_ns: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let is_payload_only = key.is_none() && headers.is_none() && subject.is_none() && reply.is_none();
        let outgoing =
            if is_payload_only && event_time_ns.is_none() && expires_ns.is_none() && self.prefix.is_none() {
                OutgoingRecord::from_payload(payload)?
            } else {
                let options = PublishOptions { key, headers, subject, reply, event_time_ns, expires_ns };
                OutgoingRecord::of(payload, options, self.prefix.as_deref())?
            };
        self.publisher.with_lock(py, |publisher| Ok(outgoing.with_draft(|draft| publisher.send(draft))?))
    }

    /// Calls `send` for each payload, and returns the number of payloads. A refused record does not end the call; the
    /// exception for refused records is raised after all other records were sent.
    fn send_many(&self, py: Python<'_>, payloads: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.check_subject()?;
        let mut refused = RefusedRecords::default();
        let sent = self.send_each(py, payloads, &mut refused);
        refused.report(py, sent)
    }

    /// Calls `send` for each row of an array, along its first axis, and returns the number of rows. A refused record
    /// does not end the call; the exception for refused records is raised after all other records were sent.
    fn send_rows(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.check_subject()?;
        let view = arguments::rows(rows)?;
        let shape = view.getattr("shape")?;
        let count: usize = match shape.cast::<PyTuple>() {
            Ok(shape) if !shape.is_empty() => shape.get_item(0)?.extract()?,
            _ => return Err(PyValueError::new_err("rows must be an array with at least one axis")),
        };
        let bytes: Vec<u8> = view.call_method0("tobytes")?.extract()?;
        if count == 0 {
            return Ok(0);
        }
        let row_bytes = bytes.len() / count;
        let mut refused = RefusedRecords::default();
        let sent = self.publisher.with_lock(py, |publisher| {
            for row in 0..count {
                let row = &bytes[row * row_bytes..(row + 1) * row_bytes];
                refused.send(publisher, Draft::from(row))?;
            }
            Ok(count)
        });
        refused.report(py, sent)
    }

    /// Publishes all payloads in one append: the node appends either all of them or none. Returns the receipt of the
    /// last record.
    fn publish_batch(&self, py: Python<'_>, payloads: &Bound<'_, PyAny>) -> PyResult<PyReceipt> {
        self.check_subject()?;
        let payloads = arguments::payloads(payloads)?;
        let all: Vec<OutgoingRecord> =
            payloads.map(|payload| OutgoingRecord::from_payload(&payload?)).collect::<PyResult<_>>()?;
        let receipt = self.publisher.with_lock(py, |publisher| {
            let drafts: Vec<_> = all.iter().map(|record| Draft::from(record.payload())).collect();
            Ok(publisher.publish_batch(&drafts)?)
        });
        receipt.map(PyReceipt)
    }

    /// Waits until the node has responded to all sent records. Returns the last receipt, or `None` if nothing was sent
    /// since the last flush.
    fn flush(&self, py: Python<'_>) -> PyResult<Option<PyReceipt>> {
        Ok(self.publisher.with_lock(py, |publisher| Ok(publisher.flush()?))?.map(PyReceipt))
    }

    /// The size in bytes of the records that were sent and to which the node has not responded yet.
    #[getter]
    fn unanswered_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.publisher.with_lock(py, |publisher| Ok(publisher.unanswered_bytes()))
    }

    /// Closes the publisher after the node has responded to all sent records.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.publisher.is_closed() {
            return Ok(());
        }
        let flushed = self.flush(py);
        self.publisher.close(py);
        flushed.map(drop)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("Publisher({:?})", self.subject)
    }
}

impl PyPublisher {
    fn send_each(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        refused: &mut RefusedRecords,
    ) -> PyResult<usize> {
        let mut sent = 0;
        let mut batch = Vec::with_capacity(SEND_BATCH_MAX);
        for payload in arguments::payloads(payloads)? {
            batch.push(OutgoingRecord::from_payload(&payload?)?);
            if batch.len() == SEND_BATCH_MAX {
                sent += self.send_all(py, &batch, refused)?;
                batch.clear();
            }
        }
        Ok(sent + self.send_all(py, &batch, refused)?)
    }

    fn send_all(
        &self,
        py: Python<'_>,
        batch: &[OutgoingRecord],
        refused: &mut RefusedRecords,
    ) -> PyResult<usize> {
        self.publisher.with_lock(py, |publisher| {
            for outgoing in batch {
                outgoing.with_draft(|draft| refused.send(publisher, draft))?;
            }
            Ok::<_, Failure>(batch.len())
        })
    }

    fn check_subject(&self) -> PyResult<()> {
        match self.prefix {
            None => Ok(()),
            Some(_) => Err(PyValueError::new_err(
                "a publisher to a pattern needs the subject of each record: use send",
            )),
        }
    }
}

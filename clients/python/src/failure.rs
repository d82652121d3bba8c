//! Failures of calls from Python, and their conversion to the exceptions of `python/dunlin/errors.py`.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dunlin_client::{
    CallError, ConnectError, DisconnectReason, ErrorCode, KvError, LeaseLostError, RefusedError,
    RequestError, TasksError, WatchError,
};
use dunlin_topic::{PublishError, SubscribeError};
use dunlin_wire::CODES;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The reason why a call from Python failed, which is raised as a Python exception.
#[derive(Debug)]
pub enum Failure {
    /// The node refused the request with this error code and text.
    Refused(ErrorCode, String),
    /// The node refused the request with this error code; the meaning of the three numbers depends on the code.
    Numbered(ErrorCode, [u64; 3], String),
    /// The response was lost, so it is unknown whether the node carried out the request.
    Unknown(String),
    /// There is no connection; the next call tries again to connect.
    Disconnected(String),
    /// The caller's timeout has passed.
    TimedOut(String),
    /// The caller closed the handle.
    Closed,
    /// The handle was made in another process.
    Forked,
    /// Another thread is waiting in a call on the handle.
    Busy,
    /// The address of the node, or an argument, is invalid.
    Value(String),
    /// A Python exception.
    Python(PyErr),
}

/// Whether the interpreter is about to end. A thread that enters the interpreter while this is `true` would hang or
/// panic.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The number of threads that have finished waiting and are using the interpreter again.
static RETURNING: AtomicUsize = AtomicUsize::new(0);
/// The end of the interpreter waits at most this long for the threads that `RETURNING` counts.
const RETURNING_MAX: Duration = Duration::from_secs(2);

/// Announces that the calling thread is about to end the interpreter. From then on, every other thread that wants to
/// enter the interpreter waits until the process ends. Otherwise Python would end such a thread inside Rust code, which
/// aborts the process.
#[pyfunction(name = "_end")]
pub fn end(py: Python<'_>) {
    IS_ENDING_THREAD.set(true);
    ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let deadline = Instant::now() + RETURNING_MAX;
        while RETURNING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Whether another thread is ending the interpreter.
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst) && !IS_ENDING_THREAD.get()
}

/// A permission to use Python's interpreter. While a guard exists, the end of the interpreter is delayed, but by at
/// most `RETURNING_MAX`.
#[derive(Debug)]
pub struct InterpreterGuard(());

impl InterpreterGuard {
    /// Creates a guard; returns `None` if the interpreter is about to end.
    pub fn new() -> Option<InterpreterGuard> {
        RETURNING.fetch_add(1, Ordering::SeqCst);
        let guard = InterpreterGuard(());
        (!is_ending()).then_some(guard)
    }

    /// Like [`new`](Self::new), but blocks forever if the interpreter is about to end. Threads use this function if
    /// they cannot continue without the interpreter.
    pub fn new_or_park() -> InterpreterGuard {
        loop {
            match InterpreterGuard::new() {
                Some(guard) => return guard,
                None => std::thread::park(),
            }
        }
    }
}

impl Drop for InterpreterGuard {
    fn drop(&mut self) {
        RETURNING.fetch_sub(1, Ordering::SeqCst);
    }
}

thread_local! {
    /// Whether this thread is the one that shuts down the interpreter.
    static IS_ENDING_THREAD: Cell<bool> = const { Cell::new(false) };
    /// A flag that another thread sets to cancel this thread's call.
    static CANCELLED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    /// The exception of a signal handler that ran while this thread waited.
    static SIGNAL_ERROR: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs Python's signal handlers. Returns `true` if this thread's call was cancelled, or if a handler raised an
/// exception. A later call of [`take_signal_error`] returns this exception.
pub fn check_signals() -> bool {
    if CANCELLED.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Acquire))) {
        return true;
    }
    let Some(_guard) = InterpreterGuard::new() else { return false };
    let error = Python::try_attach(|py| py.check_signals().err()).flatten();
    let interrupted = error.is_some();
    if interrupted {
        SIGNAL_ERROR.set(error);
    }
    interrupted
}

/// A call from Python that another thread may cancel. A cancelled call ends within 100 ms.
#[pyclass(frozen, module = "dunlin._dunlin")]
#[derive(Debug)]
pub struct CancellableCall(Arc<AtomicBool>);

#[pymethods]
impl CancellableCall {
    #[new]
    fn new() -> CancellableCall {
        CancellableCall(Arc::default())
    }

    /// Cancels the call.
    fn abandon(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Runs `call` on this thread. [`abandon`](Self::abandon) cancels it.
    fn run<'py>(&self, call: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        CANCELLED.set(Some(Arc::clone(&self.0)));
        let outcome = call.call0();
        CANCELLED.set(None);
        outcome
    }
}

/// Takes the exception that a signal handler raised during the last wait; `None` if there was none.
pub fn take_signal_error() -> Option<PyErr> {
    SIGNAL_ERROR.take()
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        let mut numbers = [0; 3];
        let (kind, number, text) = match failure {
            Failure::Python(error) => return error,
            Failure::Refused(code, text) => ("refused", code.number(), text),
            Failure::Numbered(code, values, text) => {
                numbers = values;
                ("refused", code.number(), text)
            }
            Failure::Unknown(text) => ("unknown", 0, text),
            Failure::Disconnected(text) => ("away", 0, text),
            Failure::TimedOut(text) => ("timed_out", 0, text),
            Failure::Closed => ("closed", 0, "the handle was closed".to_owned()),
            Failure::Forked => {
                ("forked", 0, "it was made before a fork: connect again in the child".to_owned())
            }
            Failure::Busy => ("busy", 0, "another thread is waiting in it".to_owned()),
            Failure::Value(text) => ("value", 0, text),
        };
        Python::attach(|py| {
            let exception = py
                .import("dunlin.errors")
                .and_then(|module| module.call_method1("_make", (kind, number, text, numbers.to_vec())));
            exception.map_or_else(|error| error, PyErr::from_value)
        })
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

/// Parses the text of a refusal for which the client has no error variant. If the text does not begin with the name of
/// an error code, the code is `otherwise`.
pub fn from_text(text: &str, otherwise: ErrorCode) -> Failure {
    let (name, rest) = text.split_once(": ").unwrap_or((text, ""));
    match CODES.iter().find(|row| row.name == name) {
        Some(row) => Failure::Refused(row.code, rest.to_owned()),
        None => Failure::Refused(otherwise, text.to_owned()),
    }
}

impl From<RefusedError> for Failure {
    fn from(refused: RefusedError) -> Failure {
        Failure::Numbered(refused.code, refused.numbers, refused.detail())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        match error {
            CallError::Refused(refused) => refused.into(),
            CallError::Disconnected(reason) => Failure::Disconnected(reason),
            CallError::Unknown(reason) => Failure::Unknown(reason),
            other => Failure::Unknown(other.to_string()),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        match error {
            ConnectError::Address(error) => Failure::Value(error.to_string()),
            ConnectError::Tls(error) => Failure::Value(error.to_string()),
            ConnectError::Disconnected(
                DisconnectReason::Refused(refused)
                | DisconnectReason::Opening(refused)
                | DisconnectReason::Later(refused),
            ) => refused.into(),
            other => Failure::Disconnected(other.to_string()),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Failure {
        let cause = match &error {
            PublishError::LeftOut { why, .. } => why,
            other => other,
        };
        let code = match cause {
            PublishError::Frame(_) => ErrorCode::BadFrame,
            PublishError::RecordTooLarge { .. } => ErrorCode::RecordTooLarge,
            PublishError::Batch(_) => ErrorCode::Batch,
            PublishError::SeqMoved { .. } => ErrorCode::SeqMoved,
            PublishError::DuplicateForgotten { .. } => ErrorCode::DuplicateForgotten,
            PublishError::ProducerGap { .. } => ErrorCode::ProducerGap,
            PublishError::ProducerFenced { .. } => ErrorCode::ProducerFenced,
            PublishError::Full { .. } => ErrorCode::Full,
            PublishError::BudgetSpent { .. } => ErrorCode::BudgetSpent,
            PublishError::DiskBehind { .. } => ErrorCode::DiskBehind,
            PublishError::OwnerBehind { .. } => ErrorCode::OwnerBehind,
            PublishError::OwnerAway(_) => ErrorCode::OwnerAway,
            PublishError::DiskFull(_) => ErrorCode::DiskFull,
            PublishError::DiskFailed(_) => ErrorCode::DiskFailed,
            PublishError::Reducer { .. } => ErrorCode::Reducer,
            PublishError::StateLost(_) => ErrorCode::StateLost,
            PublishError::NoTopic(_) => ErrorCode::NoTopic,
            PublishError::Closed => ErrorCode::Closed,
            PublishError::Forbidden(_) => ErrorCode::Forbidden,
            PublishError::Unknown(reason) => return Failure::Unknown(reason.clone()),
            PublishError::Refused(text) if matches!(error, PublishError::Refused(_)) => {
                return from_text(text, ErrorCode::Internal);
            }
            _ => ErrorCode::Internal,
        };
        Failure::Refused(code, error.to_string())
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Failure {
        let code = match &error {
            SubscribeError::Subject(_) => ErrorCode::Subject,
            SubscribeError::NoTopic(_) => ErrorCode::NoTopic,
            SubscribeError::ManyLogs { .. } => ErrorCode::ManyLogs,
            SubscribeError::Ahead { .. } => ErrorCode::Ahead,
            SubscribeError::NoState { .. } => ErrorCode::NoState,
            SubscribeError::Lost => ErrorCode::Lost,
            SubscribeError::Limit { .. } => ErrorCode::Limit,
            SubscribeError::Closed => ErrorCode::Closed,
            SubscribeError::Forbidden(_) => ErrorCode::Forbidden,
            SubscribeError::OwnerAway(_) => ErrorCode::OwnerAway,
            SubscribeError::Connection(reason) => return Failure::Disconnected(reason.clone()),
            SubscribeError::Refused(text) => return from_text(text, ErrorCode::Internal),
            _ => ErrorCode::Internal,
        };
        Failure::Refused(code, error.to_string())
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Failure {
        let text = error.to_string();
        match error {
            KvError::Moved { modified } => Failure::Numbered(ErrorCode::KeyMoved, [modified, 0, 0], text),
            KvError::NoLease { lease } => Failure::Numbered(ErrorCode::NoLease, [lease, 0, 0], text),
            KvError::Held { holder, token } => {
                Failure::Numbered(ErrorCode::LockHeld, [holder, token, 0], text)
            }
            KvError::NotHeld { lease } => Failure::Numbered(ErrorCode::LockNotHeld, [lease, 0, 0], text),
            KvError::Refused(refused) => refused.into(),
            KvError::Disconnected(reason) => Failure::Disconnected(reason),
            KvError::Unknown(reason) => Failure::Refused(ErrorCode::CommandUnknown, reason),
            _ => Failure::Refused(ErrorCode::Internal, text),
        }
    }
}

impl From<TasksError> for Failure {
    fn from(error: TasksError) -> Failure {
        match error {
            TasksError::Refused(refused) => refused.into(),
            TasksError::Disconnected(reason) | TasksError::Ended(reason) => Failure::Disconnected(reason),
            TasksError::Unknown(reason) => Failure::Refused(ErrorCode::CommandUnknown, reason),
            other => Failure::Refused(ErrorCode::Internal, other.to_string()),
        }
    }
}

impl From<LeaseLostError> for Failure {
    fn from(lost: LeaseLostError) -> Failure {
        Failure::Numbered(ErrorCode::NoLease, [lost.lease, 0, 0], lost.to_string())
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Failure {
        let text = error.to_string();
        match error {
            WatchError::Compacted { missed, oldest } => {
                Failure::Numbered(ErrorCode::Compacted, [oldest, missed, 0], text)
            }
            WatchError::Restarted { revision } => {
                Failure::Numbered(ErrorCode::Compacted, [revision, 0, 0], text)
            }
            WatchError::Subscribe(error) => error.into(),
            WatchError::Kv(error) => error.into(),
            _ => Failure::Refused(ErrorCode::Internal, text),
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        match error {
            RequestError::Publish(error) => error.into(),
            RequestError::Inbox(error) => error.into(),
            RequestError::NoResponder(_) => Failure::Refused(ErrorCode::NoResponder, error.to_string()),
            other => Failure::TimedOut(other.to_string()),
        }
    }
}

/// Returns the table of error codes. Each row has the code's number, its name, whether to repeat a request that was
/// refused with this code, and advice.
pub fn codes(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let rows = CODES.iter().map(|row| (row.code.number(), row.name, row.retry.to_string(), row.advice));
    PyTuple::new(py, rows.collect::<Vec<_>>())
}

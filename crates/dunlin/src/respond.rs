//! Responders are handlers that respond to requests inside the node.
//!
//! Publishing a request wakes the responder. If the request arrives on a listener's thread, the listener can run the
//! responder as a task on the same thread, so that a request costs no thread switch.
//!
//! Invariant: a responder runs on one thread at a time. This thread holds the responder's lock. When no request is
//! pending, the thread releases the lock. The next request then schedules the responder once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use dunlin_topic::{
    Draft, Event, Pattern, Publish, PublishError, Receipt, Record, Subject, Subscribe, SubscribeError,
    SubscribeOptions, Subscriber, Topic, check_reply_subject,
};

use crate::node::Node;
use crate::reply::is_reply_inbox_log;

/// The number of requests that a responder handles in one run, before other tasks get their turn.
const REQUESTS_PER_RUN: usize = 64;

/// A registered handler of requests inside the node. Dropping the value unregisters the handler.
#[derive(Debug)]
#[must_use = "requests are answered as long as the responder is held"]
pub struct Responder(Arc<ResponderTask>);

/// The task of a [`Responder`]. A [`ResponderExecutor`] runs it when requests have arrived.
pub struct ResponderTask {
    node: Node,
    work: Mutex<Option<Work>>,
    ended: OnceLock<SubscribeError>,
}

struct Work {
    subscriber: Subscriber,
    handler: Box<dyn FnMut(Request<'_, '_>) + Send>,
    replies: ReplyTopics,
}

/// A request that a responder has received, and to which it can reply.
#[derive(Debug)]
pub struct Request<'a, 'r> {
    record: Record<'a>,
    replies: &'r mut ReplyTopics,
}

/// Finds the topics to which replies are published. Tries the topic of the previous reply first, because most replies
/// go to the same topic as the previous one.
#[derive(Debug)]
struct ReplyTopics {
    node: Node,
    last_topic: Option<Arc<Topic>>,
}

/// Runs the tasks of responders for which requests have arrived.
pub trait ResponderExecutor: Send + Sync {
    /// Makes another thread or a later task run [`ResponderTask::run`] soon. The thread that publishes a request calls
    /// this method, so the method must not block.
    fn schedule(&self, task: Arc<ResponderTask>);
}

impl Node {
    /// Registers `handler` for requests to subjects that match the pattern. The handler is called until the returned
    /// [`Responder`] is dropped.
    pub fn respond(
        &self,
        pattern: &str,
        handler: impl FnMut(Request<'_, '_>) + Send + 'static,
    ) -> Result<Responder, SubscribeError> {
        let subscriber = self.subscribe(pattern, &SubscribeOptions::default())?;
        let replies = ReplyTopics { node: self.clone(), last_topic: None };
        let work = Work { subscriber, handler: Box::new(handler), replies };
        let task = ResponderTask { node: self.clone(), work: Mutex::new(Some(work)), ended: OnceLock::new() };
        let responder = Responder(Arc::new(task));
        responder.0.run();
        Ok(responder)
    }
}

impl Responder {
    /// The reason why the responder has ended; `None` while it runs.
    pub fn ended(&self) -> Option<&SubscribeError> {
        self.0.ended.get()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

impl ResponderTask {
    /// Handles pending requests. If the handler panics, only this responder ends.
    pub fn run(self: &Arc<ResponderTask>) {
        let waker = Waker::from(Arc::clone(self));
        let mut guard = self.lock();
        let Some(work) = guard.as_mut() else { return };
        let handled = catch_unwind(AssertUnwindSafe(|| work.handle_requests(&waker)));
        match handled.unwrap_or_else(|_| Err(SubscribeError::Refused("the handler panicked".to_owned()))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) => waker.wake(),
            Err(ended) => {
                let _ = self.ended.set(ended);
                guard.take();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Handles up to [`REQUESTS_PER_RUN`] requests. Returns `Ready` if more requests may be pending.
    fn handle_requests(&mut self, waker: &Waker) -> Result<Poll<()>, SubscribeError> {
        for _ in 0..REQUESTS_PER_RUN {
            if self.subscriber.ready()? {
                if let Event::Record(record) = self.subscriber.take() {
                    (self.handler)(Request { record, replies: &mut self.replies });
                }
                continue;
            }
            match self.subscriber.poll_ready(&mut Context::from_waker(waker)) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        Ok(Poll::Ready(()))
    }
}

impl Wake for ResponderTask {
    fn wake(self: Arc<ResponderTask>) {
        let node = self.node.clone();
        node.executors().schedule(self);
    }
}

impl std::fmt::Debug for ResponderTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<'a> Request<'a, '_> {
    /// The record that contains the request.
    pub fn record(&self) -> &Record<'a> {
        &self.record
    }

    /// Publishes the reply. Returns `None` if the request names no subject for a reply. This call does not wait,
    /// because a listener's thread may run the responder: a full topic refuses the reply at once, and a durable topic
    /// may store the reply only after this call has returned.
    ///
    /// If the reply subject is not an inbox, the reply is refused with [`PublishError::Forbidden`]. Otherwise, a
    /// request could make the responder publish to any subject to which the responder may publish.
    pub fn reply<'d>(&mut self, draft: impl Into<Draft<'d>>) -> Result<Option<Receipt>, PublishError> {
        self.reply_within(&[], draft)
    }

    /// Like [`reply`](Request::reply), but also publishes replies to subjects that match one of the `allowed` patterns.
    pub fn reply_within<'d>(
        &mut self,
        allowed: &[Pattern],
        draft: impl Into<Draft<'d>>,
    ) -> Result<Option<Receipt>, PublishError> {
        let Some(subject) = self.record.frame.reply() else { return Ok(None) };
        check_reply_subject(subject, allowed)?;
        let topic = self.replies.topic(subject)?;
        let mut publisher = topic.publisher(subject).without_room_wait(false).without_disk_wait();
        publisher.publish(draft).map(Some)
    }
}

impl ReplyTopics {
    fn topic(&mut self, subject: &str) -> Result<&Arc<Topic>, PublishError> {
        let cached = self.last_topic.take().filter(|topic| {
            let prefix = topic.logs()[0].name().subject_prefix.as_str();
            // Use the previous topic again, unless it is a reply inbox: a reply inbox accepts replies only to subjects
            // that requests have named.
            prefix.ends_with('.')
                && subject.starts_with(prefix)
                && !is_reply_inbox_log(topic.logs()[0].name())
        });
        let topic = match cached {
            Some(topic) => {
                // The user may lack the permission for this subject, even if the previous reply to the topic was
                // allowed.
                let prefix = topic.logs()[0].name().subject_prefix.as_str();
                self.node.may_publish_parts(prefix, &subject[prefix.len()..])?;
                topic
            }
            None => {
                let subject =
                    Subject::parse(subject).map_err(|error| PublishError::Refused(error.to_string()))?;
                self.node.owning_topic(subject)?
            }
        };
        Ok(self.last_topic.insert(topic))
    }
}

/// The executor that runs the responders of a node. If no executor is registered, a thread runs the responders; this
/// thread starts when the first responder has to run.
#[derive(Default)]
pub(crate) struct ResponderExecutors {
    executor: Mutex<Option<Weak<dyn ResponderExecutor>>>,
    thread: OnceLock<mpsc::Sender<Arc<ResponderTask>>>,
}

impl Node {
    /// Makes `executor` run this node's responders, until its last `Arc` is dropped.
    pub fn set_executor(&self, executor: &Arc<dyn ResponderExecutor>) {
        *self.executors().executor() = Some(Arc::downgrade(executor));
    }
}

impl ResponderExecutors {
    fn executor(&self) -> MutexGuard<'_, Option<Weak<dyn ResponderExecutor>>> {
        self.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule(&self, task: Arc<ResponderTask>) {
        // A reply may need a new topic. Creating it can block, which must not happen on a listener's thread.
        let may_wait = task.node.ownership().is_some() || !task.node.auto_creates_at_once();
        let executor = self.executor().as_ref().and_then(Weak::upgrade).filter(|_| !may_wait);
        match executor {
            Some(executor) => executor.schedule(task),
            // Ignore the error: the thread could not be started, or has ended. Requests then time out.
            None => drop(self.thread.get_or_init(start_thread).send(task)),
        }
    }
}

impl std::fmt::Debug for ResponderExecutors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runners")
    }
}

fn start_thread() -> mpsc::Sender<Arc<ResponderTask>> {
    let (send, receive) = mpsc::channel::<Arc<ResponderTask>>();
    let run = move || receive.iter().for_each(|task| task.run());
    // Ignore the error: if the thread cannot be started, requests to these responders time out.
    let _ = thread::Builder::new().name("dunlin-respond".to_owned()).spawn(run);
    send
}

//! Answering requests inside the node.
//!
//! A responder is woken by the publish of a request, on the very thread that published it: so a door
//! can run it as a task of the runtime that the request came in on, and a request costs no thread hop.
//!
//! Invariant: a responder runs at one place at a time: whoever runs it holds its lock, and it is
//! scheduled once for each time it went to sleep.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use dunlin_topic::{
    Draft, Event, Publish, PublishError, Receipt, Record, Subject, Subscribe, SubscribeError,
    SubscribeOptions, Subscriber, Topic,
};

use crate::node::Node;
use crate::reply::is_of_reply_inbox;

/// Requests that are handled before others get their turn.
const TURN_REQUESTS: usize = 64;

/// Answers requests until it is dropped.
#[derive(Debug)]
#[must_use = "requests are answered as long as the responder is held"]
pub struct Responder(Arc<Running>);

/// A responder as a [`Runner`] sees it.
pub struct Running {
    node: Node,
    work: Mutex<Option<Work>>,
    ended: OnceLock<SubscribeError>,
}

struct Work {
    subscriber: Subscriber,
    handler: Box<dyn FnMut(Request<'_, '_>) + Send>,
    replies: Replies,
}

/// A request that is to be answered.
#[derive(Debug)]
pub struct Request<'a, 'r> {
    record: Record<'a>,
    replies: &'r mut Replies,
}

/// Finds the topics that replies go to: mostly the same as the last time.
#[derive(Debug)]
struct Replies {
    node: Node,
    last: Option<Arc<Topic>>,
}

/// Runs responders that were woken.
pub trait Runner: Send + Sync {
    /// Sees to it that [`Running::run`] is called soon. Called on the thread that published.
    fn schedule(&self, woken: Arc<Running>);
}

impl Node {
    /// Answers requests to the pattern's subjects.
    pub fn respond(
        &self,
        pattern: &str,
        handler: impl FnMut(Request<'_, '_>) + Send + 'static,
    ) -> Result<Responder, SubscribeError> {
        let subscriber = self.subscribe(pattern, &SubscribeOptions::default())?;
        let replies = Replies { node: self.clone(), last: None };
        let work = Work { subscriber, handler: Box::new(handler), replies };
        let running = Running { node: self.clone(), work: Mutex::new(Some(work)), ended: OnceLock::new() };
        let responder = Responder(Arc::new(running));
        responder.0.run();
        Ok(responder)
    }
}

impl Responder {
    /// Why it answers no more; `None` while it does.
    pub fn ended(&self) -> Option<&SubscribeError> {
        self.0.ended.get()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

impl Running {
    /// Handles the requests that are there, then sleeps.
    pub fn run(self: &Arc<Running>) {
        let waker = Waker::from(Arc::clone(self));
        let mut guard = self.lock();
        let Some(work) = guard.as_mut() else { return };
        match work.handle_some(&waker) {
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
    /// Ready when there may be more at once.
    fn handle_some(&mut self, waker: &Waker) -> Result<Poll<()>, SubscribeError> {
        for _ in 0..TURN_REQUESTS {
            while self.subscriber.ready()? {
                if let Event::Record(record) = self.subscriber.take() {
                    (self.handler)(Request { record, replies: &mut self.replies });
                }
            }
            match self.subscriber.poll_ready(&mut Context::from_waker(waker)) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        Ok(Poll::Ready(()))
    }
}

impl Wake for Running {
    fn wake(self: Arc<Running>) {
        let node = self.node.clone();
        node.runners().schedule(self);
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<'a> Request<'a, '_> {
    /// What was asked.
    pub fn record(&self) -> &Record<'a> {
        &self.record
    }

    /// Answers. `None` when no reply was asked for.
    pub fn reply<'d>(&mut self, draft: impl Into<Draft<'d>>) -> Result<Option<Receipt>, PublishError> {
        let Some(subject) = self.record.frame.reply() else { return Ok(None) };
        let topic = self.replies.topic(subject)?;
        topic.publisher(subject).publish(draft).map(Some)
    }
}

impl Replies {
    fn topic(&mut self, subject: &str) -> Result<&Arc<Topic>, PublishError> {
        let known = self.last.take().filter(|topic| {
            let prefix = topic.logs()[0].name().subject_prefix.as_str();
            // A reply inbox with another prefix takes one subject at a time.
            prefix.ends_with('.') && subject.starts_with(prefix) && !is_of_reply_inbox(topic.logs()[0].name())
        });
        let topic = match known {
            Some(topic) => topic,
            None => {
                let subject =
                    Subject::parse(subject).map_err(|error| PublishError::Refused(error.to_string()))?;
                self.node.owner(subject)?
            }
        };
        Ok(self.last.insert(topic))
    }
}

/// Who runs the responders of a node: the door that said it does, else a thread of its own, which is
/// started when it is first needed.
#[derive(Default)]
pub(crate) struct Runners {
    door: Mutex<Option<Weak<dyn Runner>>>,
    thread: OnceLock<mpsc::Sender<Arc<Running>>>,
}

impl Node {
    /// From now on `runner` runs responders, as long as somebody holds it.
    pub fn set_runner(&self, runner: &Arc<dyn Runner>) {
        *self.runners().door() = Some(Arc::downgrade(runner));
    }
}

impl Runners {
    fn door(&self) -> MutexGuard<'_, Option<Weak<dyn Runner>>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule(&self, woken: Arc<Running>) {
        // Where a reply may have to wait for its topic to be made it is not a listener's thread that waits.
        let waits = woken.node.ownership().is_some() || !woken.node.creates_at_once();
        let door = self.door().as_ref().and_then(Weak::upgrade).filter(|_| !waits);
        match door {
            Some(door) => door.schedule(woken),
            // The thread ends with the node, and then nobody is there to be answered.
            None => drop(self.thread.get_or_init(start_thread).send(woken)),
        }
    }
}

impl std::fmt::Debug for Runners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runners")
    }
}

fn start_thread() -> mpsc::Sender<Arc<Running>> {
    let (send, receive) = mpsc::channel::<Arc<Running>>();
    let run = move || receive.iter().for_each(|woken| woken.run());
    // Without a thread, sending fails and requests time out: the machine has no more to give.
    let _ = thread::Builder::new().name("dunlin-respond".to_owned()).spawn(run);
    send
}

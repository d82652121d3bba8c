//! A client that sees who is within a radius of one entity, wherever in the world that is, and commands entities.
//!
//! It asks every process of the world, and follows the topic in which each tells it of its own entities. So it sees the same whichever region
//! the entity is in.
//!
//! Limits: as far as the world's strip; `viewers_max` of `space::Limits` in each process. It blocks: a look at the cluster and the asking of
//! processes that are new takes as long as these take to answer, at most [`PATIENCE`] each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dunlin::space::{Ask, Command, Scene, Schema, StateError, ViewerId, Watch, view_topic};
use dunlin::topic::{Event, Notice, OnGap, Start, Subscribe, SubscribeError, SubscribeOptions};
use dunlin_client::{Client, ConnectError, Kv, KvError, Options, RequestError, Subscriber};

use super::asks::{DONE, NOT_HERE, asks_subject};
use super::owners::processes;

/// How long a process has to answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// A process is asked again after so long, and forgets who does not.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Records that are taken in at once.
const DRAIN_MAX: usize = 4_096;

/// See the module.
pub struct Viewing<const D: usize> {
    kv: Kv,
    world: String,
    viewer: ViewerId,
    watch: Watch,
    sources: BTreeMap<u64, Source>,
    scene: Scene<D>,
    looked: Option<Instant>,
}

/// A process, as far as this viewer has to do with it.
struct Source {
    url: String,
    client: Client,
    subscriber: Subscriber,
    asked: Instant,
    regions: BTreeSet<dunlin::space::RegionId>,
}

/// Why nothing is seen, or done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewingError {
    /// The cluster did not say which processes there are.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// A process does not do it.
    #[error("{0}")]
    Refused(String),
    /// No process has the entity.
    #[error("no process of the world has this entity")]
    Unknown,
    /// A process cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A process does not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// What it tells cannot be followed.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// What it tells cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
}

impl<const D: usize> Viewing<D> {
    /// A viewer of a world whose processes this cluster knows, and whose entities are made of these components. Its number is told by no other
    /// viewer of the world.
    pub fn new(kv: Kv, world: &str, schema: Schema, viewer: ViewerId, watch: Watch) -> Viewing<D> {
        let (sources, scene) = (BTreeMap::new(), Scene::new(schema));
        Viewing { kv, world: world.to_owned(), viewer, watch, sources, scene, looked: None }
    }

    /// Takes in what was told by now, and asks processes that have come.
    pub fn look(&mut self) -> Result<&Scene<D>, ViewingError> {
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            self.looked = Some(Instant::now());
            self.meet()?;
        }
        let numbers: Vec<u64> = self.sources.keys().copied().collect();
        for number in numbers {
            let Some(source) = self.sources.get_mut(&number) else { continue };
            match source.drain(&mut self.scene) {
                Ok(true) => {}
                // Something is missing: it is asked anew, and tells everything again.
                Ok(false) | Err(ViewingError::Subscribe(_)) => self.lose(number),
                Err(error) => return Err(error),
            }
        }
        Ok(&self.scene)
    }

    /// Changes an entity, wherever it is.
    pub fn command(&mut self, command: Command<'_, D>) -> Result<(), ViewingError> {
        let mut ask = Vec::new();
        Ask::Command(command).encode(&mut ask);
        for source in self.sources.values() {
            if source.ask(&self.world, &ask)? {
                return Ok(());
            }
        }
        Err(ViewingError::Unknown)
    }

    fn meet(&mut self) -> Result<(), ViewingError> {
        let now = processes(&self.kv, &self.world)?;
        let gone =
            |(number, source): (&u64, &Source)| (now.get(number) != Some(&source.url)).then_some(*number);
        let gone: Vec<u64> = self.sources.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|number| self.lose(number));
        let mut ask = Vec::new();
        Ask::<D>::Watch(self.viewer, self.watch).encode(&mut ask);
        for (number, url) in now {
            match self.sources.get_mut(&number) {
                Some(source) if source.asked.elapsed() < ASK_AGAIN => {}
                Some(source) => {
                    source.asked = Instant::now();
                    source.ask(&self.world, &ask)?;
                }
                None => {
                    // One that is about to go is not there by the next look.
                    if let Some(source) = self.begin(&url, &ask)? {
                        self.sources.insert(number, source);
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&self, url: &str, ask: &[u8]) -> Result<Option<Source>, ViewingError> {
        let named = Options { name: "dunlin space viewer".to_owned(), ..Options::default() };
        let Ok(client) = Client::connect(url, named) else { return Ok(None) };
        let mut forget = Vec::new();
        Ask::<D>::Forget(self.viewer).encode(&mut forget);
        let topic = view_topic(&self.world, self.viewer);
        let options =
            SubscribeOptions { start: Start::Earliest, on_gap: OnGap::Fail, ..SubscribeOptions::default() };
        let asked = ask_of(&client, &self.world, &forget).and_then(|_| ask_of(&client, &self.world, ask));
        match asked {
            Ok(_) => {}
            Err(refused @ ViewingError::Refused(_)) => return Err(refused),
            Err(_) => return Ok(None),
        }
        let subscriber = client.subscribe(&topic, options)?;
        let (url, asked, regions) = (url.to_owned(), Instant::now(), BTreeSet::new());
        Ok(Some(Source { url, client, subscriber, asked, regions }))
    }

    fn lose(&mut self, number: u64) {
        let Some(source) = self.sources.remove(&number) else { return };
        source.regions.into_iter().for_each(|region| self.scene.forget(region));
        self.looked = None;
    }
}

impl Source {
    /// Takes in what it told; `false` where something is missing.
    fn drain<const D: usize>(&mut self, scene: &mut Scene<D>) -> Result<bool, ViewingError> {
        for _ in 0..DRAIN_MAX {
            match self.subscriber.try_next()? {
                Some(Event::Record(record)) => {
                    self.regions.insert(scene.take(record.frame.payload())?);
                }
                Some(Event::Notice(Notice::Gap(_) | Notice::EpochChanged(_) | Notice::Deleted { .. })) => {
                    return Ok(false);
                }
                Some(Event::Notice(_)) => {}
                None => return Ok(true),
            }
        }
        Ok(true)
    }

    fn ask(&self, world: &str, ask: &[u8]) -> Result<bool, ViewingError> {
        ask_of(&self.client, world, ask)
    }
}

/// Whether it was done; not where the entity is elsewhere.
fn ask_of(client: &Client, world: &str, ask: &[u8]) -> Result<bool, ViewingError> {
    let reply = client.request(&asks_subject(world), ask, PATIENCE)?;
    match reply.payload.split_first() {
        Some((&DONE, _)) => Ok(true),
        Some((&NOT_HERE, _)) => Ok(false),
        Some((_, why)) => Err(ViewingError::Refused(String::from_utf8_lossy(why).into_owned())),
        None => Err(ViewingError::Refused("an empty answer".to_owned())),
    }
}

impl<const D: usize> Drop for Viewing<D> {
    fn drop(&mut self) {
        let mut forget = Vec::new();
        Ask::<D>::Forget(self.viewer).encode(&mut forget);
        for source in self.sources.values() {
            // It forgets who does not ask again.
            let _ = source.ask(&self.world, &forget);
        }
    }
}

impl<const D: usize> std::fmt::Debug for Viewing<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Viewing")
            .field("world", &self.world)
            .field("viewer", &self.viewer)
            .finish_non_exhaustive()
    }
}

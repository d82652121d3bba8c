//! Asking: here where this node leads, else the leader over the transport.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dunlin_raft::{Commands, Group, GroupError, Lane, Lead, Member};
use dunlin_tasks::{Answered, Command, Found, Query, Reply, State};

use super::machine::Replicated;
use super::{Tasks, TasksError};
use crate::clock::now_ns;
use crate::control::forward::{self, Request};
use crate::control::{Consistency, ControlError};

/// Between two tries where the leader is not where it was said to be.
const PAUSE: Duration = Duration::from_millis(5);
/// The cluster's idea of how late it is in the world may be wrong by so much.
const CLOCK_MS_MAX: u64 = 20;

/// How long has been tried, and for how long it is.
struct Patience {
    began_ns: u64,
    max: Duration,
}

impl Patience {
    fn new(tasks: &Tasks) -> Patience {
        Patience { began_ns: now_ns(), max: Duration::from_millis(tasks.limits.raft.answer_ms_max) }
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(now_ns().saturating_sub(self.began_ns))
    }

    /// Waits for another try, or gives up because of this.
    async fn again(&self, group: &Group<Replicated>, why: String) -> Result<(), TasksError> {
        if self.waited() >= self.max {
            let waited_ms = self.waited().as_millis() as u64;
            return Err(ControlError::NoLeader { waited_ms, why }.into());
        }
        match group.lead() {
            Lead::Nobody => drop(group.leader().await),
            Lead::Here | Lead::There(_) => group.pause(PAUSE).await,
        }
        Ok(())
    }
}

impl Tasks {
    /// Has the cluster take commands in, one after another and none between; the bytes of an [`Answered`] for each. Where
    /// this node does not lead, the leader is asked. What certainly was not done is tried again for `answer_ms_max`. The commands
    /// were decoded before.
    pub async fn propose_known(&self, mut commands: Commands) -> Result<Vec<Bytes>, TasksError> {
        let group = self.group()?;
        let patience = Patience::new(self);
        loop {
            let why = match group.lead() {
                Lead::Here => {
                    self.see_to_clock_of_term(&group).await?;
                    match group.propose_all(commands).await {
                        Ok(answers) => return Ok(answers),
                        Err((error @ GroupError::NotLeader { .. }, back)) => {
                            commands = back;
                            error.to_string()
                        }
                        Err((error, _)) => return Err(error.into()),
                    }
                }
                Lead::There(leader) => {
                    let asked = Request::Propose(std::mem::take(&mut commands));
                    match self.forward(&leader, &asked).await? {
                        Ok(answers) => return Ok(answers),
                        Err(why) => {
                            let Request::Propose(back) = asked else { return Err(TasksError::unknown()) };
                            commands = back;
                            why
                        }
                    }
                }
                Lead::Nobody => "no node leads".to_owned(),
            };
            patience.again(&group, why).await?;
        }
    }

    /// Has the leader do it; why it was not done, if that is certain.
    async fn forward(
        &self,
        leader: &Member,
        asked: &Request,
    ) -> Result<Result<Vec<Bytes>, String>, TasksError> {
        match self.transport.ask(leader, Lane::Forward, asked.bytes()).await.and_then(forward::read_answers) {
            Ok(Ok(answers)) => Ok(Ok(answers)),
            Ok(Err(error @ GroupError::NotLeader { .. })) => Ok(Err(error.to_string())),
            Ok(Err(error)) => Err(error.into()),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(Err(error.to_string())),
            Err(_lost) => Err(TasksError::unknown()),
        }
    }

    /// Has the cluster take one command in.
    pub async fn ask(&self, command: &Command<'_>) -> Result<Reply, TasksError> {
        let mut commands = Commands::default();
        commands.push_with(|out| command.encode(out));
        let answers = self.propose_known(commands).await?;
        match Answered::decode(answers.first().ok_or_else(TasksError::unknown)?)? {
            Answered::Done { reply } => Ok(reply),
            Answered::Refused { refusal } => Err(refusal.into()),
        }
    }

    /// Waits until this node has taken in all that was answered to anybody before. Another node is asked if it leads.
    pub async fn catch_up(&self) -> Result<(), TasksError> {
        let group = self.group()?;
        let patience = Patience::new(self);
        loop {
            let index = match group.lead() {
                Lead::Here => group.read_index().await,
                Lead::There(leader) => {
                    let asked = self.transport.ask(&leader, Lane::Forward, Request::ReadIndex.bytes()).await;
                    asked
                        .and_then(forward::read_index)
                        .unwrap_or_else(|error| Err(GroupError::NoQuorum(error.to_string())))
                }
                Lead::Nobody => Err(GroupError::NotLeader { leader: None }),
            };
            match index {
                Ok(index) => match group.applied(index).await {
                    Ok(()) => return Ok(()),
                    Err(late) => patience.again(&group, late.to_string()).await?,
                },
                Err(error @ (GroupError::NotLeader { .. } | GroupError::NoQuorum(_))) => {
                    patience.again(&group, error.to_string()).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Looks at the state, as fresh as is asked for.
    pub async fn read<R>(
        &self,
        consistency: Consistency,
        look: impl FnOnce(&State) -> R,
    ) -> Result<R, TasksError> {
        if consistency == Consistency::Linearizable {
            self.catch_up().await?;
        }
        self.with(look)
    }

    /// Answers a question.
    pub async fn query(&self, consistency: Consistency, query: &Query<'_>) -> Result<Found, TasksError> {
        Ok(self.read(consistency, |state| state.answer(query)).await??)
    }

    /// A leader says first how late it is in the world: while nobody led, the cluster's own count stood still.
    async fn see_to_clock_of_term(&self, group: &Group<Replicated>) -> Result<(), TasksError> {
        let term = group.term();
        if self.clock_term.load(Ordering::Relaxed) == term {
            return Ok(());
        }
        // It stands in the log before all that is proposed after it.
        self.say_clock(group).await?;
        self.clock_term.store(term, Ordering::Relaxed);
        Ok(())
    }

    /// On the leader: has the clock set where it is wrong.
    pub(super) async fn see_to_clock(&self) -> Result<(), TasksError> {
        let group = self.group()?;
        if group.lead() != Lead::Here {
            return Ok(());
        }
        if self.clock_term.load(Ordering::Relaxed) != group.term() {
            return self.see_to_clock_of_term(&group).await;
        }
        let unix_ms = now_ns() / 1_000_000;
        // The state's count stands still while nothing happens: only one that runs before the world is wrong for certain.
        let known_ms = group.with(|machine| machine.state().unix_ms_of(machine.state().now_ms()));
        if known_ms > unix_ms + CLOCK_MS_MAX || known_ms + CLOCK_RENEWED_MS < unix_ms {
            self.say_clock(&group).await?;
        }
        Ok(())
    }

    /// Says how late it is, and how much there may be where that is not so.
    async fn say_clock(&self, group: &Group<Replicated>) -> Result<(), TasksError> {
        let mut commands = Commands::default();
        let unix_ms = now_ns() / 1_000_000;
        commands.push_with(|out| Command::Clock { unix_ms }.encode(out));
        let limits = group.with(|machine| machine.state().limits());
        let state_bytes_max = self.limits.state_bytes_max;
        if limits.state_bytes_max != state_bytes_max {
            let limits = dunlin_tasks::Limits { state_bytes_max, ..limits };
            commands.push_with(|out| Command::Limit { limits }.encode(out));
        }
        match group.propose_all(commands).await {
            Ok(_) | Err((GroupError::NotLeader { .. }, _)) => Ok(()),
            Err((error, _)) => Err(error.into()),
        }
    }

    /// What another node asks of this one, which leads or says that it does not.
    pub(super) async fn answer(&self, group: &Arc<Group<Replicated>>, request: Request) -> Bytes {
        match request {
            Request::ReadIndex => forward::write_index(&group.read_index().await),
            Request::Propose(commands)
                if commands.iter().any(|command| Command::decode(command).is_err()) =>
            {
                let error =
                    GroupError::Refused("a command of a version that the leader does not know".to_owned());
                forward::write_answers(&Err(error))
            }
            Request::Propose(commands) => {
                if group.lead() == Lead::Here {
                    // What comes of it shows in what follows.
                    let _ = self.see_to_clock_of_term(group).await;
                }
                let answers = group.propose_all(commands).await;
                forward::write_answers(&answers.map_err(|(error, _)| error))
            }
        }
    }
}

/// A clock that nobody asked for so long is looked at again.
const CLOCK_RENEWED_MS: u64 = 60_000;

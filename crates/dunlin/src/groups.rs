//! Groups: members that divide the records of a topic among them.
//!
//! The state machines in `dunlin-topic` decide which member receives which record. This module provides the logs, the
//! time, waiting, and dead letters. Deadlines and delays are measured by the monotonic clock.
//!
//! Invariants:
//! - A group belongs to one topic and has one kind. Its first member creates it with its own options.
//! - A lasting group exists longer than its members, so that the next member continues where the group stopped. Such a
//!   group ends with its topic, or after `group_idle_max` without members. A group that is not lasting ends with its
//!   last member.
//! - A member of a `share` group may have been in the group already before the owner's present epoch, or before the
//!   owner was restarted in this epoch. If such a member joins, the group delivers all records since the epoch began or
//!   the owner was restarted, regardless of the order in which members join. The group leaves out records that an
//!   earlier group of the same name has delivered.
//! - When a group's topic was deleted or moved to another owner, or when `group_idle_max` has ended the group, the
//!   group still sends its waiting dead letters for `deleted_age_max`. A new group of a new topic with the same names
//!   does not send these letters.
//! - A dead letter that a group drops because it could not be stored is counted, and reported to the node's operator.
//! - A group delivers only records of epochs in which this node owns its topic. Records of another owner's epoch are
//!   delivered by the group at that owner.
//! - A member receives copies of records, so that the log can free its memory even if a member is slow.
//!
//! Limits: `groups_max`, `group_idle_max`, and those of [`dunlin_topic::LogLimits`] for each partition. One user may
//! create a quarter of `groups_max`. One tenant may have up to [`TENANT_SHARE`] times as many groups as the node can
//! still create.
//!
//! Locks are taken in this order: the map of groups, the ended groups or the orphaned groups, a group, the dropped
//! letters.

mod any;
mod dead_letters;
mod deadline;
mod delivered;
mod error;
mod group;
mod machine;
mod membership;
mod options;
mod owned_epochs;
mod partition;
mod reader;
mod share;
mod state;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use dunlin_topic::{
    Pattern, ShareGroup, Start, Subject, SubjectError, SubscribeError, SubscribeOptions, Topic, Waiter,
    WorkConfig, WorkGroup,
};

use crate::access::{Action, TENANT_SHARE, User};
use crate::clock::steady_ns;
use crate::config::NodeLimits;
use crate::error::TopicError;
use crate::node::Node;
use crate::registry::is_of_system;

use any::{AnyGroup, OfKind};
pub use dead_letters::DroppedDeadLetters;
use dead_letters::{DroppedLetters, LetterTarget};
use deadline::NextDeadline;
use delivered::EndedGroups;
pub use error::{JoinError, StaleClaim};
use group::Group;
use machine::GroupMachine;
use membership::GroupMember;
pub use options::{EarlierMembership, GroupKind, ShareOptions, WorkOptions};
use share::ConsumptionMode;
pub use share::ShareMember;
pub use work::{ClaimedRecord, WorkEvent, WorkMember};

/// A user may create at most `groups_max` divided by this number of groups.
const USER_SHARE: usize = 4;

/// The groups of a node's topics.
#[derive(Debug)]
pub(crate) struct Groups {
    by_name: Mutex<BTreeMap<Name, GroupEntry>>,
    /// Groups whose topics have moved to other owners while some members had not yet received all records.
    ending: Mutex<Vec<AnyGroup>>,
    /// For each ended group, the records that it has delivered. Kept until the topic moves to another owner.
    ended: Mutex<EndedGroups>,
    /// Groups that no member can join any more, but that still have dead letters to send. Each group is stored with the
    /// time until which it sends its letters, in ns. If there are more than `groups_max` such groups, the oldest are
    /// dropped.
    orphaned: Mutex<VecDeque<(u64, AnyGroup)>>,
    dropped_letters: DroppedLetters,
    groups_max: usize,
    idle_ns_max: u64,
    /// How long a group that no member can join any more still sends dead letters, ns.
    deleted_ns_max: u64,
    deadline: Arc<NextDeadline>,
}

/// The name of a topic and the name of a group.
type Name = (String, String);

#[derive(Debug)]
struct GroupEntry {
    group: AnyGroup,
    /// The user that created the group; `None` on a node without users.
    creator: Option<GroupCreator>,
}

/// The user that created a group, and the user's tenant. The group counts towards the limits on the groups of this user
/// and of this tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupCreator {
    user: String,
    tenant: String,
}

impl GroupCreator {
    fn of(user: &dyn User) -> GroupCreator {
        GroupCreator { user: user.name().to_owned(), tenant: user.permissions().tasks.tenant.clone() }
    }
}

/// The status of a group for operators: its members, its waiting and claimed records, and its dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// The group's name.
    pub name: String,
    /// The group's kind.
    pub kind: GroupKind,
    /// The names of the group's members.
    pub members: Vec<String>,
    /// An upper bound on the number of records without acknowledgement: the oldest such record and all later records
    /// count, even later ones that are acknowledged.
    pub waiting: u64,
    /// The number of records that members have claimed.
    pub claimed: u64,
    /// The number of dead letters that the topic for dead letters has not stored yet.
    pub pending_dead_letters: u64,
    /// If the topic for dead letters has refused a dead letter that still waits, the reason: an error code and a text.
    pub dead_letter_error: Option<String>,
}

impl Node {
    /// Joins the topic's `share` group with this name. The first member creates the group.
    pub fn join_share(
        &self,
        topic: &str,
        group: &str,
        options: &ShareOptions,
    ) -> Result<ShareMember, JoinError> {
        let membership = self.join_share_group(topic, group, options, (Waiter::new(), 0))?;
        Ok(ShareMember::local(membership, options.ahead, ConsumptionMode::Implicit))
    }

    /// Like [`join_share`](Node::join_share), but for a listener. `wakeup` consists of a waiter and a token: an event
    /// for the member notifies this waiter with this token. The listener reports consumed records with
    /// [`ShareMember::consume`].
    pub fn join_share_with_waiter(
        &self,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        wakeup: (Arc<Waiter>, u32),
    ) -> Result<ShareMember, JoinError> {
        if options.anywhere {
            return ShareMember::following_topic(self, topic, group, options, wakeup);
        }
        let membership = self.join_share_group(topic, group, options, wakeup)?;
        Ok(ShareMember::local(membership, options.ahead, ConsumptionMode::Explicit))
    }

    fn join_share_group(
        &self,
        topic: &str,
        group: &str,
        options: &ShareOptions,
        wakeup: (Arc<Waiter>, u32),
    ) -> Result<GroupMember<ShareGroup>, JoinError> {
        let limits = self.config().limits.topic;
        let new = NewGroup {
            start: options.start,
            earlier: options.earlier,
            registered: options.registered,
            is_lasting: options.lasting,
            dead_letters: None,
            for_user: options.for_user.clone(),
        };
        self.join(topic, group, &options.member, new, wakeup, |after_seq| ShareGroup::new(&limits, after_seq))
    }

    /// Joins the topic's `work` group with this name. The first member creates the group.
    pub fn join_work(
        &self,
        topic: &str,
        group: &str,
        options: &WorkOptions,
    ) -> Result<WorkMember, JoinError> {
        self.join_work_with_waiter(topic, group, options, (Waiter::new(), 0))
    }

    /// Like [`join_work`](Node::join_work), but for a listener. `wakeup` consists of a waiter and a token: an event for
    /// the member notifies this waiter with this token.
    pub fn join_work_with_waiter(
        &self,
        topic: &str,
        group: &str,
        options: &WorkOptions,
        wakeup: (Arc<Waiter>, u32),
    ) -> Result<WorkMember, JoinError> {
        let limits = self.config().limits.topic;
        let config = WorkConfig {
            claim_ns: options.claim.as_nanos().min(u64::MAX.into()) as u64,
            attempts_max: if options.attempts_max == 0 { u32::MAX } else { options.attempts_max },
        };
        let dead_letters = options.dead_letters_of(topic);
        let new = NewGroup {
            start: options.start,
            earlier: None,
            registered: options.registered,
            is_lasting: true,
            dead_letters,
            for_user: None,
        };
        let machine = |after_seq| WorkGroup::new(config, &limits, after_seq);
        Ok(WorkMember::new(self.join(topic, group, &options.member, new, wakeup, machine)?))
    }

    /// Ends expired claims and delays of all groups, without waiting for the next [`tick`](Node::tick). Returns the
    /// time at which to call this function again, in ns by the monotonic clock ([`steady_ns`](crate::steady_ns)), or
    /// `None` if there is no deadline. If an earlier deadline is set meanwhile, `waker` is woken.
    ///
    /// A program whose members are async tasks calls this function from one task.
    pub fn handle_deadlines(&self, waker: &Waker) -> Option<u64> {
        let groups = self.groups_of_node();
        let now_ns = steady_ns();
        groups.deadline.run(waker, || {
            for group in groups.all() {
                if group.is_due(now_ns) {
                    group.tick(self);
                }
                groups.deadline.report(group.due_ns());
            }
        })
    }

    /// For a listener: ends a group without members if the group is not lasting.
    pub fn end_group(&self, topic: &str, group: &str) {
        let mut by_name = self.groups_of_node().lock();
        let key = (topic.to_owned(), group.to_owned());
        let is_over =
            |entry: &GroupEntry| !entry.group.is_lasting() && entry.group.idle_since_ns(self).is_some();
        if by_name.get(&key).is_some_and(is_over)
            && let Some(entry) = by_name.remove(&key)
            && self.ownership().is_some()
        {
            self.groups_of_node().ended().add(key, entry.group.delivered_ranges(self));
        }
    }

    /// Checks the user's permission to join groups with this name, for any topic.
    pub fn may_join_group(&self, group: &str) -> Result<(), TopicError> {
        self.may_all(Action::Join, &Pattern::parse(group)?)
    }

    /// Checks the user's permission to join this group of the topic.
    pub fn may_join(&self, topic: &Topic, group: &str) -> Result<(), TopicError> {
        self.may_join_group(group)?;
        self.may_read_all(topic)
    }

    /// Checks the user's permission to read all records of the topic. A member of a group needs this permission,
    /// because groups do not filter records for a user. The records of keys, tasks and the node's status need
    /// permissions of their own. The error names the topic, but not its pattern, which the user may not see.
    fn may_read_all(&self, topic: &Topic) -> Result<(), TopicError> {
        let is_allowed = self.may_all(Action::Subscribe, &Pattern::parse(topic.pattern())?).is_ok()
            && self.user().filter(|_| is_of_system(topic.name())).is_none_or(|user| {
                let permissions = user.permissions();
                topic.logs().iter().all(|log| matches!(permissions.restrict(log.name(), None), Some(None)))
            });
        if is_allowed {
            return Ok(());
        }
        Err(TopicError::Forbidden { action: Action::Subscribe, subject: topic.name().to_owned() })
    }

    /// The groups of the topic.
    pub fn groups(&self, topic: &Topic) -> Vec<GroupInfo> {
        let of_topic = self.groups_of_node().of_topic(topic);
        of_topic.iter().map(|group| group.info(self)).collect()
    }

    /// The number of dead letters that this node's groups have dropped since the node's start because they could not be
    /// stored. Letters of groups that are configured to drop dead letters do not count.
    pub fn dropped_dead_letters(&self) -> u64 {
        self.groups_of_node().dropped_letters.count()
    }

    /// Takes the reports of dead letters that were dropped since the last call, one report for each group. The caller
    /// writes the reports to the operator's log. If very many groups drop letters between two calls, some reports are
    /// missing, but [`dropped_dead_letters`](Node::dropped_dead_letters) counts all letters.
    pub fn take_dropped_dead_letters(&self) -> Vec<DroppedDeadLetters> {
        self.groups_of_node().dropped_letters.take()
    }

    /// Ends the topic's groups at this node because another node owns the topic, and refers the groups' members to that
    /// node. `last_epoch` is this node's last epoch if the new owner begins a later epoch, and otherwise `None`. If
    /// `last_epoch` is given, members of `share` groups first receive the remaining records. `work` groups still send
    /// their dead letters.
    pub(crate) fn end_topic_groups(&self, topic: &Topic, last_epoch: Option<u32>, why: &TopicError) {
        let ended: Vec<AnyGroup> = {
            let mut by_name = self.groups_of_node().lock();
            let of_topic = |entry: &GroupEntry| std::ptr::eq(Arc::as_ptr(entry.group.topic()), topic);
            by_name.extract_if(.., |_, entry| of_topic(entry)).map(|(_, entry)| entry.group).collect()
        };
        let (why, now_ns) = (SubscribeError::from(why.clone()), steady_ns());
        for group in &ended {
            group.end(self, last_epoch, &why);
            self.groups_of_node().add_orphan(self, group.clone(), now_ns);
        }
        self.groups_of_node().ended().remove_topic(topic.name());
        let mut ending = self.groups_of_node().ending();
        ending.retain(AnyGroup::is_ending);
        ending.extend(ended.into_iter().filter(AnyGroup::is_ending));
    }

    /// Whether some members still have to receive records of a topic that has moved to another owner.
    pub(crate) fn has_ending_groups(&self) -> bool {
        let mut ending = self.groups_of_node().ending();
        ending.retain(AnyGroup::is_ending);
        !ending.is_empty()
    }

    fn join<M: GroupMachine>(
        &self,
        topic: &str,
        name: &str,
        member_name: &str,
        new: NewGroup,
        wakeup: (Arc<Waiter>, u32),
        machine: impl Fn(u64) -> M,
    ) -> Result<GroupMember<M>, JoinError>
    where
        AnyGroup: OfKind<M>,
    {
        Subject::parse(name).map_err(|error: SubjectError| JoinError::Name(error))?;
        self.may_all(Action::Join, &Pattern::parse(name)?)?;
        let topic = self.topic_of_group(topic)?;
        let groups = self.groups_of_node();
        let check_owner = || match self.ownership() {
            Some(ownership) => ownership.check_owner(&topic, "its groups can be joined"),
            None => Ok(()),
        };
        check_owner()?;
        let key = (topic.name().to_owned(), name.to_owned());
        let is_known = |entry: &&GroupEntry| Arc::ptr_eq(entry.group.topic(), &topic);
        if groups.lock().get(&key).filter(is_known).is_none() {
            // The map of groups is not locked here, because the call may create a topic.
            new.check(self, &topic)?;
        }
        let mut by_name = groups.lock();
        // The owner is checked while the map of groups is locked. If the topic moves after this check, the move ends
        // this group, because it ends all of the topic's groups in the map.
        check_owner()?;
        let known = by_name.get(&key).filter(is_known);
        let (group, notices) = match known {
            Some(GroupEntry { group: existing, .. }) => {
                let kind = existing.kind();
                let of_kind = AnyGroup::downcast(existing);
                (of_kind.ok_or_else(|| JoinError::Kind { group: name.to_owned(), kind })?, Vec::new())
            }
            None => {
                let creator = new.creator(self);
                groups.check_room(&by_name, creator.as_ref())?;
                let mut options = new.subscribe_options(name);
                // If an earlier group with this name has ended, the new group begins with the next record. The records
                // that the earlier group has not delivered are added below.
                let earlier = new.earlier.filter(|_| !groups.ended().has(&key));
                if new.earlier.is_some() && earlier.is_none() {
                    options.start = Start::Latest;
                }
                let letters =
                    new.dead_letters.map(|subject| LetterTarget::new(subject, &topic, &groups.deadline));
                let (group, notices) = Group::new(
                    Arc::clone(&topic),
                    name.to_owned(),
                    &options,
                    earlier,
                    (new.is_lasting, letters),
                    machine,
                )?;
                group.set_delivered_before(self, groups.ended().take(&key));
                let entry = GroupEntry { group: AnyGroup::wrap(Arc::clone(&group)), creator };
                if let Some(replaced) = by_name.insert(key, entry) {
                    // The replaced group's topic was deleted, and another topic with the same name was created.
                    groups.add_orphan(self, replaced.group, steady_ns());
                }
                (group, notices)
            }
        };
        let member = group.join(self, member_name)?;
        if let Some(earlier) = new.earlier {
            group.include_records_after(self, earlier);
        }
        if let Some(why) = group.ended() {
            return Err(why.clone().into());
        }
        Ok(GroupMember::new(self.unguarded(), group, member, wakeup, notices))
    }

    /// Does the part of joining a group that may have to wait: finds or creates the group's topic and the topic for the
    /// group's dead letters.
    pub(crate) fn prepare_join(
        &self,
        topic: &str,
        group: &str,
        dead_letters: Option<&str>,
    ) -> Result<(), TopicError> {
        self.may_all(Action::Join, &Pattern::parse(group)?)?;
        let topic = self.topic_of_group(topic)?;
        if let Some(ownership) = self.ownership() {
            ownership.check_owner(&topic, "its groups can be joined")?;
        }
        match dead_letters.map(|subject| dead_letters::prepare(self, subject, &topic)) {
            Some(Err(JoinError::Topic(error))) => Err(error),
            // Ignore all other errors. The join call that follows returns them.
            _ => Ok(()),
        }
    }

    /// Whether the topic has a group with this name. A group of an earlier topic, which had the same name as `topic`
    /// and was deleted, does not count.
    pub(crate) fn has_group(&self, topic: &Arc<Topic>, group: &str) -> bool {
        let by_name = self.groups_of_node().lock();
        let entry = by_name.get(&(topic.name().to_owned(), group.to_owned()));
        entry.is_some_and(|entry| Arc::ptr_eq(entry.group.topic(), topic))
    }

    /// Returns the topic with this name. Creates it if `auto_create` is set.
    fn topic_of_group(&self, name: &str) -> Result<Arc<Topic>, TopicError> {
        if let Some(topic) = self.registry().get(name) {
            self.may_read_all(&topic)?;
            return Ok(topic);
        }
        self.may_all(Action::Subscribe, &Pattern::parse(name)?)?;
        let owner = self.find_owning_topic(Subject::parse(name)?)?;
        if owner.name() == name { Ok(owner) } else { Err(TopicError::Unknown(name.to_owned())) }
    }
}

/// The options of a new group, except those of its state machine.
struct NewGroup {
    start: Start,
    earlier: Option<EarlierMembership>,
    registered: bool,
    is_lasting: bool,
    dead_letters: Option<String>,
    for_user: Option<String>,
}

impl NewGroup {
    /// Returns the user that creates the group, and the user's tenant. If the handle `node` has a user, `for_user` is
    /// ignored: only another node, whose handle has no user, may join on behalf of a user.
    fn creator(&self, node: &Node) -> Option<GroupCreator> {
        match (node.user(), &self.for_user) {
            (Some(user), _) => Some(GroupCreator::of(&**user)),
            (None, Some(user)) => {
                Some(GroupCreator { tenant: node.tenant_of_user(user), user: user.clone() })
            }
            (None, None) => None,
        }
    }

    fn check(&self, node: &Node, topic: &Topic) -> Result<(), JoinError> {
        if self.start == Start::Snapshot {
            let why = "is shared by a group record by record, not by its state";
            return Err(SubscribeError::NoState { topic: topic.name().to_owned(), why }.into());
        }
        match &self.dead_letters {
            Some(subject) => dead_letters::prepare(node, subject, topic),
            None => Ok(()),
        }
    }

    fn subscribe_options(&self, name: &str) -> SubscribeOptions {
        SubscribeOptions {
            name: state::subscriber_name(name),
            start: self.start,
            registered: self.registered,
            ..SubscribeOptions::default()
        }
    }
}

impl Groups {
    pub(crate) fn new(limits: &NodeLimits) -> Groups {
        Groups {
            by_name: Mutex::default(),
            ending: Mutex::default(),
            ended: Mutex::default(),
            orphaned: Mutex::default(),
            dropped_letters: DroppedLetters::default(),
            groups_max: limits.groups_max,
            idle_ns_max: limits.group_idle_max.as_nanos().min(u64::MAX.into()) as u64,
            deleted_ns_max: limits.deleted_age_max.as_nanos().min(u64::MAX.into()) as u64,
            deadline: Arc::new(NextDeadline::new()),
        }
    }

    /// Handles expired claims, expired delays and lost records, and ends idle groups. `now_ns` is the time of the
    /// monotonic clock.
    pub(crate) fn tick(&self, node: &Node, now_ns: u64) {
        let mut orphans = Vec::new();
        self.lock().retain(|_, GroupEntry { group, .. }| {
            let Some(since_ns) = group.idle_since_ns(node) else { return true };
            let topic = group.topic();
            let has_topic = node.with_topic(topic.name(), |known| Arc::ptr_eq(known, topic)) == Some(true);
            if has_topic && now_ns < since_ns.saturating_add(self.idle_ns_max) {
                return true;
            }
            orphans.push(group.clone());
            false
        });
        orphans.into_iter().for_each(|group| self.add_orphan(node, group, now_ns));
        self.all().iter().for_each(|group| group.tick(node));
        let mut expired = Vec::new();
        self.orphaned().retain(|(until_ns, group)| {
            let is_needed = group.may_send_dead_letters();
            let is_expired = now_ns >= *until_ns;
            if is_needed && is_expired {
                expired.push(group.clone());
            }
            is_needed && !is_expired
        });
        expired.iter().for_each(|group| group.drop_dead_letters(node));
        self.ending().retain(AnyGroup::is_ending);
    }

    /// Keeps a group until it has sent its dead letters. No member can join this group any more.
    fn add_orphan(&self, node: &Node, group: AnyGroup, now_ns: u64) {
        if !group.may_send_dead_letters() {
            return;
        }
        let oldest = {
            let mut orphaned = self.orphaned();
            orphaned.push_back((now_ns.saturating_add(self.deleted_ns_max), group));
            if orphaned.len() > self.groups_max { orphaned.pop_front() } else { None }
        };
        if let Some((_, oldest)) = oldest {
            oldest.drop_dead_letters(node);
        }
    }

    fn of_topic(&self, topic: &Topic) -> Vec<AnyGroup> {
        let by_name = self.lock();
        let named = by_name.range((topic.name().to_owned(), String::new())..);
        let named = named
            .take_while(|((topic_name, _), _)| topic_name == topic.name())
            .map(|(_, entry)| &entry.group);
        named.filter(|group| std::ptr::eq(Arc::as_ptr(group.topic()), topic)).cloned().collect()
    }

    fn all(&self) -> Vec<AnyGroup> {
        let mut groups: Vec<AnyGroup> = self.lock().values().map(|entry| entry.group.clone()).collect();
        groups.extend(self.orphaned().iter().map(|(_, group)| group.clone()));
        groups
    }

    /// Returns an error if the node, the tenant or the user has reached its limit of groups.
    fn check_room(
        &self,
        by_name: &BTreeMap<Name, GroupEntry>,
        creator: Option<&GroupCreator>,
    ) -> Result<(), JoinError> {
        let check = |limit, count: usize, value: usize| match count < value {
            true => Ok(()),
            false => Err(JoinError::Limit { limit, value: value as u64 }),
        };
        check("groups_max", by_name.len(), self.groups_max)?;
        let Some(creator) = creator else { return Ok(()) };
        let count_of = |matches: &dyn Fn(&GroupCreator) -> bool| {
            by_name.values().filter(|entry| entry.creator.as_ref().is_some_and(matches)).count()
        };
        let user_count = count_of(&|other| other.user == creator.user);
        check("groups_of_user_max", user_count, self.groups_max.div_ceil(USER_SHARE))?;
        if creator.tenant.is_empty() {
            return Ok(());
        }
        let free = self.groups_max.saturating_sub(by_name.len());
        check("groups_of_tenant_max", count_of(&|other| other.tenant == creator.tenant), free * TENANT_SHARE)
    }

    fn ended(&self) -> MutexGuard<'_, EndedGroups> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orphaned(&self) -> MutexGuard<'_, VecDeque<(u64, AnyGroup)>> {
        self.orphaned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ending(&self) -> MutexGuard<'_, Vec<AnyGroup>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, GroupEntry>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

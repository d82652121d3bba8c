//! Defines the JSON format in which nodes exchange the figures of topics.

use dunlin::topic::{LogInfo, LossCounters, Position, StorageInfo, SubscriberInfo};
use dunlin::{GroupInfo, GroupKind};
use serde::{Deserialize, Serialize};

use crate::protocol::Protocol;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LogForm {
    pub(super) partition: u16,
    #[serde(with = "LogInfoForm")]
    pub(super) info: LogInfo,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LossesForm(#[serde(with = "LossesFields")] pub(super) LossCounters);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SubscriberForm {
    name: String,
    partition: u16,
    epoch: u32,
    seq: u64,
    lag: u64,
    missed: u64,
    lagging_ns: u64,
    missed_ns: u64,
    protocol: String,
    registered: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GroupForm(#[serde(with = "GroupFields")] pub(super) GroupInfo);

#[derive(Serialize, Deserialize)]
#[serde(remote = "LogInfo")]
struct LogInfoForm {
    epoch: u32,
    oldest_seq: u64,
    next_seq: u64,
    bytes: u64,
    appended_bytes: u64,
    #[serde(with = "LossesFields")]
    losses: LossCounters,
    waiting: usize,
    registered: usize,
    last_append_ns: u64,
    #[serde(with = "stored")]
    stored: Option<StorageInfo>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LossCounters")]
struct LossesFields {
    warnings: u64,
    gaps: u64,
    records: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StorageInfo")]
struct StoredFields {
    written_seq: u64,
    synced_seq: u64,
    unstored_bytes: u64,
    bytes: u64,
    oldest_epoch: u32,
    full: bool,
    failed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "GroupInfo")]
struct GroupFields {
    name: String,
    #[serde(with = "KindForm")]
    kind: GroupKind,
    members: Vec<String>,
    waiting: u64,
    claimed: u64,
    // Older nodes do not send the two fields below.
    #[serde(default)]
    pending_dead_letters: u64,
    #[serde(default)]
    dead_letter_error: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "GroupKind")]
enum KindForm {
    Share,
    Work,
}

mod stored {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Serialize, StorageInfo, StoredFields};

    #[derive(Serialize, Deserialize)]
    struct Form(#[serde(with = "StoredFields")] StorageInfo);

    pub(super) fn serialize<S: Serializer>(stored: &Option<StorageInfo>, to: S) -> Result<S::Ok, S::Error> {
        stored.map(Form).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StorageInfo>, D::Error> {
        Ok(Option::<Form>::deserialize(from)?.map(|form| form.0))
    }
}

impl From<SubscriberInfo> for SubscriberForm {
    fn from(subscriber: SubscriberInfo) -> SubscriberForm {
        let SubscriberInfo {
            name,
            partition,
            position,
            lag,
            missed,
            lagging_ns,
            missed_ns,
            protocol,
            registered,
        } = subscriber;
        let Position { epoch, seq } = position;
        let protocol = protocol.to_owned();
        SubscriberForm {
            name,
            partition,
            epoch,
            seq,
            lag,
            missed,
            lagging_ns,
            missed_ns,
            protocol,
            registered,
        }
    }
}

impl From<SubscriberForm> for SubscriberInfo {
    fn from(form: SubscriberForm) -> SubscriberInfo {
        let SubscriberForm {
            name,
            partition,
            epoch,
            seq,
            lag,
            missed,
            lagging_ns,
            missed_ns,
            protocol,
            registered,
        } = form;
        let position = Position { epoch, seq };
        // A newer node may send the name of a protocol that this release does not know.
        let known = Protocol::ALL.iter().map(|protocol| protocol.name()).chain([dunlin::NODE_PROTOCOL]);
        let protocol = known.into_iter().find(|known| *known == protocol).unwrap_or("");
        SubscriberInfo { name, partition, position, lag, missed, lagging_ns, missed_ns, protocol, registered }
    }
}

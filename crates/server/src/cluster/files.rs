//! Reads and writes the files in `<data-dir>/cluster`, which hold a node's membership in a cluster.
//!
//! | file | content |
//! |---|---|
//! | `identity.json` | the cluster's id, the node's number, and the node's starts |
//! | `ca.pem`, `ca-key.pem` | the cluster's authority and its key |
//! | `node.pem`, `node-key.pem` | this node's certificate and its key, issued again at each start |
//! | `members.json` | the members at the last check, for commands that run while this node is down |
//!
//! Invariants: each write replaces a whole file. Files with private keys are readable only for the user that runs the
//! node.

mod sealed;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dunlin::raft::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::authority::CertificateAuthority;
use super::error::ClusterError;
use super::{hex, random};

/// Format version of `identity.json`. Files with a higher version are refused.
const FORMAT: u32 = 1;
/// Maximum number of starts that `identity.json` lists, including the present one. The list must still contain the
/// start that is registered in the cluster's table.
const LINEAGE_MAX: usize = 256;
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Identifies one start of a node. If a node's directory was copied, the last registered start decides which of the
/// copies may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Incarnation {
    /// The number of this start. A directory's first start has number 1.
    pub(super) number: u64,
    /// A random text that distinguishes two starts with the same number, for example the starts of two copies of a
    /// directory.
    pub(super) mark: String,
}

/// A node's identity as `identity.json` stores it: cluster, node number, address and starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeIdentity {
    format: u32,
    /// The version of Dunlin that wrote the file.
    release: String,
    pub(super) cluster: String,
    pub(super) node: u64,
    /// The address at which other nodes reach this node.
    pub(super) address: String,
    /// Identifies the current run of the node, since its last start.
    pub(super) now: Incarnation,
    /// Identifies the run before the current one.
    pub(super) before: Option<Incarnation>,
    /// Identifies the runs before `now` and `before`, newest first.
    #[serde(default)]
    earlier: Vec<Incarnation>,
    /// Whether the agreed state comes from another cluster's backup. If it does, this node removes that cluster's nodes
    /// from the table when it starts.
    #[serde(default)]
    pub(super) is_restored: bool,
    /// Whether this node is the first of its cluster, and the cluster has not begun yet.
    #[serde(default)]
    pub(super) begins: bool,
}

impl Incarnation {
    fn after(before: Option<&Incarnation>) -> Result<Incarnation, ClusterError> {
        let mut mark = [0; 8];
        random(&mut mark)?;
        Ok(Incarnation { number: before.map_or(0, |before| before.number) + 1, mark: hex::write(&mark) })
    }
}

impl NodeIdentity {
    pub(super) fn new(cluster: &str, node: u64, address: &str) -> Result<NodeIdentity, ClusterError> {
        Ok(NodeIdentity {
            format: FORMAT,
            release: super::RELEASE.to_owned(),
            cluster: cluster.to_owned(),
            node,
            address: address.to_owned(),
            now: Incarnation::after(None)?,
            before: None,
            earlier: Vec::new(),
            is_restored: false,
            begins: false,
        })
    }

    /// Creates the identity of a new cluster's first node. The cluster begins when this node starts for the first time.
    pub(super) fn first(cluster: &str, node: u64, address: &str) -> Result<NodeIdentity, ClusterError> {
        Ok(NodeIdentity { begins: true, ..NodeIdentity::new(cluster, node, address)? })
    }

    /// Returns this identity with another address. Call this only before the cluster has begun.
    pub(super) fn with_address(self, address: &str) -> NodeIdentity {
        NodeIdentity { address: address.to_owned(), ..self }
    }

    /// Creates the identity of a first node whose new cluster begins with the state of a backup.
    pub(super) fn restored(cluster: &str, node: u64, address: &str) -> Result<NodeIdentity, ClusterError> {
        Ok(NodeIdentity { is_restored: true, ..NodeIdentity::new(cluster, node, address)? })
    }

    /// Returns this identity with `begins` and `is_restored` set to false. Call this after the cluster has begun and
    /// the backup's nodes were removed.
    pub(super) fn settled(self) -> NodeIdentity {
        NodeIdentity { is_restored: false, begins: false, ..self }
    }

    /// Returns this identity for the node's next start.
    pub(super) fn next_start(self, address: &str) -> Result<NodeIdentity, ClusterError> {
        let now = Incarnation::after(Some(&self.now))?;
        let mut earlier = self.earlier;
        earlier.splice(0..0, self.before);
        earlier.truncate(LINEAGE_MAX - 2);
        let (before, address) = (Some(self.now), address.to_owned());
        Ok(NodeIdentity { release: super::RELEASE.to_owned(), address, now, before, earlier, ..self })
    }

    /// Whether this type has a field for every entry in the JSON object `text`.
    fn has_all_entries(&self, text: &str) -> bool {
        let parts = (serde_json::to_value(self), serde_json::from_str(text));
        let (Ok(Value::Object(known)), Ok(Value::Object(found))) = parts else { return false };
        found.iter().all(|(name, _)| known.contains_key(name))
    }

    /// Returns the starts of this directory, beginning with the present one.
    pub(super) fn lineage(&self) -> Vec<Incarnation> {
        [&self.now].into_iter().chain(&self.before).chain(&self.earlier).cloned().collect()
    }
}

/// The number and address of a member that this node knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownMember {
    pub(super) node: u64,
    pub(super) address: String,
}

impl KnownMember {
    /// Returns all members of a Raft group.
    pub(super) fn all(status: &Status) -> Vec<Self> {
        let members = status.voters.iter().chain(&status.learners);
        members.map(|member| Self { node: member.id, address: member.address.clone() }).collect()
    }
}

/// The directory `cluster` of a data directory, with the node's identity, certificates and keys.
#[derive(Debug, Clone)]
pub(super) struct ClusterDirectory {
    dir: PathBuf,
}

impl ClusterDirectory {
    pub(super) fn of(data_dir: &Path) -> ClusterDirectory {
        ClusterDirectory { dir: data_dir.join("cluster") }
    }

    /// The directory for the agreed state. A node without a cluster uses the same directory.
    pub(super) fn control_dir(data_dir: &Path) -> PathBuf {
        data_dir.join("control")
    }

    /// The directory for the tasks.
    pub(super) fn tasks_dir(data_dir: &Path) -> PathBuf {
        data_dir.join("tasks")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Reads `identity.json`; `None` if the file does not exist.
    pub(super) fn identity(&self) -> Result<Option<NodeIdentity>, ClusterError> {
        let path = self.path("identity.json");
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(ClusterError::io(format!("cannot read {}", path.display())))?,
        };
        #[derive(Deserialize)]
        struct Format {
            format: u32,
            release: String,
        }
        let damaged = |why: String| {
            ClusterError::Files(format!(
                "{}: {why}. Restore the file from a backup; or remove the node from the cluster, empty its data directory, and let it join \
                 anew",
                path.display()
            ))
        };
        let text = String::from_utf8(text).map_err(|error| damaged(error.to_string()))?;
        let is_sealed = sealed::check(&text).map_err(damaged)?;
        let parsed = serde_json::from_str(&text);
        let Format { format, release } = parsed.map_err(|error| damaged(error.to_string()))?;
        if format > FORMAT {
            return Err(ClusterError::Files(format!(
                "{} was written by dunlin {release}, but this older dunlin {} cannot read its format \
                 ({format}, not {FORMAT}): run dunlin {release} or a later release",
                path.display(),
                super::RELEASE
            )));
        }
        let identity: NodeIdentity =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if !is_sealed && !identity.has_all_entries(&text) {
            // The file has unknown entries and no checksum. Either an old release without checksums wrote it, or its
            // entry `checksum` has a damaged name.
            return Err(damaged("the file is damaged: its checksum is missing".to_owned()));
        }
        Ok(Some(identity))
    }

    pub(super) fn write_identity(&self, identity: &NodeIdentity) -> Result<(), ClusterError> {
        let text = serde_json::to_string_pretty(identity).map_err(io::Error::other);
        let text = text.map_err(ClusterError::io("cannot write identity.json"))?;
        self.write("identity.json", sealed::seal(&text).as_bytes(), PUBLIC)
    }

    pub(super) fn authority(&self, cluster: &str) -> Result<CertificateAuthority, ClusterError> {
        Ok(CertificateAuthority::from_pem(cluster, self.read("ca.pem")?, self.read("ca-key.pem")?))
    }

    pub(super) fn write_authority(&self, authority: &CertificateAuthority) -> Result<(), ClusterError> {
        self.write("ca-key.pem", authority.key_pem.as_bytes(), SECRET)?;
        self.write("ca.pem", authority.cert_pem.as_bytes(), PUBLIC)
    }

    pub(super) fn write_certificate(&self, cert_pem: &str, key_pem: &str) -> Result<(), ClusterError> {
        self.write("node-key.pem", key_pem.as_bytes(), SECRET)?;
        self.write("node.pem", cert_pem.as_bytes(), PUBLIC)
    }

    pub(super) fn members(&self) -> Vec<KnownMember> {
        let read = fs::read(self.path("members.json")).ok();
        read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub(super) fn write_members(&self, members: &[KnownMember]) -> Result<(), ClusterError> {
        self.write("members.json", &serde_json::to_vec(members).unwrap_or_default(), PUBLIC)
    }

    pub(super) fn read(&self, name: &str) -> Result<String, ClusterError> {
        let path = self.path(name);
        fs::read_to_string(&path).map_err(ClusterError::io(format!("cannot read {}", path.display())))
    }

    fn write(&self, name: &str, content: &[u8], mode: u32) -> Result<(), ClusterError> {
        let path = self.path(name);
        let temporary = self.path(&format!("{name}.new"));
        let write = || {
            fs::create_dir_all(&self.dir)?;
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(ClusterError::io(format!("cannot write {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn node_identity_counts_all_node_starts_and_lists_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let files = ClusterDirectory::of(dir.path());
        assert_eq!(files.identity().unwrap(), None);
        let first = NodeIdentity::new("c0ffee", 3, "a:1").unwrap();
        files.write_identity(&first).unwrap();
        let again = files.identity().unwrap().unwrap().next_start("b:2").unwrap();
        assert_eq!((again.now.number, again.before.as_ref(), &*again.address), (2, Some(&first.now), "b:2"));
        assert_ne!(again.now.mark, first.now.mark);
        let third = again.clone().next_start("b:2").unwrap();
        assert_eq!(third.lineage(), [third.now.clone(), again.now, first.now]);
        let long = (0..2 * LINEAGE_MAX).try_fold(third, |last, _| last.next_start("b:2")).unwrap();
        assert_eq!(long.lineage().len(), LINEAGE_MAX);
    }

    #[test]
    fn identity_file_with_a_flipped_bit_or_cut_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = ClusterDirectory::of(dir.path());
        let mut identity = NodeIdentity::first("c0ffee", 3, "a:1").unwrap();
        for _ in 0..3 {
            identity = identity.next_start("a:1").unwrap();
        }
        files.write_identity(&identity).unwrap();
        let whole = fs::read(files.path("identity.json")).unwrap();
        assert_eq!(files.identity().unwrap(), Some(identity));
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            fs::write(files.path("identity.json"), damaged).unwrap();
            let refused = files.identity().map_err(|error| error.to_string());
            let names_file = |why: &String| why.contains("identity.json");
            assert!(refused.as_ref().is_err_and(names_file), "byte {at}, bit {bit}: {refused:?}");
        }
        for cut in 0..whole.len() {
            fs::write(files.path("identity.json"), &whole[..cut]).unwrap();
            assert!(files.identity().is_err(), "cut after {cut}");
        }
    }

    #[test]
    fn identity_file_of_an_older_build_is_read_without_a_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let files = ClusterDirectory::of(dir.path());
        let identity = NodeIdentity::new("c0ffee", 3, "a:1").unwrap();
        let text = serde_json::to_string_pretty(&identity).unwrap();
        files.write("identity.json", text.as_bytes(), PUBLIC).unwrap();
        assert_eq!(files.identity().unwrap(), Some(identity));
    }

    #[test]
    fn error_for_a_newer_identity_file_names_the_needed_release() {
        let dir = tempfile::tempdir().unwrap();
        let files = ClusterDirectory::of(dir.path());
        files.write("identity.json", br#"{"format": 9, "release": "7.0.0"}"#, PUBLIC).unwrap();
        let refused = files.identity().unwrap_err().to_string();
        assert!(refused.contains("dunlin 7.0.0"), "{refused}");
        files.write("identity.json", b"{", PUBLIC).unwrap();
        assert!(files.identity().unwrap_err().to_string().contains("join anew"));
    }

    #[test]
    fn private_key_file_is_readable_only_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let files = ClusterDirectory::of(dir.path());
        files.write_certificate("cert", "key").unwrap();
        let mode = fs::metadata(files.path("node-key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, SECRET);
    }
}

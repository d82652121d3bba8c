//! Reads a group's members from the files in a node's directory. The node need not be running.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Disk, Reader, ScanItem, lacks_resource};
use openraft::EntryPayload;

use crate::codec::ValueCodec;
use crate::frames::payloads;
use crate::log::LogOperation;
use crate::network::RaftMember;
use crate::snapshots::SnapshotRecord;
use crate::type_config::Membership;

/// Returns the voters and learners of the newest membership in a group's directory, even if that membership is not
/// committed. Returns an empty list if the directory contains no membership. This function only reads, so another
/// process may use the directory at the same time.
pub fn members_on_disk(disk: &Arc<dyn Disk>, dir: &Path) -> io::Result<Vec<RaftMember>> {
    let mut newest: Option<(u64, Membership)> = None;
    let mut consider = |index: u64, membership: Membership| {
        if newest.as_ref().is_none_or(|(known, _)| *known <= index) {
            newest = Some((index, membership));
        }
    };
    each_record(disk, &dir.join("snapshots"), |mut record| {
        if let SnapshotRecord::Begin(meta) = ValueCodec::read(&mut record)? {
            let stored = meta.last_membership;
            consider(stored.log_id().as_ref().map_or(0, |id| id.index), stored.membership().clone());
        }
        Ok(())
    })?;
    each_record(disk, &dir.join("log"), |mut record| {
        if let LogOperation::Append(entry) = ValueCodec::read(&mut record)?
            && let EntryPayload::Membership(membership) = entry.payload
        {
            consider(entry.log_id.index, membership);
        }
        Ok(())
    })?;
    let Some((_, membership)) = newest else { return Ok(Vec::new()) };
    let member =
        |(id, node): (&u64, &openraft::BasicNode)| RaftMember { id: *id, address: node.addr.clone() };
    Ok(membership.nodes().map(member).collect())
}

fn each_record(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    mut handle: impl FnMut(Bytes) -> io::Result<()>,
) -> io::Result<()> {
    match disk.list(dir) {
        Ok(files) if !files.is_empty() => {}
        Err(error) if lacks_resource(&error) => return Err(error),
        _ => return Ok(()),
    }
    let reader = match Reader::open(Arc::clone(disk), dir) {
        // The directory exists, but contains no log yet.
        Err(dunlin_journal::OpenError::NoLog(_)) => return Ok(()),
        opened => opened.map_err(io::Error::other)?,
    };
    let Some(oldest) = reader.oldest() else { return Ok(()) };
    let mut scan = reader.scan(oldest);
    while let Some(item) = scan.next().map_err(io::Error::other)? {
        if let ScanItem::Records(records) = item {
            payloads(&records).try_for_each(|(_, record)| handle(record))?;
        }
    }
    Ok(())
}

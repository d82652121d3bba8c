//! The frames that the runners of a world's processes send each other.
//!
//! ```text
//!  0         4      5
//!  +---------+------+----------------------+
//!  | length  | kind | payload              |     length: bytes of kind and payload; all numbers are little-endian
//!  | u32     | u8   |                      |
//!  +---------+------+----------------------+
//!   1 hello     see `hello`; each side's first frame
//!   2 refused   text                 the reason; the sender's last frame
//!   3 turn      tick u64, time u64     begins the sender's messages of one turn; time: the sender's monotonic clock
//!   4 message   to u32, bytes          for a region
//!   5 region    region u32, epoch u64  the sender runs this region from now on
//!   6 ended     region u32             the sender stopped running this region
//!   7 settled   step u64               in lock-step: the sender has completed this step (see `lockstep`)
//!   8 follow    region u32, fed u8     the sender is a standby for a region of the receiver; fed: 1 if the sender's
//!                                    copy receives all changes, 0 if it needs the whole state
//!   9 snapshot  region u32, records u64, bytes         the region's whole state, with which the standby begins its
//!                                                      copy; it contains the changes of this number of records
//!  10 record    region u32, bytes      a change of the region
//!  11 progress  region u32, entries u64, tick u64, records u64    the standby has applied the region's changes up to
//!                                                                 these entries, this tick and this record
//!  12 ping
//!  13 load      bytes                  the load of one of the sender's regions
//!  14 partition bytes                  the new partition of the world into regions, as stored in the cluster
//!  15 proof     bytes                  see `secret`; the response to a hello
//!  16 id query  number u64, ids u64 each   a query: which of these ids does the receiver have?
//!  17 id reply  number u64, bytes      the response to an id query: the number of the sender's regions u32, each
//!                                      region u32; then for each id that the sender has: id u64, region u32,
//!                                      flags u8 (1: the entity was just spawned; 2: it is being handed over to the
//!                                      region)
//! ```

use dunlin::space::{RegionId, StandbyProgress};

use super::error::RunnerRefusal;

/// Number of bytes of the fields `length` and `kind` together.
const HEAD: usize = 5;

/// A frame that one runner sends to another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpaceFrame<'a> {
    Hello(&'a [u8]),
    Refused(&'a str),
    Turn { tick: u64, time_ns: u64 },
    Message { to: RegionId, bytes: &'a [u8] },
    Region { region: RegionId, epoch: u64 },
    RegionEnded(RegionId),
    Settled(u64),
    Follow { region: RegionId, is_fed: bool },
    Snapshot { region: RegionId, records: u64, bytes: &'a [u8] },
    Record { region: RegionId, bytes: &'a [u8] },
    Progress { region: RegionId, progress: StandbyProgress },
    Ping,
    LoadReport(&'a [u8]),
    Partition(&'a [u8]),
    Proof(&'a [u8]),
    IdQuery { number: u64, ids: &'a [u8] },
    IdResponse { number: u64, bytes: &'a [u8] },
}

impl SpaceFrame<'_> {
    /// Appends the frame's bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, head, body) = self.parts();
        out.extend_from_slice(&((1 + head.bytes().len() + body.len()) as u32).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(head.bytes());
        out.extend_from_slice(body);
    }

    /// Appends the bytes of the frame that precede its body. The body is sent separately and has `body_bytes` bytes.
    pub(super) fn encode_head(&self, body_bytes: usize, out: &mut Vec<u8>) {
        let (kind, head, body) = self.parts();
        debug_assert!(body.is_empty(), "it has a body of its own");
        out.extend_from_slice(&((1 + head.bytes().len() + body_bytes) as u32).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(head.bytes());
    }

    fn parts(&self) -> (u8, Head, &[u8]) {
        let head = Head::default();
        match self {
            SpaceFrame::Hello(bytes) => (1, head, bytes),
            SpaceFrame::Refused(text) => (2, head, text.as_bytes()),
            SpaceFrame::Turn { tick, time_ns } => (3, head.u64(*tick).u64(*time_ns), &[]),
            SpaceFrame::Message { to, bytes } => (4, head.u32(to.0), bytes),
            SpaceFrame::Region { region, epoch } => (5, head.u32(region.0).u64(*epoch), &[]),
            SpaceFrame::RegionEnded(region) => (6, head.u32(region.0), &[]),
            SpaceFrame::Settled(tick) => (7, head.u64(*tick), &[]),
            SpaceFrame::Follow { region, is_fed } => (8, head.u32(region.0).put(&[u8::from(*is_fed)]), &[]),
            SpaceFrame::Snapshot { region, records, bytes } => (9, head.u32(region.0).u64(*records), bytes),
            SpaceFrame::Record { region, bytes } => (10, head.u32(region.0), bytes),
            SpaceFrame::Progress { region, progress } => {
                let StandbyProgress { entries, tick, records } = *progress;
                (11, head.u32(region.0).u64(entries).u64(tick).u64(records), &[])
            }
            SpaceFrame::Ping => (12, head, &[]),
            SpaceFrame::LoadReport(bytes) => (13, head, bytes),
            SpaceFrame::Partition(bytes) => (14, head, bytes),
            SpaceFrame::Proof(bytes) => (15, head, bytes),
            SpaceFrame::IdQuery { number, ids } => (16, head.u64(*number), ids),
            SpaceFrame::IdResponse { number, bytes } => (17, head.u64(*number), bytes),
        }
    }

    /// Decodes the first frame in `bytes`. Returns the frame and its length, or `None` if the frame is incomplete.
    /// Fails if kind and payload of the frame have more than `max` bytes.
    pub(super) fn decode(bytes: &[u8], max: usize) -> Result<Option<(SpaceFrame<'_>, usize)>, RunnerRefusal> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > max {
            return Err(RunnerRefusal::Frame("a frame has an invalid length"));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let (kind, mut body) = (frame[0], FieldReader(&frame[1..]));
        let frame = match kind {
            1 => SpaceFrame::Hello(body.rest()),
            2 => SpaceFrame::Refused(str::from_utf8(body.rest()).map_err(|_| SHORT)?),
            3 => SpaceFrame::Turn { tick: body.u64()?, time_ns: body.u64()? },
            4 => SpaceFrame::Message { to: body.region()?, bytes: body.rest() },
            5 => SpaceFrame::Region { region: body.region()?, epoch: body.u64()? },
            6 => SpaceFrame::RegionEnded(body.region()?),
            7 => SpaceFrame::Settled(body.u64()?),
            8 => SpaceFrame::Follow { region: body.region()?, is_fed: body.take::<1>()? != [0_u8] },
            9 => SpaceFrame::Snapshot { region: body.region()?, records: body.u64()?, bytes: body.rest() },
            10 => SpaceFrame::Record { region: body.region()?, bytes: body.rest() },
            11 => {
                let region = body.region()?;
                let progress =
                    StandbyProgress { entries: body.u64()?, tick: body.u64()?, records: body.u64()? };
                SpaceFrame::Progress { region, progress }
            }
            12 => SpaceFrame::Ping,
            13 => SpaceFrame::LoadReport(body.rest()),
            14 => SpaceFrame::Partition(body.rest()),
            15 => SpaceFrame::Proof(body.rest()),
            16 => SpaceFrame::IdQuery { number: body.u64()?, ids: body.rest() },
            17 => SpaceFrame::IdResponse { number: body.u64()?, bytes: body.rest() },
            _ => return Err(RunnerRefusal::Frame("a frame has an unknown kind")),
        };
        if body.0.is_empty() { Ok(Some((frame, HEAD - 1 + length))) } else { Err(SHORT) }
    }
}

const SHORT: RunnerRefusal = RunnerRefusal::Frame("the frame's length does not match its content");

/// The encoded numbers that precede a frame's body.
#[derive(Default)]
struct Head {
    bytes: [u8; 28],
    len: usize,
}

impl Head {
    fn u32(self, number: u32) -> Head {
        self.put(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Head {
        self.put(&number.to_le_bytes())
    }

    fn put(mut self, bytes: &[u8]) -> Head {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads fields one after another. Contains the bytes that were not read yet.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], RunnerRefusal> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn u16(&mut self) -> Result<u16, RunnerRefusal> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RunnerRefusal> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn region(&mut self) -> Result<RegionId, RunnerRefusal> {
        self.take().map(u32::from_le_bytes).map(RegionId)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], RunnerRefusal> {
        let (field, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(field)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_world_frame_is_not_decoded() {
        let region = RegionId(7);
        let frames = [
            SpaceFrame::Hello(b"hello"),
            SpaceFrame::Refused("no"),
            SpaceFrame::Turn { tick: 3, time_ns: u64::MAX },
            SpaceFrame::Message { to: region, bytes: &[1, 2, 3] },
            SpaceFrame::Region { region, epoch: 9 },
            SpaceFrame::RegionEnded(region),
            SpaceFrame::Settled(5),
            SpaceFrame::Follow { region, is_fed: true },
            SpaceFrame::Snapshot { region, records: 8, bytes: &[4; 100] },
            SpaceFrame::Record { region, bytes: &[] },
            SpaceFrame::Progress { region, progress: StandbyProgress { entries: 1, tick: 2, records: 3 } },
            SpaceFrame::Ping,
            SpaceFrame::LoadReport(&[6]),
            SpaceFrame::Partition(&[7, 8]),
            SpaceFrame::Proof(&[9; 32]),
            SpaceFrame::IdQuery { number: 3, ids: &[1; 8] },
            SpaceFrame::IdResponse { number: 4, bytes: &[] },
        ];
        for frame in &frames {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for part in 0..bytes.len() {
                assert_eq!(SpaceFrame::decode(&bytes[..part], 1_000), Ok(None));
            }
            let length = bytes.len();
            bytes.push(0xff);
            let (read, taken) = SpaceFrame::decode(&bytes, 1_000).unwrap().unwrap();
            assert_eq!((&read, taken), (frame, length));
        }
    }

    #[test]
    fn invalid_world_frame_is_refused() {
        for bytes in [&[0, 0, 0, 0][..], &[255, 255, 255, 255, 4], &[1, 0, 0, 0, 99], &[2, 0, 0, 0, 7, 1]] {
            assert!(matches!(SpaceFrame::decode(bytes, 1_000), Err(RunnerRefusal::Frame(_))), "{bytes:?}");
        }
        assert!(matches!(
            SpaceFrame::decode(&[10, 0, 0, 0, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1], 1_000),
            Err(RunnerRefusal::Frame(_))
        ));
    }
}

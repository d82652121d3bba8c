//! The first message on a connection between runners, which each side sends: the hello.
//!
//! ```text
//!  magic    "dunlinSP"
//!  version  u16
//!  process  u64
//!  setup    u64
//!  world    length u16, name in UTF-8
//!  regions  count u16, then of each region: number u32, epoch u64
//!  nonce    32 bytes
//! ```
//! The nonce is random and new for each connection. A peer is admitted after it has proved that it knows the world's
//! secret (`secret`). The fields `magic` and `version` come first in every version of the protocol. A peer with another
//! version, world or setup is refused and receives the reason.

use dunlin::space::{ComponentKind, Partition, RegionId, RegionSetup};

use super::error::RunnerRefusal;
use super::frame::FieldReader;

/// The version of the protocol that runners speak with each other.
pub const VERSION: u16 = 6;

const NONCE_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"dunlinSP";

/// The identity of a world: its name, and a hash of its setup. Two processes compare their identities when they
/// connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldIdentity {
    /// The world's name.
    pub name: String,
    /// Hash of the settings that must be the same in all processes.
    pub setup: u64,
}

impl WorldIdentity {
    /// Computes the identity of a world from its name, and from the settings that must be the same in all processes.
    pub fn of<const D: usize>(
        name: &str,
        setup: &RegionSetup<D>,
        partition: &Partition,
        lockstep: bool,
    ) -> Self {
        let mut hash = Hash::new();
        hash.add(&[D as u8, u8::from(lockstep)]);
        for coordinate in setup.world.min().iter().chain(&setup.world.max()).chain(&[setup.strip]) {
            hash.add(&coordinate.to_le_bytes());
        }
        for number in [setup.tick_ns, setup.seed, u64::from(setup.ghosts_every)] {
            hash.add(&number.to_le_bytes());
        }
        for component in setup.schema.components() {
            hash.add(component.name.as_bytes());
            hash.add(&[0, u8::from(component.kind == ComponentKind::F32)]);
            hash.add(&component.kind.size().to_le_bytes());
        }
        // Hashes only the numbers of the partition's regions, because the regions' sizes may change while processes
        // run.
        for (_, region) in partition.regions() {
            hash.add(&region.0.to_le_bytes());
        }
        WorldIdentity { name: name.to_owned(), setup: hash.0 }
    }
}

/// Computes the FNV-1a hash with 64 bits.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The FNV-1a hash of these bytes.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = Hash::new();
    hash.add(bytes);
    hash.0
}

/// The hello of one side of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunnerHello {
    pub(super) process: u64,
    pub(super) world: WorldIdentity,
    /// The regions that run at this side, each with its epoch.
    pub(super) regions: Vec<(RegionId, u64)>,
}

impl RunnerHello {
    pub(super) fn encode(&self, nonce: &[u8; NONCE_BYTES]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.process.to_le_bytes());
        out.extend_from_slice(&self.world.setup.to_le_bytes());
        let name = &self.world.name.as_bytes()[..self.world.name.len().min(usize::from(u16::MAX))];
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name);
        let regions = &self.regions[..self.regions.len().min(usize::from(u16::MAX))];
        out.extend_from_slice(&(regions.len() as u16).to_le_bytes());
        for (region, epoch) in regions {
            out.extend_from_slice(&region.0.to_le_bytes());
            out.extend_from_slice(&epoch.to_le_bytes());
        }
        out.extend_from_slice(nonce);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<RunnerHello, RunnerRefusal> {
        let mut body = FieldReader(bytes);
        if body.take::<8>() != Ok(*MAGIC) {
            return Err(RunnerRefusal::Stranger);
        }
        let theirs = body.u16()?;
        if theirs != VERSION {
            return Err(RunnerRefusal::Version { theirs, ours: VERSION });
        }
        let (process, setup) = (body.u64()?, body.u64()?);
        let length = usize::from(body.u16()?);
        let name = String::from_utf8_lossy(body.bytes(length)?).into_owned();
        let count = body.u16()?;
        let regions =
            (0..count).map(|_| Ok((body.region()?, body.u64()?))).collect::<Result<_, RunnerRefusal>>()?;
        body.take::<NONCE_BYTES>()?;
        Ok(RunnerHello { process, world: WorldIdentity { name, setup }, regions })
    }

    /// Checks whether this process may connect to the process that has sent the hello `theirs`.
    pub(super) fn check(&self, theirs: &RunnerHello) -> Result<(), RunnerRefusal> {
        if theirs.world.name != self.world.name {
            let (theirs, ours) = (theirs.world.name.clone(), self.world.name.clone());
            return Err(RunnerRefusal::World { theirs, ours });
        }
        if theirs.world.setup != self.world.setup {
            return Err(RunnerRefusal::Setup(self.world.name.clone()));
        }
        if theirs.process == self.process {
            return Err(RunnerRefusal::Number(self.process));
        }
        for (region, epoch) in &theirs.regions {
            let ours = self.regions.iter().find(|(own, _)| own == region).map(|(_, epoch)| *epoch);
            if let Some(ours) = ours.filter(|ours| ours >= epoch) {
                return Err(RunnerRefusal::Region { region: *region, epoch: *epoch, ours });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> RunnerHello {
        let world = WorldIdentity { name: "flock".to_owned(), setup: 5 };
        RunnerHello { process: 3, world, regions: vec![(RegionId(1), 4), (RegionId(2), 1)] }
    }

    #[test]
    fn hello_message_of_a_world_process_is_read_back_as_written() {
        assert_eq!(RunnerHello::decode(&hello().encode(&[5; 32])), Ok(hello()));
        assert_eq!(RunnerHello::decode(b"GET / HTTP/1.1"), Err(RunnerRefusal::Stranger));
        let mut newer = hello().encode(&[5; 32]);
        let theirs = VERSION + 1;
        newer[8..10].copy_from_slice(&theirs.to_le_bytes());
        assert_eq!(RunnerHello::decode(&newer[..12]), Err(RunnerRefusal::Version { theirs, ours: VERSION }));
    }

    #[test]
    fn hello_message_for_another_world_or_a_local_region_is_refused() {
        let other = |change: fn(&mut RunnerHello)| {
            let mut other = RunnerHello { process: 4, regions: vec![(RegionId(9), 1)], ..hello() };
            change(&mut other);
            hello().check(&other)
        };
        assert_eq!(other(|_| {}), Ok(()));
        assert!(matches!(
            other(|hello| hello.world.name = "fish".to_owned()),
            Err(RunnerRefusal::World { .. })
        ));
        assert!(matches!(other(|hello| hello.world.setup = 6), Err(RunnerRefusal::Setup(_))));
        assert_eq!(other(|hello| hello.process = 3), Err(RunnerRefusal::Number(3)));
        let claims = |hello: &mut RunnerHello| hello.regions = vec![(RegionId(1), 4)];
        assert_eq!(other(claims), Err(RunnerRefusal::Region { region: RegionId(1), epoch: 4, ours: 4 }));
        assert_eq!(other(|hello| hello.regions = vec![(RegionId(1), 5)]), Ok(()), "it took over");
    }
}

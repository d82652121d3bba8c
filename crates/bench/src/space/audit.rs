//! Checks that no entity was lost, duplicated or changed. For this, compares the entities of all workers with those of
//! a single region that has run equally many ticks.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use dunlin::space::{Lockstep, RegionId};

use super::node::WorldCommand;
use super::workers::WorldProcesses;
use crate::sockets::unused_path;

/// An entity's id, its generation and the hash of its state.
type EntityLine = (u64, u64, u64);

/// Checks that every entity exists exactly once. For worlds in lock-step, also runs the same ticks with a single
/// region, and checks that each entity has the same state hash there as in the workers.
pub fn check(workers: &mut WorldProcesses) -> Result<()> {
    let all = collect_entities(workers)?;
    let setting = workers.setting;
    let ids = all.iter().map(|line| (line.0, line.1));
    ensure!(
        ids.eq((0..setting.entities).map(|id| (id, u64::from(setting.entity(id).generation)))),
        "found {} of {} entities, or found an entity twice or in another generation",
        all.len(),
        setting.entities
    );
    if setting.lockstep {
        let expected = simulate_single_region(workers)?;
        let different = all.iter().zip(&expected).filter(|(left, right)| left != right).count();
        ensure!(
            different == 0,
            "{different} of {} entities differ from a run with a single region",
            all.len()
        );
    }
    Ok(())
}

fn simulate_single_region(workers: &WorldProcesses) -> Result<Vec<EntityLine>> {
    let setting = workers.setting;
    let mut lockstep = Lockstep::new(&setting.setup(RegionId(0)), &setting.movement, 1);
    for nth in 0..setting.entities {
        lockstep.spawn(&setting.entity(nth))?;
    }
    for _ in 0..workers.ticks {
        lockstep.tick()?;
        drop(lockstep.take_records());
    }
    Ok(lockstep.ledger().into_iter().map(|(id, generation, hash)| (id.0, generation.into(), hash)).collect())
}

fn collect_entities(workers: &mut WorldProcesses) -> Result<Vec<EntityLine>> {
    let mut all = Vec::new();
    for worker in 0..workers.setting.processes as usize {
        let path: PathBuf = unused_path("ledger");
        let written: Result<usize> = workers.send_to(worker, &WorldCommand::Ledger(path.clone()));
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
        // If the worker failed, the file does not exist.
        let _ = std::fs::remove_file(&path);
        let (written, bytes) = (written?, bytes?);
        let (lines, rest) = bytes.as_chunks::<24>();
        ensure!(lines.len() == written && rest.is_empty(), "a worker's list of entities is incomplete");
        let field = |line: &[u8; 24], at: usize| {
            u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| line[at * 8 + byte]))
        };
        all.extend(lines.iter().map(|line| (field(line, 0), field(line, 1), field(line, 2))));
    }
    all.sort_unstable();
    Ok(all)
}

//! Measures the task queues of other systems (peers): asynq and Celery on Redis, and HyperQueue. Each peer is started
//! as its documentation says.
//!
//! Redis syncs its log before each response (`appendfsync always`), as Dunlin's nodes do. HyperQueue does not store its
//! queue on disk.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dunlin_server::ReservedAddress;

use super::work::{TaskReport, TaskWorkload};
use crate::child::{Child, TIMEOUT};
use crate::control::peer::reserve_ports;
use crate::point::{BenchContext, target};
use crate::scratch_disk::ScratchDisk;

/// Measures a peer. `work` should contain the number of processes or threads with which the peer is fastest.
pub fn measure(bench: &BenchContext, target: &str, work: &TaskWorkload) -> Result<TaskReport> {
    let (program, mut args): (PathBuf, Vec<String>) = match target {
        target::ASYNQ => (bench.peers.program("asynq_load")?, Vec::new()),
        target::CELERY => python(bench, "celery_load.py")?,
        _ => python(bench, "hyperqueue_load.py")?,
    };
    let redis = match target {
        target::HYPERQUEUE => None,
        _ => Some(Redis::start(bench)?),
    };
    let endpoint = redis.as_ref().map(|redis| redis.endpoint.clone()).unwrap_or_default();
    args.push(serde_json::to_string(&TaskWorkload { endpoint, ..work.clone() })?);
    TaskReport::of(work, &mut bench.child.start_program(&program, &args)?)
}

fn python(bench: &BenchContext, name: &str) -> Result<(PathBuf, Vec<String>)> {
    let script = bench.peers.program(name)?;
    Ok((bench.peers.program("tasks_python/bin/python")?, vec![script.display().to_string()]))
}

/// A Redis server whose data is on a real disk. Dropping the value ends the server.
struct Redis {
    endpoint: String,
    _child: Child,
    _disk: ScratchDisk,
    _reserved: Vec<ReservedAddress>,
}

impl Redis {
    fn start(bench: &BenchContext) -> Result<Self> {
        let (program, disk) = (bench.peers.program("redis-server")?, ScratchDisk::new()?);
        let reserved = reserve_ports(1)?;
        let port = reserved[0].address().port().to_string();
        let dir = disk.path().display().to_string();
        let args = [
            ("--port", port.as_str()),
            ("--bind", "127.0.0.1"),
            ("--daemonize", "no"),
            ("--save", ""),
            ("--appendonly", "yes"),
            ("--appendfsync", "always"),
            ("--dir", &dir),
        ];
        let args: Vec<String> =
            args.iter().flat_map(|(name, value)| [*name, *value]).map(str::to_owned).collect();
        let mut child = bench.child.start_program(&program, &args)?;
        let endpoint = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(&endpoint).is_err() {
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("redis-server did not start{}", child.stderr_text());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { endpoint, _child: child, _disk: disk, _reserved: reserved })
    }
}

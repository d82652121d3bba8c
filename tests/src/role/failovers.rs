//! `failovers TRIES`: measures for how long a cluster of three nodes accepts no writes after its leader was killed. For
//! each try, prints the time from the kill to the first acknowledged write. At the end, prints the median, the 99th
//! percentile and the maximum of these times.
//!
//! Then prints the median, the 99th percentile and the maximum of the elections' durations. An election begins when a
//! node becomes a candidate, and ends when this node leads.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_server::cluster::ClusterClient;

use crate::port;
use crate::process::Process;

const NODES: usize = 3;
/// The pause before each kill.
const PAUSE: Duration = Duration::from_millis(700);

struct Member {
    process: Process,
    arguments: Vec<String>,
}

/// Runs the measurement. The first of the `arguments` is the number of tries.
pub fn run(arguments: &[String]) -> Result<()> {
    let tries: usize = arguments.first().context("the number of tries is missing")?.parse()?;
    let dir = std::env::temp_dir().join(format!("dunlin-failovers-{}", std::process::id()));
    let outcome = measure(&dir, tries);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

fn measure(dir: &Path, tries: usize) -> Result<()> {
    let mut members = start(dir)?;
    let client = ClusterClient::open(&dir.join("1"))?;
    let (mut writes, mut elections) = (Vec::new(), Vec::new());
    for number in 0..tries {
        std::thread::sleep(PAUSE);
        let leader = leader(&client)?;
        let killed = members.remove(leader);
        let (killed_at, Member { mut process, arguments }) = (Instant::now(), killed);
        process.kill();
        for member in &mut members {
            member.process.write_line(&format!("put key {number}"));
        }
        let took = wait_for_first(&mut members, &format!("put key {number} done"))?;
        let took = took.duration_since(killed_at);
        println!("{number} {:.1} ms", took.as_secs_f64() * 1e3);
        writes.push(took);
        let survey = client.survey();
        let statuses = survey.iter().filter_map(|node| node.status.as_ref().ok());
        let leaders = statuses.filter(|status| status.leader == Some(status.node));
        elections.extend(
            leaders.filter_map(|status| status.elections_us.last()).map(|us| Duration::from_micros(*us)),
        );
        members.insert(leader, start_member(arguments)?);
    }
    print("kill to first write", &mut writes);
    print("candidacy to leader", &mut elections);
    Ok(())
}

fn start(dir: &Path) -> Result<Vec<Member>> {
    let addresses: Vec<String> = (0..NODES).map(|_| port::free().to_string()).collect();
    let mut members = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        let data: PathBuf = dir.join((number + 1).to_string());
        std::fs::create_dir_all(&data)?;
        let mut arguments = vec!["member".to_owned(), data.display().to_string(), address.clone()];
        if number > 0 {
            let token = dir.join("token");
            let token_text = ClusterClient::open(&dir.join("1"))?.token(None, false)?;
            std::fs::write(&token, token_text.to_string())?;
            arguments.push(format!("join={}", addresses[0]));
            arguments.push(format!("token={}", token.display()));
        }
        members.push(start_member(arguments)?);
    }
    let client = ClusterClient::open(&dir.join("1"))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.survey().iter().filter_map(|node| node.status.as_ref().ok()).all(|s| s.voters.len() < NODES)
    {
        if Instant::now() > deadline {
            bail!("the nodes did not form a cluster");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(members)
}

fn start_member(arguments: Vec<String>) -> Result<Member> {
    let program = std::env::current_exe()?.display().to_string();
    let mut process = Process::start(&arguments[1], &program, &arguments);
    process.read_until("READY");
    Ok(Member { process, arguments })
}

/// Waits until all nodes agree on the leader. Returns the leader's index.
fn leader(client: &ClusterClient) -> Result<usize> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let survey = client.survey();
        let leaders: Vec<_> = survey.iter().filter_map(|node| node.status.as_ref().ok()?.leader).collect();
        let are_ready = survey.iter().all(|node| node.status.as_ref().is_ok_and(|s| s.missing.is_none()));
        if leaders.len() == NODES && are_ready && leaders.iter().all(|leader| *leader == leaders[0]) {
            return Ok(leaders[0] as usize - 1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the nodes do not agree on a leader: {:?}", client.survey())
}

fn wait_for_first(members: &mut [Member], expected: &str) -> Result<Instant> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        for member in &mut *members {
            if member.process.lines_so_far().iter().any(|line| line == expected) {
                return Ok(Instant::now());
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    bail!("no node printed {expected:?}")
}

fn print(what: &str, durations: &mut [Duration]) {
    durations.sort_unstable();
    let percentile = |share: f64| {
        let index = ((durations.len() as f64 * share).ceil() as usize).clamp(1, durations.len()) - 1;
        durations[index].as_secs_f64() * 1e3
    };
    if !durations.is_empty() {
        let average = durations.iter().sum::<Duration>().as_secs_f64() * 1e3 / durations.len() as f64;
        println!(
            "{what}: {} tries, median {:.1} ms, average {average:.1} ms, p99 {:.1} ms, maximum {:.1} ms",
            durations.len(),
            percentile(0.5),
            percentile(0.99),
            percentile(1.0)
        );
    }
}

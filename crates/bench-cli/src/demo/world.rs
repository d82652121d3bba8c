//! The command `demo --space`: a world with aircraft and a flock of birds, run by three processes. The demo kills and
//! restarts one of these processes. At the end, every entity must exist exactly once.
//!
//! The demo reads the topics of the regions, as any client can. The demo stops the ticks before it counts entities, so
//! that all regions are at one and the same tick. In `demo --together`, the world's processes connect to the demo's
//! cluster.

mod accounts;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dunlin_cli::commands::space::spec::{LoadedWorld, WorldSpec};
use dunlin_cli::commands::space::watch::Watcher;
use dunlin_cli::console::{Console, grouped};
use dunlin_cli::outcome::CommandRefusal;
use dunlin_cli::signals::StopFlag;
use dunlin_client::{Client, ClientOptions, Kv};
use serde_json::Value;

use accounts::{EntityCount, pairs};

const WORLD: &str = "demo";
const PROCESSES: usize = 3;
const RECORDING: &str = "aircraft-switzerland.json";
/// The distance in km up to which two aircraft count as a pair.
const NEAR_KM: f32 = 10.0;
/// The longest wait for any step of the demo. The time is long, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The number of output lines that are kept, over all processes of the world.
const OUTPUT_LINES_MAX: usize = 100;
/// How long the world runs before each event of the demo, such as a kill.
const SPAN: Duration = Duration::from_secs(4);

/// The last output lines of all processes of the world, for error messages.
type RecentOutput = Arc<Mutex<VecDeque<String>>>;

/// A process of the world. Dropping the value kills the process.
struct Member {
    child: Child,
    /// The number of the process in the world.
    process: u64,
    url: String,
}

impl Member {
    /// Starts a process and waits until it has printed that it is running.
    fn start(arguments: &[String], output: &RecentOutput) -> Result<Member> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("space").args(arguments).args(["--json", "--end-with-stdin", "--patience", "120s"]);
        // The process has its own process group, so Ctrl-C reaches only this process. This process then ends the
        // world's processes.
        command.process_group(0);
        command.env_remove("DUNLIN_URL").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a process of the world")?;
        let (sender, lines) = channel();
        let (output, id) = (Arc::clone(output), child.id());
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                    if output.len() >= OUTPUT_LINES_MAX {
                        output.pop_front();
                    }
                    output.push_back(format!("pid {id}: {line}"));
                    drop(output);
                    // The demo reads only the first line from the channel. Sending a later line fails if the receiver
                    // is already dropped.
                    let _ = sender.send(line);
                }
            });
        }
        let mut member = Member { child, process: 0, url: String::new() };
        let line = lines.recv_timeout(PATIENCE).context("a process of the world did not start")?;
        let started: Value = serde_json::from_str(&line).unwrap_or_default();
        ensure!(
            started["event"] == "started",
            "expected the event `started` from a process of the world, not {line}"
        );
        member.process = started["process"].as_u64().context("the event `started` has no process number")?;
        member.url = started["url"].as_str().context("the event `started` has no URL")?.to_owned();
        Ok(member)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // If the process has already ended, `kill` fails, and `wait` only collects the exit status.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A function that prints an event of the demo.
pub type Narrator<'a> = &'a dyn Fn(&str) -> Result<()>;

/// The options of `demo --space`: the directory of the recordings, the size of the flock, and the nodes.
#[derive(Debug)]
pub struct WorldDemoOptions<'a> {
    pub data: &'a Path,
    pub flock: u64,
    /// Whether to run the world without aircraft if the aircraft's recording is missing.
    pub without_aircraft: bool,
    /// The URLs of the cluster's nodes. If there are none, the world's first process runs its own node.
    pub nodes: &'a [String],
}

/// The running world of `demo --space`: its processes, and a watcher that reads all regions.
pub struct WorldDemo<'a> {
    world: &'a WorldDemoOptions<'a>,
    stop: &'a StopFlag,
    print: Narrator<'a>,
    members: Vec<Member>,
    kv: Kv,
    loaded: LoadedWorld,
    watcher: Watcher,
    /// When the watcher last read the regions' states without an error.
    last_response: Instant,
    output: RecentOutput,
    checks: usize,
}

pub fn run(
    data: &Path,
    flock: u64,
    without_aircraft: bool,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let began = Instant::now();
    let print = |text: &str| {
        let mut out = std::io::stdout();
        let at = began.elapsed().as_secs_f64();
        if console.json {
            writeln!(out, "{}", serde_json::json!({"at_s": at, "text": text}))?;
        } else {
            writeln!(out, "{at:6.1} s  {text}")?;
        }
        Ok(out.flush()?)
    };
    let world = WorldDemoOptions { data, flock, without_aircraft, nodes: &[] };
    let mut demo = world.start(stop, &print)?;
    demo.run_for(SPAN)?;
    demo.count_entities("after a while")?;
    demo.kill_and_restart()?;
    demo.run_for(SPAN)?;
    let summary = demo.close()?;
    print(&summary)
}

impl WorldDemoOptions<'_> {
    /// Starts the world's processes. Waits until all regions have owners, and until the demo has read the regions'
    /// states.
    pub fn start<'a>(&'a self, stop: &'a StopFlag, print: Narrator<'a>) -> Result<WorldDemo<'a>> {
        let recording = self.data.join(RECORDING);
        let aircraft = recording.is_file();
        if !aircraft && !self.without_aircraft {
            return Err(CommandRefusal(format!(
                "{} does not exist: `cargo xtask data` downloads it (with --allow-generated, the demo shows \
                 only birds)",
                recording.display()
            ))
            .into());
        }
        let mut run = vec!["run".to_owned(), WORLD.to_owned()];
        run.extend(["--processes", "3", "--flock"].map(str::to_owned));
        run.push(self.flock.to_string());
        if aircraft {
            run.extend(["--aircraft".to_owned(), recording.display().to_string()]);
        }
        if self.nodes.is_empty() {
            run.extend(["--listen", "127.0.0.1:0"].map(str::to_owned));
        }
        run.extend(self.connection_options(0));
        let output = RecentOutput::default();
        let first = Member::start(&run, &output)?;
        let url = if self.nodes.is_empty() { first.url.clone() } else { rotated_urls(self.nodes, 0) };
        let mut members = vec![first];
        for nth in 1..PROCESSES {
            members.push(retry(|| self.join(nth, &members[0], &output))?);
        }
        let client = Client::connect(
            &url,
            ClientOptions { name: "dunlin demo".to_owned(), ..ClientOptions::default() },
        )?;
        let kv = client.kv();
        let spec = WorldSpec::read(&kv, WORLD)?;
        let loaded = spec.load()?;
        let watcher = Watcher::of(&client, WORLD)?;
        let last_response = Instant::now();
        let mut demo = WorldDemo {
            world: self,
            stop,
            print,
            members,
            kv,
            loaded,
            watcher,
            last_response,
            output,
            checks: 0,
        };
        let all = demo.loaded.entities();
        print(&format!(
            "{PROCESSES} processes, {} aircraft and a flock of {} birds; `dunlin space watch {WORLD} --url {url}` shows them",
            grouped(all - self.flock),
            grouped(self.flock)
        ))?;
        demo.wait_until("all regions had owners and readable states", |demo| {
            demo.complete_regions() == PROCESSES
        })?;
        Ok(demo)
    }

    /// Returns the options for process `nth` of the world: the URLs of the nodes, and the time to live of the process's
    /// lease. Each process tries a different node first.
    fn connection_options(&self, nth: usize) -> Vec<String> {
        if self.nodes.is_empty() {
            return vec!["--ttl".to_owned(), "1s".to_owned()];
        }
        // With a cluster, the lease is longer: a process that loses its node must have enough time to connect to
        // another node before the lease ends.
        ["--url", &rotated_urls(self.nodes, nth), "--ttl", "5s"].map(str::to_owned).to_vec()
    }

    fn join(&self, nth: usize, first: &Member, output: &RecentOutput) -> Result<Member> {
        let mut arguments = vec!["join".to_owned(), WORLD.to_owned()];
        if self.nodes.is_empty() {
            arguments.extend(["--url".to_owned(), first.url.clone()]);
        }
        arguments.extend(self.connection_options(nth));
        Member::start(&arguments, output)
    }
}

/// Returns the URLs of all nodes, separated by commas, beginning with the URL at index `first`.
fn rotated_urls(urls: &[String], first: usize) -> String {
    let (before, from) = urls.split_at(first % urls.len());
    from.iter().chain(before).cloned().collect::<Vec<_>>().join(",")
}

/// Repeats a call until it succeeds, but gives up after [`PATIENCE`]. The caller must make sure that a repeated call
/// does no harm.
fn retry<T, E: Into<anyhow::Error>>(call: impl Fn() -> Result<T, E>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_unreachable) => std::thread::sleep(POLL_INTERVAL),
            Ok(done) => return Ok(done),
        }
    }
}

impl WorldDemo<'_> {
    /// Reads the latest states of all regions. If a node of the cluster is unreachable, waits and tries again later.
    fn refresh(&mut self) -> Result<()> {
        match self.watcher.refresh() {
            Ok(()) => self.last_response = Instant::now(),
            Err(error) if self.last_response.elapsed() > PATIENCE => return Err(error),
            Err(_unreachable) => {}
        }
        self.watcher.drain();
        Ok(())
    }

    /// Returns the number of regions that have an owner and a complete state.
    fn complete_regions(&self) -> usize {
        let owned = self.watcher.owned.iter().filter(|owned| owned.owner.is_some());
        owned.count().min(self.watcher.states().filter(|(_, state)| state.tick() > 0).count())
    }

    fn wait_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.refresh()?;
            if done(self) {
                return Ok(());
            }
            if self.stop.is_set() {
                bail!("the demo was stopped before {what}");
            }
            if Instant::now() > deadline {
                bail!("{PATIENCE:?} passed before {what}\n{}", self.describe_state());
            }
            self.stop.sleep(POLL_INTERVAL);
        }
    }

    /// Describes the world for error messages: the owner and the progress of each region, and the last output of the
    /// processes.
    fn describe_state(&self) -> String {
        let (ticks, mut text) = (self.ticks(), String::new());
        for owned in &self.watcher.owned {
            let tick = ticks.iter().find(|(region, _)| *region == owned.region).map(|(_, tick)| *tick);
            text += &format!("  {owned:?}, latest known tick: {tick:?}\n");
        }
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        text + &output.iter().map(|line| format!("  {line}\n")).collect::<String>()
    }

    /// Lets the world run for `span`. Checks during this time that the octree finds every pair of aircraft that are
    /// close to each other.
    pub fn run_for(&mut self, span: Duration) -> Result<()> {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.stop.is_set() {
            self.refresh()?;
            self.compare_pairs()?;
            self.stop.sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn compare_pairs(&mut self) -> Result<()> {
        let states = self.watcher.states().map(|(_, state)| state);
        let (found, all) = pairs(states, self.loaded.setup.world, NEAR_KM);
        self.checks += 1;
        if found != all {
            bail!("the octree finds {found} of {all} close pairs of aircraft");
        }
        Ok(())
    }

    fn ticks(&self) -> Vec<(u64, u64)> {
        self.watcher.states().map(|(region, state)| (region, state.tick())).collect()
    }

    /// Stops the ticks, counts all entities, and lets the ticks continue. Returns an error if an entity is lost,
    /// duplicated or unknown.
    pub fn count_entities(&mut self, when: &str) -> Result<EntityCount> {
        let key = format!("space/{WORLD}/hold/0");
        retry(|| self.kv.put(&key, b"1"))?;
        let (mut before, mut since) = (Vec::new(), Instant::now());
        self.wait_until("all ticks had stopped", |demo| {
            let now = demo.ticks();
            let states = demo.watcher.states().map(|(_, state)| state);
            let in_handover = EntityCount::of(states, std::iter::empty()).in_handover;
            if now != before || in_handover > 0 || demo.complete_regions() < PROCESSES {
                (before, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(600)
        })?;
        let accounts = EntityCount::of(self.watcher.states().map(|(_, state)| state), self.loaded.ids());
        if !accounts.is_correct() {
            bail!(
                "{when}: {} entities are lost ({:?} …), {} duplicated ({:?} …), {} unknown",
                accounts.lost.len(),
                &accounts.lost[..accounts.lost.len().min(5)],
                accounts.duplicated.len(),
                &accounts.duplicated[..accounts.duplicated.len().min(5)],
                accounts.unknown.len()
            );
        }
        (self.print)(&format!("{when}: {} entities, each in one region", grouped(accounts.found as u64)))?;
        retry(|| self.kv.delete(&key))?;
        Ok(accounts)
    }

    /// Sends SIGKILL to a process that owns a region. Waits until another process owns the region, and then starts a
    /// new process.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        // Without a cluster, the first process runs the node and must not be killed.
        let first = usize::from(self.world.nodes.is_empty());
        let owned = |process: u64, demo: &Self| {
            let owned = demo.watcher.owned.iter();
            owned.filter_map(|owned| Some((owned.region, owned.owner?))).find(|(_, owner)| owner.0 == process)
        };
        let chosen =
            (first..self.members.len()).find_map(|nth| Some((nth, owned(self.members[nth].process, self)?)));
        let (nth, (region, before)) = chosen.context("no process other than the first owns a region")?;
        let epoch = |demo: &Self| {
            let owned = demo.watcher.owned.iter().find(|owned| owned.region == region);
            owned.and_then(|owned| owned.owner)
        };
        // Dropping the handle kills the process and collects its exit status.
        drop(self.members.remove(nth));
        let killed = Instant::now();
        (self.print)(&format!("process {} is killed; it owned region {region}", before.0))?;
        self.wait_until("another process continued the region", |demo| {
            epoch(demo).is_some_and(|now| now.1 != before.1) && demo.complete_regions() == PROCESSES
        })?;
        let now = epoch(self).context("no process owns the region")?;
        (self.print)(&format!(
            "region {region} continues in process {}, in epoch {}, {:.1} s after the kill",
            now.0,
            now.1,
            killed.elapsed().as_secs_f64()
        ))?;
        self.count_entities("with two processes")?;
        // A node may be killed during this call, so the call is repeated if it fails.
        let member = retry(|| self.world.join(nth, &self.members[0], &self.output))?;
        let process = member.process;
        self.members.push(member);
        (self.print)(&format!("process {process} joins in place of the killed one"))?;
        self.wait_until("the new process owned a region", |demo| owned(process, demo).is_some())?;
        (self.print)(&format!("process {process} owns a region"))
    }

    /// Counts all entities once more. Returns a summary of the demo.
    pub fn close(&mut self) -> Result<String> {
        let accounts = self.count_entities("at the end")?;
        let handovers: u64 = self.watcher.states().map(|(_, state)| state.handover().counts().departed).sum();
        Ok(format!(
            "{} of {} entities accounted for: none lost, none duplicated; {} handovers by the regions' \
             present owners; the pairs of aircraft within {NEAR_KM} km were correct in {} checks",
            grouped(accounts.found as u64),
            grouped(self.loaded.entities()),
            grouped(handovers),
            self.checks
        ))
    }
}

//! `demo --space`: aircraft and a flock over three processes, one of which is killed and comes back; everybody is accounted for.
//!
//! The regions are followed from outside, through their topics, as any client may. Counted is while nobody makes ticks, so that
//! all regions are seen at one moment.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_client::{Client, Kv, Options};
use serde_json::Value;

use super::accounts::{Accounts, pairs};
use super::spec::{Made, Spec};
use super::watch::Watcher;
use crate::console::{Console, grouped};
use crate::outcome::Refusal;
use crate::signals::Stop;

const WORLD: &str = "demo";
const PROCESSES: usize = 3;
const RECORDING: &str = "aircraft-switzerland.json";
/// Aircraft closer than this are pairs.
const NEAR_KM: f32 = 10.0;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of processes that are kept.
const SAID_MAX: usize = 100;
/// How long it just goes on, between what happens.
const SPAN: Duration = Duration::from_secs(4);

/// What all processes of the world have said of late, for who asks why something does not happen.
type Said = Arc<Mutex<VecDeque<String>>>;

/// A process of the world; it ends with this.
struct Member {
    child: Child,
    lines: Receiver<Value>,
}

impl Member {
    fn start(arguments: &[String], said: &Said) -> Result<Member> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("space").args(arguments).args([
            "--json",
            "--end-with-stdin",
            "--ttl",
            "1s",
            "--patience",
            "120s",
        ]);
        command.env_remove("DUNLIN_URL").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a process of the world")?;
        let (sender, lines) = channel();
        let (said, id) = (Arc::clone(said), child.id());
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    if said.len() >= SAID_MAX {
                        said.pop_front();
                    }
                    said.push_back(format!("pid {id}: {line}"));
                    drop(said);
                    if serde_json::from_str(&line).is_ok_and(|line| sender.send(line).is_err()) {
                        return;
                    }
                }
            });
        }
        Ok(Member { child, lines })
    }

    fn started(&self) -> Result<Value> {
        let line = self.lines.recv_timeout(PATIENCE).context("a process of the world did not start")?;
        if line["event"] == "started" { Ok(line) } else { bail!("a process of the world said {line}") }
    }

    /// The regions that it has said it owns, and gave away, by now.
    fn told(&self) -> Vec<Value> {
        self.lines.try_iter().collect()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended; either way it is reaped here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Show<'a> {
    console: &'a Console,
    stop: &'a Stop,
    kv: Kv,
    made: Made,
    watcher: Watcher,
    said: Said,
    began: Instant,
    looks: usize,
}

pub fn run(data: &Path, flock: u64, without_aircraft: bool, console: &Console, stop: &Stop) -> Result<()> {
    let recording = data.join(RECORDING);
    let aircraft = recording.is_file();
    if !aircraft && !without_aircraft {
        return Err(Refusal(format!(
            "{} is not there: `cargo xtask data` fetches it (--allow-generated shows the flock alone)",
            recording.display()
        ))
        .into());
    }
    let mut run: Vec<String> =
        ["run", WORLD, "--processes", "3", "--listen", "127.0.0.1:0", "--flock"].map(str::to_owned).to_vec();
    run.push(flock.to_string());
    if aircraft {
        run.extend(["--aircraft".to_owned(), recording.display().to_string()]);
    }
    let said = Said::default();
    let first = Member::start(&run, &said)?;
    let started = first.started()?;
    let url = started["url"].as_str().context("a process did not say where it is")?.to_owned();
    let mut others: Vec<Member> = (1..PROCESSES).map(|_| joined(&url, &said)).collect::<Result<_>>()?;
    let client = Client::connect(&url, Options { name: "dunlin demo".to_owned(), ..Options::default() })?;
    let kv = client.kv();
    let spec = Spec::read(&kv, WORLD)?;
    let made = spec.make()?;
    let watcher = Watcher::new(kv.clone(), spec, made.setup.clone());
    let mut show = Show { console, stop, kv, made, watcher, said, began: Instant::now(), looks: 0 };
    let all = show.made.entities();
    show.say(&format!(
        "{} processes, {} aircraft and a flock of {}; `dunlin space watch {WORLD} --url {url}` shows them",
        PROCESSES,
        grouped(all - flock),
        grouped(flock)
    ))?;
    show.until("all regions are owned and followed", |show| show.whole() == PROCESSES)?;
    show.go_on(SPAN)?;
    show.count("after a while")?;
    let victim = others.remove(0);
    show.kill_and_come_back(victim, &url, &mut others)?;
    show.go_on(SPAN)?;
    let accounts = show.count("at the end")?;
    let handed: u64 = show.watcher.states().map(|(_, state)| state.handover().counts().departed).sum();
    show.say(&format!(
        "{} of {all} entities accounted for: none lost, none doubled; {} handed over by the owners of now, pairs of aircraft within {NEAR_KM} km right in {} looks",
        grouped(accounts.found as u64),
        grouped(handed),
        show.looks
    ))?;
    drop((first, others));
    Ok(())
}

fn joined(url: &str, said: &Said) -> Result<Member> {
    let arguments = ["join", WORLD, "--url", url].map(str::to_owned);
    let member = Member::start(&arguments, said)?;
    member.started()?;
    Ok(member)
}

impl Show<'_> {
    fn say(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout();
        let at = self.began.elapsed().as_secs_f64();
        if self.console.json {
            writeln!(out, "{}", serde_json::json!({"at_s": at, "text": text}))?;
        } else {
            writeln!(out, "{at:6.1} s  {text}")?;
        }
        Ok(out.flush()?)
    }

    /// Regions that are owned and known whole.
    fn whole(&self) -> usize {
        let owned = self.watcher.owned.iter().filter(|owned| owned.owner.is_some());
        owned.count().min(self.watcher.states().filter(|(_, state)| state.tick() > 0).count())
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.watcher.look()?;
            self.watcher.drain();
            if done(self) {
                return Ok(());
            }
            if self.stop.is_set() {
                bail!("ended before {what}");
            }
            if Instant::now() > deadline {
                bail!("it took more than {PATIENCE:?} until {what}\n{}", self.stands());
            }
            self.stop.sleep(Duration::from_millis(20));
        }
    }

    /// How it stands where something does not happen: whose each region is, how far it is known, what the processes said.
    fn stands(&self) -> String {
        let (ticks, mut text) = (self.ticks(), String::new());
        for owned in &self.watcher.owned {
            let tick = ticks.iter().find(|(region, _)| *region == owned.region).map(|(_, tick)| *tick);
            text += &format!("  {owned:?}, known to tick {tick:?}\n");
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        text + &said.iter().map(|line| format!("  {line}\n")).collect::<String>()
    }

    /// Lets it go on, and compares pairs of aircraft again and again.
    fn go_on(&mut self, span: Duration) -> Result<()> {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.stop.is_set() {
            self.watcher.look()?;
            self.watcher.drain();
            self.compare_pairs()?;
            self.stop.sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn compare_pairs(&mut self) -> Result<()> {
        let states = self.watcher.states().map(|(_, state)| state);
        let (found, all) = pairs(states, self.made.setup.world, NEAR_KM);
        self.looks += 1;
        if found != all {
            bail!("the octree finds {found} pairs of aircraft, there are {all}");
        }
        Ok(())
    }

    fn ticks(&self) -> Vec<(u64, u64)> {
        self.watcher.states().map(|(region, state)| (region, state.tick())).collect()
    }

    /// Everybody, while nobody makes ticks.
    fn count(&mut self, when: &str) -> Result<Accounts> {
        let key = format!("space/{WORLD}/hold/0");
        self.kv.put(&key, b"1")?;
        let (mut before, mut since) = (Vec::new(), Instant::now());
        self.until("the world stood still", |show| {
            let now = show.ticks();
            let states = show.watcher.states().map(|(_, state)| state);
            let under_way = Accounts::of(states, std::iter::empty()).under_way;
            if now != before || under_way > 0 || show.whole() < PROCESSES {
                (before, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(600)
        })?;
        let accounts = Accounts::of(self.watcher.states().map(|(_, state)| state), self.made.ids());
        if !accounts.are_right() {
            bail!(
                "{when}: {} are lost ({:?} …), {} doubled ({:?} …), {} strange",
                accounts.lost.len(),
                &accounts.lost[..accounts.lost.len().min(5)],
                accounts.doubled.len(),
                &accounts.doubled[..accounts.doubled.len().min(5)],
                accounts.strange.len()
            );
        }
        self.say(&format!("{when}: {} entities, each in one region", grouped(accounts.found as u64)))?;
        self.kv.delete(&key)?;
        Ok(accounts)
    }

    fn kill_and_come_back(&mut self, mut victim: Member, url: &str, others: &mut Vec<Member>) -> Result<()> {
        let owned: Vec<u64> = victim.told().iter().filter_map(|line| line["region"].as_u64()).collect();
        let region = owned.first().copied().context("the second process owns no region")?;
        let epoch = |show: &Self| {
            let owned = show.watcher.owned.iter().find(|owned| owned.region == region);
            owned.and_then(|owned| owned.owner)
        };
        let before = epoch(self).context("its region has no owner")?;
        let killed = Instant::now();
        victim.child.kill().context("cannot kill it")?;
        self.say(&format!("process {} is killed; it owned region {region}", before.0))?;
        self.until("the region went on", |show| {
            epoch(show).is_some_and(|now| now.1 != before.1) && show.whole() == PROCESSES
        })?;
        let now = epoch(self).context("its region has no owner")?;
        self.say(&format!(
            "region {region} goes on in process {}, in epoch {}, {:.1} s after the kill",
            now.0,
            now.1,
            killed.elapsed().as_secs_f64()
        ))?;
        self.count("with two processes")?;
        let back = joined(url, &self.said)?;
        self.say("it comes back")?;
        self.until("it owns a region again", |_| back.told().iter().any(|line| line["event"] == "owns"))?;
        self.say("it owns a region again")?;
        others.push(back);
        Ok(())
    }
}

//! Starts, drains and kills worker processes on this machine, as the autoscaler orders.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use dunlin_scale::{InstanceId, Provider, ProviderAction, ProviderEvent};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::lifecycle::{LifecycleEvent, ProcessSignal, WorkerLifecycle};

/// Environment variable for a worker process: the name under which the worker attaches.
const NAME: &str = "DUNLIN_WORKER_NAME";
/// Environment variable for a worker process. It makes the worker end when its standard input closes.
const END_WITH_STDIN: &str = "DUNLIN_END_WITH_STDIN";
/// Environment variable for a process of the warm pool. With this variable, the worker reports when it is prepared, and
/// attaches only after it was called.
const WARM: &str = "DUNLIN_WORKER_WARM";
/// The line that is sent to a process of the warm pool to call it.
const WORK: &[u8] = b"work\n";

/// The command that starts a worker process, with its environment and the prefix of the worker's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program and its arguments. They are not interpreted by a shell.
    pub words: Vec<String>,
    /// Environment variables for the process, in addition to those of this process. `DUNLIN_URL` must be one of them.
    pub environment: Vec<(String, String)>,
    /// The prefix of the workers' names. Workers that are started elsewhere must have another prefix.
    pub prefix: String,
}

/// Limits of a node's worker processes: their number, and times after which they are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkersLimits {
    /// Time limit for a worker to attach after it was started or called, and for a process of the warm pool to be
    /// prepared, ms.
    pub ready_ms_max: u64,
    /// A ready process is killed if no worker with its name is attached for this time, ms.
    pub silent_ms_max: u64,
    /// Maximum number of processes at the same time.
    pub processes_max: usize,
}

impl Default for WorkersLimits {
    fn default() -> WorkersLimits {
        WorkersLimits { ready_ms_max: 30_000, silent_ms_max: 30_000, processes_max: 10_000 }
    }
}

/// Runs worker processes on this machine. Dropping the value kills all of them.
#[derive(Debug)]
pub struct LocalWorkers {
    command: WorkerCommand,
    limits: WorkersLimits,
    processes: BTreeMap<InstanceId, Process>,
    events: Vec<ProviderEvent>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// The node's end of the socket whose other end is the worker's standard input.
    socket: UnixStream,
    lifecycle: WorkerLifecycle,
}

impl LocalWorkers {
    /// Creates a [`LocalWorkers`] that does not run any processes yet.
    pub fn new(command: WorkerCommand, limits: WorkersLimits) -> LocalWorkers {
        LocalWorkers { command, limits, processes: BTreeMap::new(), events: Vec::new() }
    }

    /// The number of processes that have not ended.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Remembers which workers are attached now. `names` are the workers' names.
    pub fn update_attached<'n>(&mut self, now_ms: u64, names: impl Iterator<Item = &'n str>) {
        let attached: Vec<InstanceId> = names.filter_map(|name| self.instance_of(name)).collect();
        for (instance, process) in &mut self.processes {
            let Some(event) = process.lifecycle.record_attached(now_ms, attached.contains(instance)) else {
                continue;
            };
            if event == LifecycleEvent::Failed {
                tracing::error!(
                    worker = *instance,
                    "a warm worker took tasks too early: its command ignores {WARM}"
                );
                process.send_signal(ProcessSignal::Kill);
            } else {
                tracing::info!(
                    worker = *instance,
                    pid = process.child.id(),
                    "a worker is attached to the node"
                );
            }
            self.events.push(provider_event(event, *instance));
        }
    }

    /// Remembers that it is unknown which workers are attached, because the scheduler cannot be read.
    pub fn mark_unknown(&mut self) {
        self.processes.values_mut().for_each(|process| process.lifecycle.record_unknown());
    }

    /// Returns the process whose worker has this name; `None` if this value runs no such process.
    pub fn instance_of(&self, name: &str) -> Option<InstanceId> {
        let instance = name.strip_prefix(&self.command.prefix)?.strip_prefix('-')?.parse().ok()?;
        self.processes.contains_key(&instance).then_some(instance)
    }

    /// All processes, each with its process id.
    pub fn process_ids(&self) -> impl Iterator<Item = (InstanceId, u32)> {
        self.processes.iter().map(|(instance, process)| (*instance, process.child.id()))
    }

    fn launch(&mut self, now_ms: u64, instance: InstanceId, is_warm: bool) {
        let result = match self.processes.len() < self.limits.processes_max {
            true => self.start(instance, is_warm),
            false => Err(io::Error::other(format!(
                "the limit of {} processes is reached",
                self.limits.processes_max
            ))),
        };
        match result {
            Ok((child, socket)) => {
                tracing::debug!(worker = instance, pid = child.id(), is_warm, "a worker's process starts");
                let deadline_ms = now_ms.saturating_add(self.limits.ready_ms_max);
                let lifecycle = if is_warm {
                    WorkerLifecycle::for_pool(deadline_ms)
                } else {
                    WorkerLifecycle::new(deadline_ms)
                };
                self.processes.insert(instance, Process { child, socket, lifecycle });
            }
            Err(error) => {
                let program = self.command.words.first().map_or("", String::as_str);
                tracing::error!(worker = instance, program, %error, "cannot start a worker");
                self.events.push(ProviderEvent::Failed { instance, is_capacity: false });
            }
        }
    }

    fn start(&self, instance: InstanceId, is_warm: bool) -> io::Result<(Child, UnixStream)> {
        let WorkerCommand { words, environment, prefix } = &self.command;
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        // A worker's standard output is redirected to standard error, because other programs may parse the standard
        // output of this process.
        let out = io::stderr().as_fd().try_clone_to_owned()?;
        let (socket, stdin) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().cloned());
        command.env(NAME, format!("{prefix}-{instance}")).env(END_WITH_STDIN, "1");
        command.env_remove(WARM).envs(is_warm.then_some((WARM, "1")));
        command.stdin(Stdio::from(OwnedFd::from(stdin))).stdout(out).process_group(0);
        Ok((command.spawn()?, socket))
    }

    fn wake(&mut self, now_ms: u64, instance: InstanceId) {
        let deadline_ms = now_ms.saturating_add(self.limits.ready_ms_max);
        let is_woken = self.processes.get_mut(&instance).is_some_and(|process| {
            // Writing fails if the process has just ended. `sweep` then removes it.
            process.lifecycle.wake(deadline_ms) && process.socket.write_all(WORK).is_ok()
        });
        if !is_woken {
            self.events.push(ProviderEvent::Failed { instance, is_capacity: false });
        }
    }

    fn sweep(&mut self, now_ms: u64) {
        let mut ended_instances = Vec::new();
        for (&instance, process) in &mut self.processes {
            if let Some(status) = process.ended() {
                let events = process.lifecycle.end_events();
                log_exit(instance, events, status);
                self.events.extend(events.iter().map(|event| provider_event(*event, instance)));
                ended_instances.push(instance);
                continue;
            }
            if process.lifecycle.is_preparing() && process.has_reported() {
                tracing::debug!(worker = instance, pid = process.child.id(), "a warm worker is prepared");
                process.lifecycle.set_prepared();
                self.events.push(provider_event(LifecycleEvent::Prepared, instance));
            }
            let (event, signal) = process.lifecycle.advance(now_ms, self.limits.silent_ms_max);
            if signal == ProcessSignal::Kill {
                tracing::warn!(
                    worker = instance,
                    pid = process.child.id(),
                    "the worker does not respond \
                     and is killed"
                );
            }
            process.send_signal(signal);
            self.events.extend(event.map(|event| provider_event(event, instance)));
        }
        ended_instances.iter().for_each(|instance| drop(self.processes.remove(instance)));
    }
}

fn log_exit(instance: InstanceId, events: &[LifecycleEvent], status: ExitStatus) {
    match events {
        [LifecycleEvent::Failed] => {
            tracing::error!(worker = instance, %status, "a worker's process ended before the worker was ready")
        }
        [LifecycleEvent::Gone] if !status.success() => {
            tracing::warn!(worker = instance, %status, "a worker's process ended")
        }
        _ => tracing::info!(worker = instance, %status, "a worker's process ended"),
    }
}

fn provider_event(event: LifecycleEvent, instance: InstanceId) -> ProviderEvent {
    match event {
        LifecycleEvent::Ready => ProviderEvent::Ready { instance },
        LifecycleEvent::Prepared => ProviderEvent::Prepared { instance },
        LifecycleEvent::Failed => ProviderEvent::Failed { instance, is_capacity: false },
        LifecycleEvent::Drained => ProviderEvent::Drained { instance },
        LifecycleEvent::Gone => ProviderEvent::Gone { instance },
    }
}

impl Process {
    /// Whether the process has written to its socket. A process writes only once, so the content does not matter.
    fn has_reported(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 64]), Ok(1..))
    }

    /// Returns the exit status if the process has ended. The rest of its process group is killed first, because the
    /// group's id cannot be reused before the exit status is read.
    fn ended(&mut self) -> Option<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))) {
            return None;
        }
        self.send_signal(ProcessSignal::Kill);
        self.child.wait().ok()
    }

    fn send_signal(&self, signal: ProcessSignal) {
        let pid = Pid::from_child(&self.child);
        let result = match signal {
            ProcessSignal::Nothing => Ok(()),
            ProcessSignal::Terminate => kill_process(pid, Signal::TERM),
            ProcessSignal::Kill => kill_process_group(pid, Signal::KILL),
        };
        // A failure is harmless: the process may have ended before the signal was sent.
        if let Err(error) = result {
            tracing::debug!(pid = self.child.id(), %error, "cannot send a signal to a worker's process");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.send_signal(ProcessSignal::Kill);
            let _ = self.child.wait();
        }
    }
}

impl Provider for LocalWorkers {
    fn act(&mut self, now_ms: u64, action: &ProviderAction) {
        match *action {
            ProviderAction::Launch { instance, is_warm, .. } => self.launch(now_ms, instance, is_warm),
            ProviderAction::Wake { instance } => self.wake(now_ms, instance),
            // A worker ends after it was drained, so its process cannot be parked. The action counts as failed for lack
            // of capacity.
            ProviderAction::Park { instance } => {
                self.processes.remove(&instance);
                self.events.push(ProviderEvent::Failed { instance, is_capacity: true });
            }
            ProviderAction::Drain { instance, grace_ms } => match self.processes.get_mut(&instance) {
                Some(process) => {
                    let signal = process.lifecycle.drain(now_ms.saturating_add(grace_ms));
                    process.send_signal(signal);
                }
                None => self.events.push(ProviderEvent::Gone { instance }),
            },
            ProviderAction::Terminate { instance } => match self.processes.get_mut(&instance) {
                Some(process) => {
                    let signal = process.lifecycle.terminate();
                    process.send_signal(signal);
                }
                None => self.events.push(ProviderEvent::Gone { instance }),
            },
        }
    }

    fn events(&mut self, now_ms: u64, events: &mut Vec<ProviderEvent>) {
        self.sweep(now_ms);
        events.append(&mut self.events);
    }

    fn next_due_ms(&self) -> Option<u64> {
        // A process may end at any time, so the time of the next event is unknown.
        None
    }
}

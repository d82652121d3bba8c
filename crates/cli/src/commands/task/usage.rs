//! Reads from the kernel how much processor time and memory a command uses.
//!
//! The kernel drops the memory counter of a process when the process ends. The counter is therefore read while the
//! process runs, and a peak shortly before the end may be missed. The processor time of the process and of its reaped
//! children remains readable until the process itself is reaped.

use std::fs::read_to_string;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The processor time and memory that a task's command used.
#[derive(Debug, Default)]
pub struct Usage {
    pub cpu: Duration,
    pub memory_bytes: u64,
}

impl Usage {
    /// Reads the counters of a child process. Returns `true` if the process has ended and has to be reaped.
    pub fn update(&mut self, pid: Option<Pid>) -> bool {
        let Some(pid) = pid else { return true };
        let number = pid.as_raw_nonzero();
        if let Some(peak) = read_to_string(format!("/proc/{number}/status")).ok().and_then(|text| peak(&text))
        {
            self.memory_bytes = self.memory_bytes.max(peak);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(None) = waitid(WaitId::Pid(pid), options) {
            return false;
        }
        let ticks = read_to_string(format!("/proc/{number}/stat")).ok().and_then(|text| ticks(&text));
        let by_ticks =
            ticks.map(|ticks| Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64));
        // `ticks` is coarse. The value in `schedstat` is exact, but counts only the first thread of the process.
        let exact = read_to_string(format!("/proc/{number}/schedstat")).ok().and_then(|text| exact(&text));
        self.cpu = by_ticks.unwrap_or_default().max(exact.unwrap_or_default());
        true
    }
}

/// Returns the largest resident memory of the process so far, in bytes.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}

/// Returns the processor time of the process and its reaped children, in clock ticks: the sum of fields 14 to 17 of
/// proc_pid_stat(5). Field 2 is a name in parentheses that may contain spaces, so the fields are counted from the last
/// parenthesis.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

fn exact(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn cpu_time_of_an_ended_command_is_measured() {
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh").args(["-c", work]).spawn().unwrap();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let mut usage = Usage::default();
        while !usage.update(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().unwrap().success());
        assert!(usage.cpu > Duration::from_millis(1), "{usage:?}");
    }

    #[test]
    fn process_usage_is_parsed_despite_blanks_in_the_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 0 0 0 0 0 3 4 5 6 20 0 1 0";
        assert_eq!(ticks(stat), Some(18));
        assert_eq!(peak("VmPeak:  9 kB\nVmHWM:\t   12 kB\n"), Some(12 * 1_024));
        assert_eq!(exact("1500 3 4"), Some(Duration::from_nanos(1_500)));
    }
}

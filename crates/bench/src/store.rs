//! Stored runs. Each run is a JSON file with the measured figures, and with the conditions under which they were
//! measured.
//!
//! Quick runs and debug builds are stored in the folder `scratch`, which is not committed. `dunlin report` refuses
//! quick runs and debug builds, wherever they are stored.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::MachineDescription;
use crate::point::target;
use crate::row::{FigureRow, RowSet};

/// A stored run: the measured rows, the machine, the commit and the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredRun {
    /// The name of the suite, followed by `-peers` if other systems were measured too: `spot` or `spot-peers`.
    pub name: String,
    /// When the run started, in UTC.
    pub date: String,
    /// The machine on which the benchmark ran.
    pub machine: MachineDescription,
    /// The checked-out commit. A `+` at its end means that files had been changed.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// Whether the run was quick (`--quick`).
    pub quick: bool,
    /// Whether the program was compiled without optimisation.
    pub debug_build: bool,
    /// The warnings of the checks before the run.
    pub warnings: Vec<String>,
    /// The measurements that were skipped because a peer was not installed, each with the reason.
    #[serde(default)]
    pub skipped: Vec<String>,
    /// The measurements that failed, each with the reason.
    #[serde(default)]
    pub failed: Vec<String>,
    /// The measured rows. This field must be the last one, because `StoredRun::text` writes the rows last.
    pub rows: RowSet,
}

impl StoredRun {
    /// Returns the reason why the report must not use this run. Returns `None` for a run that the report may use.
    pub fn refusal(&self) -> Option<&'static str> {
        match (self.quick, self.debug_build) {
            (true, _) => Some("a quick run"),
            (_, true) => Some("a debug build"),
            _ => None,
        }
    }

    /// Writes the run to a file in `folder`. If the report would refuse the run, writes it to the subfolder `scratch`
    /// instead. Returns the path of the file.
    pub fn save(&self, folder: &Path) -> Result<PathBuf> {
        let folder = if self.refusal().is_some() { folder.join("scratch") } else { folder.to_owned() };
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let path = unused_path(&folder, &format!("{}-{}", self.date.replace(':', "-"), self.name));
        fs::write(&path, self.text()?).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Returns the run as JSON, with each row on a line of its own, so that a diff shows which rows changed.
    fn text(&self) -> Result<String> {
        let without_rows = Self { rows: RowSet::default(), ..self.clone() };
        let text = serde_json::to_string_pretty(&without_rows).context("cannot encode a run as JSON")?;
        let head = text.strip_suffix("]\n}").context("`rows` is not the last field of the run's JSON")?;
        let row = |row| Ok(format!("\n    {}", serde_json::to_string(row)?));
        let rows = self.rows.iter().map(row).collect::<serde_json::Result<Vec<_>>>();
        Ok(format!("{head}{}\n  ]\n}}\n", rows.context("cannot encode rows as JSON")?.join(",")))
    }

    /// Reads a stored run from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut run: Self =
            serde_json::from_str(&text).with_context(|| format!("{} is not a stored run", path.display()))?;
        run.rows.fill_params(default_params);
        if !run.rows.iter().any(|row| row.metric == "read_ns") {
            run.rows.remove_if(is_misnamed);
        }
        Ok(run)
    }

    /// Reads all runs in a folder. A missing folder counts as empty.
    pub fn read_all(folder: &Path) -> Result<RunArchive> {
        if !folder.is_dir() {
            return Ok(RunArchive::default());
        }
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut archive = RunArchive::default();
        for path in paths {
            match Self::read(&path) {
                Ok(run) => archive.runs.push(run),
                Err(error) => archive.damaged.push(format!("{error:#}")),
            }
        }
        archive.runs.sort_by(|left, right| left.date.cmp(&right.date));
        Ok(archive)
    }
}

/// Returns parameters that rows of old runs lack and that newer rows have. The values are those with which the old runs
/// were measured: one shard, one tenant, no standby.
fn default_params(row: &FigureRow) -> &'static [(&'static str, u64)] {
    if row.target != target::DUNLIN {
        return &[];
    }
    match (row.suite.as_str(), row.case.as_str()) {
        ("tasks", "noop" | "scaling") if row.params.contains_all(&[("via", "node")]) => {
            &[("shards", 1), ("tenants", 1)]
        }
        ("space", "latency" | "capacity" | "cpu" | "bucket") => &[("standbys", 0)],
        _ => &[],
    }
}

/// Whether the metric of this row has another meaning today than in the old run from which the row comes. In old runs
/// of suite `feed`, a slow client's rate was computed over the time of publishing, and a quantile without samples was
/// 0.
fn is_misnamed(row: &FigureRow) -> bool {
    let is_latency =
        ["avg_ns", "p50_ns", "p95_ns", "p99_ns", "p999_ns"].iter().any(|end| row.metric.ends_with(end));
    let is_slow_rate = row.case == "slow_client" && row.metric == "deliveries_per_s";
    row.suite == "feed" && (is_slow_rate || is_latency && row.min == 0.0)
}

/// The stored runs in a folder, and the files that could not be read.
#[derive(Debug, Default)]
pub struct RunArchive {
    /// The runs, oldest first.
    pub runs: Vec<StoredRun>,
    /// The files that could not be read, each with the reason: the file is malformed, or has another version.
    pub damaged: Vec<String>,
}

/// Returns a path at which no file exists, so that two runs that start in one second get different paths.
fn unused_path(folder: &Path, stem: &str) -> PathBuf {
    let names = std::iter::once(format!("{stem}.json")).chain((2..).map(|nth| format!("{stem}-{nth}.json")));
    let mut paths = names.map(|name| folder.join(name));
    paths.find(|path| !path.exists()).expect("an unused name exists")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::stats::Summary;

    fn run(quick: bool) -> StoredRun {
        StoredRun {
            name: "spot".into(),
            date: "2026-11-20T11:40:02Z".into(),
            machine: MachineDescription::default(),
            commit: "abc".into(),
            command: "dunlin bench spot".into(),
            quick,
            debug_build: false,
            warnings: vec!["2 cores".into()],
            skipped: Vec::new(),
            failed: Vec::new(),
            rows: RowSet::default(),
        }
    }

    #[test]
    fn two_runs_in_the_same_second_are_both_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) =
            (run(false).save(folder.path()).unwrap(), run(false).save(folder.path()).unwrap());
        assert_ne!(first, second);
        let archive = StoredRun::read_all(folder.path()).unwrap();
        assert_eq!(archive.runs.len(), 2);
        assert_eq!(archive.runs[0].warnings, ["2 cores"]);
    }

    #[test]
    fn each_benchmark_row_is_one_line_of_the_run_file() {
        let folder = tempfile::tempdir().unwrap();
        let row = |bytes: u64| {
            let (params, summary) = (Params::new().with("bytes", bytes), Summary::of(&[0.5, 1e9]).unwrap());
            FigureRow::new("spot", "throughput", "dunlin", &params, "msgs_per_s", summary, true)
        };
        for rows in [vec![], vec![row(64)], vec![row(64), row(1024)]] {
            let run = StoredRun { rows: rows.clone().try_into().unwrap(), ..run(false) };
            let path = run.save(folder.path()).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(|line| line.trim().trim_end_matches(','));
            let found: Vec<FigureRow> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
            assert_eq!(found, rows);
            assert_eq!(Vec::<FigureRow>::from(StoredRun::read(&path).unwrap().rows), rows);
        }
    }

    #[test]
    fn quick_runs_are_kept_in_folder_scratch_and_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = run(true).save(folder.path()).unwrap();
        assert_eq!(path.parent().unwrap(), folder.path().join("scratch"));
        assert_eq!(run(true).refusal(), Some("a quick run"));
        assert!(StoredRun::read_all(folder.path()).unwrap().runs.is_empty());
    }

    #[test]
    fn rows_of_old_runs_get_missing_parameters() {
        let row = |case: &str, params: Params| {
            let summary = Summary::of(&[1.0]).unwrap();
            FigureRow::new("tasks", case, "dunlin", &params.with("via", "node"), "ops_per_s", summary, true)
        };
        let space = |case: &str| {
            let summary = Summary::of(&[1.0]).unwrap();
            FigureRow::new("space", case, "dunlin", &Params::new(), "p99_ns", summary, true)
        };
        let rows = vec![
            space("bucket"),
            space("crowd"),
            row("noop", Params::new()),
            row("noop", Params::new().with("shards", 2_u64).with("tenants", 16_u64)),
            row("failover", Params::new()),
        ];
        let folder = tempfile::tempdir().unwrap();
        StoredRun { rows: rows.try_into().unwrap(), ..run(false) }.save(folder.path()).unwrap();
        let archive = StoredRun::read_all(folder.path()).unwrap();
        let params: Vec<String> = archive.runs[0].rows.iter().map(|row| row.params.to_string()).collect();
        assert_eq!(
            params,
            ["standbys=0", "", "shards=1 tenants=1 via=node", "shards=2 tenants=16 via=node", "via=node"]
        );
    }

    #[test]
    fn misnamed_metrics_of_older_runs_are_ignored() {
        let row = |case: &str, metric: &str, value: f64| {
            let summary = Summary::of(&[value, 5.0]).unwrap();
            FigureRow::new("feed", case, "dunlin", &Params::new(), metric, summary, true)
        };
        let older = vec![
            row("slow_client", "deliveries_per_s", 10_000.0),
            row("slow_client", "sent_p50_ns", 0.0),
            row("slow_client", "merged", 0.0),
            row("loss_1x10_1k", "deliveries_per_s", 10_000.0),
        ];
        let newer = [older.clone(), vec![row("slow_client", "read_ns", 5.0)]].concat();
        let read_back = |rows: Vec<FigureRow>| -> Vec<String> {
            let folder = tempfile::tempdir().unwrap();
            let path =
                StoredRun { rows: rows.try_into().unwrap(), ..run(false) }.save(folder.path()).unwrap();
            StoredRun::read(&path).unwrap().rows.iter().map(|row| row.metric.clone()).collect()
        };
        assert_eq!(read_back(older), ["merged", "deliveries_per_s"]);
        assert_eq!(read_back(newer).len(), 5);
    }

    #[test]
    fn damaged_run_file_is_reported_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.json"), "{").unwrap();
        run(false).save(folder.path()).unwrap();
        let archive = StoredRun::read_all(folder.path()).unwrap();
        assert_eq!(archive.runs.len(), 1);
        assert!(archive.damaged[0].contains("x.json is not a stored run"), "{:?}", archive.damaged);
    }
}

//! The program `alone`, which runs the benchmarks without the program `dunlin`, for example as `alone spot` or `alone
//! peers spot --bytes=64`. The tests start this program. The program starts itself again for the child processes of a
//! benchmark.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use dunlin_bench::child::ChildProgram;
use dunlin_bench::{BenchRequest, RawOptions};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run_command(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_command(args: &[String]) -> Result<bool> {
    match args.first().map(String::as_str) {
        Some("bench-child") => dunlin_bench::child_main(&args[1..]).map(|()| true),
        Some("peers") => dunlin_bench::run(request(args, &args[1..], true)?),
        _ => dunlin_bench::run(request(args, args, false)?),
    }
}

fn request(all: &[String], args: &[String], with_peers: bool) -> Result<BenchRequest> {
    let Some((suite, flags)) = args.split_first() else { bail!("which suite?") };
    let mut options = RawOptions::default();
    for flag in flags {
        match flag.trim_start_matches('-').split_once('=') {
            Some(("case", case)) => options.cases.push(case.to_owned()),
            Some(("runs", runs)) => options.runs = Some(runs.parse()?),
            Some(("url", url)) => options.url = Some(url.to_owned()),
            Some(("warmup", warmup)) => options.warmup = Some(warmup.to_owned()),
            Some(("time", time)) => options.time = Some(time.to_owned()),
            Some(_) => options.params.push(flag.trim_start_matches('-').to_owned()),
            None if flag == "--quick" => options.quick = true,
            None if flag == "--json" => options.json = true,
            None => bail!("unknown flag {flag}"),
        }
    }
    let command = format!("alone {}", all.join(" "));
    let runs_folder =
        std::env::var_os("BENCH_RUNS").map_or_else(|| PathBuf::from("bench-runs"), PathBuf::from);
    Ok(BenchRequest {
        suite: suite.clone(),
        with_peers,
        options,
        command,
        runs_folder,
        against: None,
        child: ChildProgram::current()?,
    })
}

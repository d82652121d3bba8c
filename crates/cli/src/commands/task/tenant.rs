//! `task tenant`: a tenant's share, quotas and limits.

use std::io::Write;

use anyhow::Result;
use dunlin_client::Tasks;
use dunlin_client::scheduler::{KeyLimit, Quota, Rate, TenantSettings};
use serde_json::json;

use crate::commands::parse::duration;
use crate::console::Console;

/// Arguments of `dunlin task tenant`, which sets a tenant's share, quotas and limits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin task tenant acme --weight 3                     three times the share of a tenant with weight 1
  dunlin task tenant acme --concurrency 10               at most 10 tasks at the same time
  dunlin task tenant acme --concurrency 2,8,10,20        reserved, soft, hard and burst quota
  dunlin task tenant acme --limit user=1 --limit tenant=10
  dunlin task tenant acme --rate api=100/1s              100 starts per second for each value of api
  dunlin task tenant acme --queued 100000

A QUOTA is one number, the hard maximum, or four: RESERVED,SOFT,HARD,BURST. RESERVED is kept free for the tenant. Above
SOFT, the tenant waits while other tenants below their SOFT have tasks. BURST is an amount that may exceed HARD for up to
a minute. docs/tasks.md describes them.

The command replaces all settings of the tenant; a limit that is not given is removed.")]
pub struct Arguments {
    /// Name of the tenant
    name: String,
    /// Weight of the tenant's share, relative to other tenants
    #[arg(long, default_value_t = 1)]
    weight: u32,
    /// Maximum number of waiting tasks [default: no limit]
    #[arg(long, value_name = "COUNT")]
    queued: Option<u64>,
    /// Maximum number of retries, as a percentage of first attempts [default: no limit]
    #[arg(long, value_name = "PERCENT")]
    retries: Option<u32>,
    /// Quota for the number of tasks that run at the same time [default: no limit]
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    concurrency: Option<Quota>,
    /// Quota for the processors of all running tasks, in thousandths of a processor [default: no limit]
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    cpu_milli: Option<Quota>,
    /// Quota for the memory of all running tasks, in bytes [default: no limit]
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    memory_bytes: Option<Quota>,
    /// Maximum number of running tasks that have the same value of KEY; KEY is a label, or tenant, queue or kind; may
    /// be given several times
    #[arg(long = "limit", value_name = "KEY=COUNT", value_parser = limit)]
    limits: Vec<(String, u32)>,
    /// Maximum rate of task starts for each value of KEY, such as user=10/1s, or user=10/1s,5 with a burst of 5; may
    /// be given several times
    #[arg(long = "rate", value_name = "KEY=COUNT/DURATION", value_parser = rate)]
    rates: Vec<(String, Rate)>,
}

fn quota(text: &str) -> Result<Quota, String> {
    let numbers: Vec<u64> = text
        .split(',')
        .map(|number| number.parse().map_err(|_| "expected HARD, or RESERVED,SOFT,HARD,BURST".to_owned()))
        .collect::<Result<_, _>>()?;
    match numbers[..] {
        [hard] => Ok(Quota::at_most(hard)),
        [reserved, soft, hard, burst] => Ok(Quota { reserved, soft, hard, burst }),
        _ => Err("expected HARD, or RESERVED,SOFT,HARD,BURST".to_owned()),
    }
}

fn limit(text: &str) -> Result<(String, u32), String> {
    let (key, count) = text.split_once('=').ok_or("expected KEY=COUNT")?;
    Ok((key.to_owned(), count.parse().map_err(|_| "expected KEY=COUNT".to_owned())?))
}

fn rate(text: &str) -> Result<(String, Rate), String> {
    let expected = || "expected KEY=COUNT/DURATION, or KEY=COUNT/DURATION,BURST, as in user=10/1s".to_owned();
    let (key, rate) = text.split_once('=').ok_or_else(expected)?;
    let (rate, burst) = rate.split_once(',').unwrap_or((rate, "1"));
    let (count, per) = rate.split_once('/').ok_or_else(expected)?;
    let (count, burst) = (count.parse().map_err(|_| expected())?, burst.parse().map_err(|_| expected())?);
    let per_ms = u32::try_from(duration(per)?.as_millis()).map_err(|_| expected())?;
    Ok((key.to_owned(), Rate { count, per_ms, burst }))
}

pub fn run(arguments: &Arguments, tasks: &Tasks, console: &Console) -> Result<()> {
    let running = arguments.limits.iter().map(|(key, count)| KeyLimit::running(key.as_bytes(), *count));
    let starting = arguments.rates.iter().map(|(key, rate)| KeyLimit::starting(key.as_bytes(), *rate));
    let limits = running.chain(starting).collect();
    tasks.set_tenant(TenantSettings {
        weight: arguments.weight,
        queued_max: arguments.queued.unwrap_or(0),
        retry_percent: arguments.retries.unwrap_or(0),
        concurrency: arguments.concurrency.unwrap_or_default(),
        cpu_milli: arguments.cpu_milli.unwrap_or_default(),
        memory_bytes: arguments.memory_bytes.unwrap_or_default(),
        limits,
        ..TenantSettings::new(arguments.name.as_bytes())
    })?;
    let mut out = console.out();
    match console.json {
        true => writeln!(out, "{}", json!({"tenant": arguments.name, "weight": arguments.weight}))?,
        false => writeln!(out, "tenant {} is set", arguments.name)?,
    }
    Ok(out.flush()?)
}

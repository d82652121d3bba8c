//! The command `dunlin task tenant`, which sets the share, quotas and limits of a tenant.

use std::io::Write;

use anyhow::Result;
use dunlin_client::Tasks;
use dunlin_client::scheduler::{KeyLimit, Quota, Rate, TenantSettings, TenantView};
use serde_json::json;

use crate::commands::parse::duration;
use crate::console::Console;

/// Arguments of `dunlin task tenant`, which sets a tenant's share, quotas and limits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin task tenant acme --weight 3                        three times the share of a tenant with weight 1
  dunlin task tenant acme --concurrency 10                  at most 10 tasks at the same time
  dunlin task tenant acme --concurrency 2,8,10,20           reserved, soft, hard and burst quota
  dunlin task tenant acme --limit user=1 --limit tenant=10
  dunlin task tenant acme --rate api=100/1s                 100 starts per second for each value of api
  dunlin task tenant acme --queued 100000
  dunlin task tenant acme --without limits --limit user=2   this limit instead of all others

A QUOTA is one number, the hard maximum, or four: RESERVED,SOFT,HARD,BURST. RESERVED is kept free for the tenant. Above
SOFT, the tenant waits while other tenants below their SOFT have tasks. BURST is an amount that may exceed HARD for up to
a minute. docs/tasks.md describes them.

Each given option replaces its old value, and --limit and --rate replace the value of their KEY. All other settings
stay. Do not change one tenant with two commands at the same time: the later one can undo the change of the other.")]
pub struct Arguments {
    /// Name of the tenant
    name: String,
    /// Weight of the tenant's share, relative to other tenants [default of a new tenant: 1]
    #[arg(long)]
    weight: Option<u32>,
    /// Maximum number of waiting tasks [default of a new tenant: no limit]
    #[arg(long, value_name = "COUNT")]
    queued: Option<u64>,
    /// Maximum number of retries, as a percentage of first attempts [default of a new tenant: no limit]
    #[arg(long, value_name = "PERCENT")]
    retries: Option<u32>,
    /// Quota for the number of tasks that run at the same time [default of a new tenant: no limit]
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    concurrency: Option<Quota>,
    /// Quota for the processors of all running tasks, in thousandths of a processor [default of a new tenant: no
    /// limit]
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    cpu_milli: Option<Quota>,
    /// Quota for the memory of all running tasks, in bytes [default of a new tenant: no limit]
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
    /// Setting to reset to the default of a new tenant, before the other options apply; may be given several times
    #[arg(long, value_name = "SETTING")]
    without: Vec<TenantSetting>,
}

/// A setting of a tenant that `--without` removes. Each value is named like the option that changes the setting.
/// `limits` and `rates` stand for the limits and rates of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TenantSetting {
    Weight,
    Queued,
    Retries,
    Concurrency,
    CpuMilli,
    MemoryBytes,
    Limits,
    Rates,
}

impl Arguments {
    /// Changes the settings as the command's options say. Other settings stay unchanged.
    fn apply<'a>(&'a self, settings: &mut TenantSettings<'a>) {
        let new = TenantSettings::new(settings.name);
        for setting in &self.without {
            match setting {
                TenantSetting::Weight => settings.weight = new.weight,
                TenantSetting::Queued => settings.queued_max = new.queued_max,
                TenantSetting::Retries => settings.retry_percent = new.retry_percent,
                TenantSetting::Concurrency => settings.concurrency = new.concurrency,
                TenantSetting::CpuMilli => settings.cpu_milli = new.cpu_milli,
                TenantSetting::MemoryBytes => settings.memory_bytes = new.memory_bytes,
                TenantSetting::Limits => settings.limits.retain_mut(keep_without_count),
                TenantSetting::Rates => settings.limits.retain_mut(keep_without_rate),
            }
        }
        settings.weight = self.weight.unwrap_or(settings.weight);
        settings.queued_max = self.queued.unwrap_or(settings.queued_max);
        settings.retry_percent = self.retries.unwrap_or(settings.retry_percent);
        settings.concurrency = self.concurrency.unwrap_or(settings.concurrency);
        settings.cpu_milli = self.cpu_milli.unwrap_or(settings.cpu_milli);
        settings.memory_bytes = self.memory_bytes.unwrap_or(settings.memory_bytes);
        for (key, count) in &self.limits {
            let key = key.as_bytes();
            settings.limits.retain_mut(|limit| limit.key != key || keep_without_count(limit));
            settings.limits.push(KeyLimit::running(key, *count));
        }
        for (key, rate) in &self.rates {
            let key = key.as_bytes();
            settings.limits.retain_mut(|limit| limit.key != key || keep_without_rate(limit));
            settings.limits.push(KeyLimit::starting(key, *rate));
        }
    }
}

/// Removes the maximum number of running tasks from a limit. Returns whether the limit still has a rate, and is
/// therefore still needed.
fn keep_without_count(limit: &mut KeyLimit<'_>) -> bool {
    limit.running_max = u32::MAX;
    limit.rate.is_some()
}

/// Removes the rate from a limit. Returns whether the limit still has a maximum number of running tasks, and is
/// therefore still needed.
fn keep_without_rate(limit: &mut KeyLimit<'_>) -> bool {
    limit.rate = None;
    limit.running_max < u32::MAX
}

/// The settings of an existing tenant.
fn settings_of(tenant: &TenantView) -> TenantSettings<'_> {
    let [concurrency, cpu_milli, memory_bytes] = tenant.quotas;
    let limits = tenant.limits.iter();
    TenantSettings {
        weight: tenant.weight,
        queued_max: tenant.queued_max,
        retry_percent: tenant.retry_percent,
        concurrency,
        cpu_milli,
        memory_bytes,
        limits: limits
            .map(|limit| KeyLimit { key: &limit.key, running_max: limit.running_max, rate: limit.rate })
            .collect(),
        ..TenantSettings::new(&tenant.name)
    }
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
    let name = arguments.name.as_bytes();
    let found = tasks.tenants(&arguments.name)?;
    let existing = found.iter().find(|found| *found.name == *name);
    let mut settings = existing.map_or_else(|| TenantSettings::new(name), settings_of);
    arguments.apply(&mut settings);
    let weight = settings.weight;
    tasks.set_tenant(settings)?;
    let mut out = console.out();
    match console.json {
        true => writeln!(out, "{}", json!({"tenant": arguments.name, "weight": weight}))?,
        false => writeln!(out, "tenant {} is set", arguments.name)?,
    }
    Ok(out.flush()?)
}

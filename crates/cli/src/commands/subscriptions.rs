//! The command `dunlin subscriptions`, which lists the subscriptions of topics, with their lag.

use std::io::Write;

use anyhow::{Context, Result};
use clap::ValueEnum;
use dunlin_client::{CallError, Client, SubscriptionDescription};
use dunlin_wire::ErrorCode;
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::connect::connect;
use crate::console::{Console, grouped};
use crate::table::TextTable;

/// Arguments of `dunlin subscriptions`, which lists subscriptions and their lag.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin subscriptions                        largest lag first
  dunlin subscriptions 'orders.>' --sort name
  dunlin subscriptions --json | jq -r 'select(.missed > 0) | .name'

For each topic, the list contains the subscriptions with the largest lag. A user sees only topics on which it has a
permission.")]
pub struct Arguments {
    /// Pattern that the topics' names must match [default: all topics]
    #[arg(default_value = "", hide_default_value = true)]
    pattern: String,
    /// Order of the list: lag (largest first), missed, name or topic
    #[arg(long, value_enum, default_value = "lag", hide_possible_values = true)]
    sort: Sort,
    /// Maximum number of subscriptions
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Lag,
    Missed,
    Name,
    Topic,
}

/// The name of a topic, and one of the topic's subscriptions.
type TopicSubscription = (String, SubscriptionDescription);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let client = connect(global, "dunlin subscriptions")?;
    let SubscriptionsFound { subscribers: mut found, total, groups } = find(&client, &arguments.pattern)?;
    sort(&mut found, arguments.sort);
    let shown = &found[..found.len().min(arguments.limit)];
    let mut out = console.out();
    if console.json {
        shown.iter().try_for_each(|subscription| writeln!(out, "{}", subscription_object(subscription)))?;
        return Ok(out.flush()?);
    }
    let mut table = TextTable::new(&["NAME", "TOPIC", "LOG", "POSITION", "LAG", "MISSED", "KIND"]);
    for (topic, subscriber) in shown {
        table.row([
            subscriber.name.clone(),
            topic.clone(),
            subscriber.partition.to_string(),
            subscriber.position.to_string(),
            grouped(subscriber.lag),
            grouped(subscriber.missed),
            if subscriber.registered { "registered".to_owned() } else { String::new() },
        ]);
    }
    table.write(&mut out, console.paint)?;
    let more = total.saturating_sub(shown.len());
    if more > 0 {
        writeln!(out, "and {} more", grouped(more as u64))?;
    }
    if groups > 0 {
        let (what, them) = if groups == 1 { ("group", "it") } else { ("groups", "them") };
        let hint = console.paint.command("dunlin topics describe TOPIC");
        writeln!(out, "and {} {what}; {hint} shows {them}", grouped(groups as u64))?;
    }
    Ok(out.flush()?)
}

/// The subscriptions of all topics that match a pattern.
#[derive(Default)]
struct SubscriptionsFound {
    /// The subscriptions outside of groups, which are listed one by one.
    subscribers: Vec<TopicSubscription>,
    /// The number of all subscriptions outside of groups.
    total: usize,
    /// The number of groups. `subscribers_total`, which the node reports, counts a group once for each log of its topic.
    groups: usize,
}

fn find(client: &Client, pattern: &str) -> Result<SubscriptionsFound> {
    let mut found = SubscriptionsFound::default();
    for topic in client.topics(pattern).context("cannot list topics")? {
        if topic.subscribers == Some(0) {
            continue;
        }
        let described = match client.describe_topic(&topic.name) {
            // The topic was deleted after the command had read the list of topics.
            Err(CallError::Refused(refused)) if refused.code == ErrorCode::NoTopic => continue,
            described => described.with_context(|| format!("cannot describe topic {}", topic.name))?,
        };
        let group_subscriptions = described.groups.len() * described.logs.len();
        let all = (described.subscribers_total.unwrap_or(0) as usize).saturating_sub(group_subscriptions);
        found.total += all.max(described.subscribers.len());
        found.groups += described.groups.len();
        found
            .subscribers
            .extend(described.subscribers.into_iter().map(|subscriber| (topic.name.clone(), subscriber)));
    }
    Ok(found)
}

fn sort(found: &mut [TopicSubscription], by: Sort) {
    found.sort_by(|(a_topic, a), (b_topic, b)| {
        let names = (a_topic, &a.name, a.partition).cmp(&(b_topic, &b.name, b.partition));
        match by {
            Sort::Lag => (b.lag, b.missed).cmp(&(a.lag, a.missed)).then(names),
            Sort::Missed => (b.missed, b.lag).cmp(&(a.missed, a.lag)).then(names),
            Sort::Name => a.name.cmp(&b.name).then(names),
            Sort::Topic => names,
        }
    });
}

fn subscription_object((topic, subscriber): &TopicSubscription) -> serde_json::Value {
    json!({
        "name": subscriber.name, "topic": topic, "partition": subscriber.partition, "position": subscriber.position.to_string(),
        "lag": subscriber.lag, "missed": subscriber.missed, "registered": subscriber.registered,
    })
}

#[cfg(test)]
mod tests {
    use dunlin_topic::Position;

    use super::*;

    #[test]
    fn subscriptions_can_be_sorted_by_lag_loss_name_or_topic() {
        let subscription = |topic: &str, name: &str, lag, missed| {
            let position = Position { epoch: 1, seq: 1 };
            let name = name.to_owned();
            (
                topic.to_owned(),
                SubscriptionDescription { name, partition: 0, position, lag, missed, registered: false },
            )
        };
        let mut found =
            vec![subscription("a", "x", 1, 9), subscription("b", "w", 5, 0), subscription("a", "v", 1, 0)];
        let mut order = |by| {
            sort(&mut found, by);
            found.iter().map(|(_, subscriber)| subscriber.name.as_str()).collect::<String>()
        };
        assert_eq!((order(Sort::Lag), order(Sort::Missed)), ("wxv".to_owned(), "xwv".to_owned()));
        assert_eq!((order(Sort::Name), order(Sort::Topic)), ("vwx".to_owned(), "vxw".to_owned()));
    }
}

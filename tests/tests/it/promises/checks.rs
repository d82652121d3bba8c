//! The functions that check the guarantees. Each check starts its own node.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dunlin::topic::{Draft, Payload, Publish, RecordMeta, Retention, TopicConfig};

use super::listener::{ListenerSubscriber, Message, SubscriberEvent, SubscriptionOptions};
use super::trial::{GuaranteeTest, PATIENCE, number, numbered, publish_numbers, publish_padded};

/// A guarantee, described in the words of the table in `docs/listeners.md`, and the function that checks it.
pub struct Promise {
    pub name: &'static str,
    pub description: &'static str,
    pub check: fn(&mut GuaranteeTest<'_>) -> Result<()>,
}

pub const PROMISES: &[Promise] = &[
    Promise {
        name: "order",
        description: "Every record arrives once, whole, in the topic's order",
        check: order,
    },
    Promise {
        name: "headers",
        description: "Headers and subjects arrive as they were published",
        check: headers,
    },
    Promise { name: "large payload", description: "A record of 4 MB arrives whole", check: large_payload },
    Promise {
        name: "late join",
        description: "A late subscriber reads history, then continues live",
        check: late_join,
    },
    Promise {
        name: "wildcards",
        description: "A pattern includes topics that are created later",
        check: wildcards,
    },
    Promise { name: "gap", description: "A subscriber that missed records receives their range", check: gap },
    Promise {
        name: "lagging",
        description: "A subscriber about to miss records is warned first",
        check: lagging,
    },
    Promise { name: "slow reader", description: "A stalled subscriber delays no other", check: slow_reader },
    Promise {
        name: "state",
        description: "A subscriber receives a state, then every later change",
        check: state,
    },
    Promise {
        name: "cut off and back",
        description: "A lost connection resumes without a missing record",
        check: lose_connection,
    },
    Promise {
        name: "left alone over a restart",
        description: "A subscriber continues after a node restart, or reports the reason",
        check: restart_while_idle,
    },
    Promise {
        name: "groups",
        description: "Group members share records, each record goes to one",
        check: groups,
    },
    Promise { name: "requests", description: "A request gets its reply", check: requests },
    Promise {
        name: "unknown topic",
        description: "A record that no topic owns is refused with an error",
        check: unknown_topic,
    },
    Promise {
        name: "limits",
        description: "A record over the limit is refused, the next is accepted",
        check: limits,
    },
];

fn order(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig::default())?;
    let mut reader = trial.reader("t")?;
    let mut client = trial.client()?;
    for number in 1..=100 {
        let seq = client.publish(&Message { subject: "t", payload: &numbered(number), headers: &[] })?;
        ensure!(seq.is_none_or(|seq| seq == number), "record {number} got sequence number {seq:?}");
    }
    let mut publisher = trial.publisher("t")?;
    publish_numbers(&mut publisher, 101..=20_000)?;
    reader.numbers(1..=20_000)?;
    // If an earlier record is delivered twice or late, it arrives before this last record, and the next read fails.
    publish_numbers(&mut publisher, 20_001..=20_001)?;
    reader.numbers(20_001..=20_001)
}

fn headers(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig { pattern: Some("t.>".to_owned()), ..TopicConfig::default() })?;
    let mut reader = trial.reader("t.*")?;
    let headers = [("trace", "1-2"), ("empty", "")];
    trial.client()?.publish(&Message { subject: "t.eu", payload: b"one", headers: &headers })?;
    let meta = RecordMeta { headers: &[("from", b"inside")], ..RecordMeta::default() };
    let mut publisher = trial.publisher("t.us")?;
    publisher.publish(Draft { meta, payload: Payload::Copied(b"two") })?;
    let (first, second) = (reader.record()?, reader.record()?);
    let to_pairs = |headers: &[(&str, &str)]| -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    ensure!((first.subject.as_str(), &first.payload[..]) == ("t.eu", b"one"), "{first:?}");
    ensure!(first.headers == to_pairs(&headers), "{first:?}");
    ensure!((second.subject.as_str(), &second.payload[..]) == ("t.us", b"two"), "{second:?}");
    ensure!(second.headers == to_pairs(&[("from", "inside")]), "{second:?}");
    Ok(())
}

fn large_payload(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig::default())?;
    let mut reader = trial.reader("t")?;
    let payload: Vec<u8> = (0..4_000_000u32).map(|at| b'a' + (at % 23) as u8).collect();
    trial.client()?.publish(&Message { subject: "t", payload: &payload, headers: &[] })?;
    let record = reader.record()?;
    ensure!(record.payload == payload, "{} other bytes arrived", record.payload.len());
    Ok(())
}

fn late_join(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig::default())?;
    let mut publisher = trial.publisher("t")?;
    publish_numbers(&mut publisher, 1..=1_000)?;
    let options = SubscriptionOptions { subject: "t", from_earliest: true, ..SubscriptionOptions::default() };
    let mut reader = trial.client()?.subscribe(&options)?;
    publish_numbers(&mut publisher, 1_001..=2_000)?;
    reader.numbers(1..=2_000)?;
    publish_numbers(&mut publisher, 2_001..=2_001)?;
    reader.numbers(2_001..=2_001)
}

fn wildcards(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    let mut reader = trial.reader("news.*.uk")?;
    for topic in ["news.a.uk", "news.b.uk", "news.b.us", "old.c.uk"] {
        trial.create(topic, TopicConfig::default())?;
        trial.publisher(topic)?.publish(topic)?;
    }
    let mut subjects = BTreeSet::new();
    subjects.insert(reader.record()?.subject);
    subjects.insert(reader.record()?.subject);
    ensure!(subjects.iter().eq(["news.a.uk", "news.b.uk"]), "{subjects:?}");
    // The next record that arrives must be this one. Otherwise, the subscription has received a record of a topic that
    // does not match its pattern.
    trial.publisher("news.a.uk")?.publish("last")?;
    let last = reader.record()?;
    ensure!(last.payload == b"last", "{last:?}");
    Ok(())
}

/// The size of a payload. The size is so large that the sockets' buffers cannot hold all records that a test publishes.
const LARGE_BYTES: usize = 1_000;

/// Publishes far more bytes than the topic retains and the sockets' buffers hold, and only then reads. The listener
/// must report exactly the missing records. Alternatively, the listener may close the connection and state the reason,
/// but it must do so before it delivers a record behind the missing ones.
fn gap(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    const RECORDS: u64 = 30_000;
    trial.create_short("t")?;
    let mut reader = trial.reader("t")?;
    publish_padded(&mut trial.publisher("t")?, 1..=RECORDS, LARGE_BYTES)?;
    let (mut at, mut missed) = (0, 0);
    while at < RECORDS {
        match reader.next(PATIENCE)? {
            SubscriberEvent::Record(record) => {
                ensure!(number(&record)? == at + 1, "{} after {at} without a gap", number(&record)?);
                at += 1;
            }
            SubscriberEvent::Gap(first, last) => {
                ensure!(first == at + 1 && last >= first, "wrong gap {first}..{last} after {at}");
                missed += last - at;
                at = last;
            }
            SubscriberEvent::Lagging => {}
            SubscriberEvent::Disconnected(reason) => {
                ensure!(!reason.is_empty(), "the node disconnected the client without giving a reason");
                return Ok(());
            }
            other => bail!("{other:?} after {at}"),
        }
    }
    ensure!(missed > 0, "no record was missed: the trial is too short for this listener");
    Ok(())
}

fn lagging(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create_short("t")?;
    let mut reader = trial.reader("t")?;
    publish_padded(&mut trial.publisher("t")?, 1..=30_000, LARGE_BYTES)?;
    let mut warned = false;
    loop {
        match reader.next(PATIENCE)? {
            SubscriberEvent::Lagging => warned = true,
            SubscriberEvent::Gap(..) => break,
            SubscriberEvent::Record(_) => {}
            other => bail!("{other:?}"),
        }
    }
    ensure!(warned, "the client received a gap without an earlier notice of its lag");
    Ok(())
}

fn slow_reader(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    const HISTORY_BYTES: u64 = 4 << 20;
    /// The number of records: five times as many as the topic retains.
    const RECORDS: u64 = 21_000;
    /// The number of records that are published at once. They take at most an eighth of the retention, and a subscriber
    /// lags only when half of the retention is unread. A subscriber that reads after each such publish therefore never
    /// lags.
    const AT_ONCE: u64 = 500;
    let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
    trial.create("t", TopicConfig { retention, ..TopicConfig::default() })?;
    let idle: Vec<Box<dyn ListenerSubscriber>> = (0..8).map(|_| trial.reader("t")).collect::<Result<_>>()?;
    let mut reader = trial.reader("t")?;
    let mut publisher = trial.publisher("t")?;
    let before = trial.node.node.budget().used();
    for first in (1..=RECORDS).step_by(AT_ONCE as usize) {
        publish_padded(&mut publisher, first..=first + AT_ONCE - 1, LARGE_BYTES)?;
        reader.numbers(first..=first + AT_ONCE - 1)?;
    }
    let growth = trial.node.node.budget().used().saturating_sub(before);
    // The idle subscribers read nothing. For those that cannot receive gaps, the node keeps up to 16 MiB. The rest of
    // the node's memory may grow by at most 9 MiB.
    ensure!(growth < (16 << 20) + (9 << 20), "the node grew by {growth} bytes for readers that do not read");
    drop(idle);
    Ok(())
}

fn state(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create_stateful("t")?;
    let mut publisher = trial.publisher("t")?;
    let mut set = |key: u64| -> Result<u64> {
        let key = key.to_le_bytes();
        let meta = RecordMeta { key: Some(&key), ..RecordMeta::default() };
        Ok(publisher.publish(Draft { meta, payload: Payload::Copied(b"value") })?.position.seq)
    };
    for key in 0..100 {
        set(key % 10)?;
    }
    let options = SubscriptionOptions { subject: "t", with_state: true, ..SubscriptionOptions::default() };
    let mut reader = trial.client()?.subscribe(&options)?;
    let SubscriberEvent::State(mut at) = reader.next(PATIENCE)? else {
        bail!("the first event is not a state")
    };
    ensure!(at == 100, "the state is at {at}");
    for key in 0..50 {
        set(key)?;
    }
    while at < 150 {
        let record = reader.record()?;
        ensure!(record.seq.is_none_or(|seq| seq == at + 1), "{record:?} after {at}");
        at += 1;
    }
    set(50)?;
    let last = reader.record()?;
    ensure!(last.seq.is_none_or(|seq| seq == 151), "{last:?} after 150");
    Ok(())
}

fn lose_connection(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig::default())?;
    let (mut client, proxy) = trial.client_with_proxy()?.context("this listener has no connection to cut")?;
    let mut reader = client.subscribe(&SubscriptionOptions {
        subject: "t",
        from_earliest: true,
        ..SubscriptionOptions::default()
    })?;
    let mut publisher = trial.publisher("t")?;
    publish_numbers(&mut publisher, 1..=100)?;
    reader.numbers(1..=100)?;
    for first in [101, 5_101, 10_101] {
        publish_numbers(&mut publisher, first..=first + 2_499)?;
        proxy.cut();
        publish_numbers(&mut publisher, first + 2_500..=first + 4_999)?;
        reader.numbers(first..=first + 4_999)?;
    }
    publish_numbers(&mut publisher, 15_101..=15_101)?;
    reader.numbers(15_101..=15_101)
}

fn restart_while_idle(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig::default())?;
    let mut reader = trial.reader("t")?;
    publish_numbers(&mut trial.publisher("t")?, 1..=3)?;
    reader.numbers(1..=3)?;
    trial.node.restart()?;
    trial.create("t", TopicConfig::default())?;
    // Waits for the longest pause that a client may make before it reconnects.
    std::thread::sleep(Duration::from_millis(200));
    publish_numbers(&mut trial.publisher("t")?, 1..=3)?;
    // The client must learn of the restart, through a new epoch or a closed connection. Records may arrive first. If no
    // event arrives at all, the check fails.
    for _ in 0..10 {
        match reader.next(PATIENCE) {
            Ok(SubscriberEvent::Nothing) => bail!("neither an event nor an error arrived"),
            Ok(SubscriberEvent::NewEpoch | SubscriberEvent::Disconnected(_)) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
    bail!("records continued without a notice")
}

fn groups(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    const RECORDS: u64 = 300;
    const LAST: u64 = RECORDS + 1;
    trial.create("t", TopicConfig::default())?;
    let (mut one, mut two) = (trial.client()?, trial.client()?);
    let mut members = [one.join("t", "crew")?, two.join("t", "crew")?];
    let mut publisher = trial.publisher("t")?;
    publish_numbers(&mut publisher, 1..=RECORDS)?;
    let mut is_last_published = false;
    let mut seen = BTreeSet::new();
    let deadline = std::time::Instant::now() + PATIENCE;
    while (seen.len() as u64) < LAST {
        if seen.len() as u64 == RECORDS && !is_last_published {
            // If a record is delivered a second time, this second delivery arrives before the last record.
            is_last_published = publish_numbers(&mut publisher, LAST..=LAST)? == LAST;
        }
        ensure!(std::time::Instant::now() < deadline, "only {} of {RECORDS} were delivered", seen.len());
        for member in &mut members {
            if let SubscriberEvent::Record(record) = member.next(Duration::from_millis(5))? {
                ensure!(seen.insert(number(&record)?), "{} was delivered twice", number(&record)?);
            }
        }
    }
    Ok(())
}

fn requests(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("upper", TopicConfig::default())?;
    let (mut one, mut other) = (trial.client()?, trial.client()?);
    one.respond("upper")?;
    for word in ["one", "two", "three"] {
        let reply = other.request("upper", word.as_bytes())?;
        ensure!(reply == word.to_ascii_uppercase().as_bytes(), "wrong reply to {word}: {reply:?}");
    }
    Ok(())
}

fn unknown_topic(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    let published = trial.client()?.publish(&Message { subject: "nobodys", payload: b"x", headers: &[] });
    let refusal = published.err().context("publishing without a topic was not refused")?;
    ensure!(refusal.to_string().contains("nobodys"), "{refusal:#}");
    Ok(())
}

fn limits(trial: &mut GuaranteeTest<'_>) -> Result<()> {
    trial.create("t", TopicConfig { record_bytes_max: 10_000, ..TopicConfig::default() })?;
    let mut reader = trial.reader("t")?;
    let publish = |payload: &[u8]| trial.client()?.publish(&Message { subject: "t", payload, headers: &[] });
    let refusal = publish(&[b'x'; 20_000]).err().context("a record above the limit was accepted")?;
    ensure!(!refusal.to_string().is_empty(), "the node refused the record without giving a reason");
    publish(b"after")?;
    let record = reader.record()?;
    ensure!(record.payload == b"after" && record.seq.is_none_or(|seq| seq == 1), "{record:?}");
    Ok(())
}

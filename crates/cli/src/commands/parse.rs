//! Parsers for values that several commands share. Each parser's error says which value it expects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_topic::{OnGap, Position, Start};

use crate::config::ByteSize;

/// Parses `earliest`, `latest`, `snapshot`, `EPOCH-SEQ`, a time, or an age such as `5m`.
pub fn start(text: &str) -> Result<Start, String> {
    match text {
        "earliest" => return Ok(Start::Earliest),
        "latest" => return Ok(Start::Latest),
        "snapshot" => return Ok(Start::Snapshot),
        _ => {}
    }
    if let Ok(position) = text.parse::<Position>() {
        return Ok(Start::After(position));
    }
    let time = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago).ok_or("expected a shorter duration")?,
        Err(_) => moment(text).map_err(|_| {
            "expected earliest, latest, snapshot, a position like 7-1042, a time like 2026-11-20T09:30:00Z, or a duration \
             like 5m"
        })?,
    };
    Ok(Start::Time(unix_ns(time)))
}

/// Parses `now` or an RFC 3339 time such as `2026-01-31T08:00:00Z`.
pub fn moment(text: &str) -> Result<SystemTime, String> {
    if text == "now" {
        return Ok(SystemTime::now());
    }
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "expected a time like 2026-11-20T09:30:00Z, or now".into())
}

/// Converts a time to nanoseconds since the Unix epoch; 0 for earlier times.
pub fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos().try_into().unwrap_or(u64::MAX))
}

pub fn on_gap(text: &str) -> Result<OnGap, String> {
    match text {
        "oldest" => Ok(OnGap::Oldest),
        "newest" => Ok(OnGap::Newest),
        "fail" => Ok(OnGap::Fail),
        "snapshot" => Ok(OnGap::Snapshot),
        _ => Err("expected oldest, newest, snapshot or fail".into()),
    }
}

/// The longest duration that commands accept. The present time plus this duration can still be represented.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
/// The longest time to live of a lease that a cluster accepts.
const TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

pub fn duration(text: &str) -> Result<Duration, String> {
    let read = any_duration(text)?;
    if read > DURATION_MAX { Err("expected 100 years at most".to_owned()) } else { Ok(read) }
}

fn any_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "expected a duration like 500us, 10ms, 30s, 5m or 2h".to_owned())
}

/// Parses a duration that is longer than 0 s.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text)?;
    within(text, Duration::from_nanos(1), DURATION_MAX).map_err(|_| "expected a duration above 0s".to_owned())
}

/// Parses a lease's time to live, 1ms to 366d.
pub fn ttl(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(1), TTL_MAX)
}

/// Parses the time to live of the lease that a process of a world holds. Refuses a time that is too short for the
/// process to renew the lease in time.
pub fn world_ttl(text: &str) -> Result<Duration, String> {
    within(text, dunlin_server::space::TTL_MIN, TTL_MAX)
}

/// Parses the duration of a tick, and rounds it down to whole microseconds.
pub fn tick(text: &str) -> Result<Duration, String> {
    let tick = within(text, Duration::from_micros(100), Duration::from_secs(10))?;
    Ok(Duration::from_micros(tick.as_micros() as u64))
}

fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let read = any_duration(text)?;
    let shown = humantime::format_duration;
    let expected =
        || format!("expected {} to {}", shown(least), days(most).unwrap_or_else(|| shown(most).to_string()));
    if (least..=most).contains(&read) { Ok(read) } else { Err(expected()) }
}

/// Formats a duration as a number of days; `None` if it is not a whole number of days. Months and years are not used,
/// because they differ in length.
fn days(duration: Duration) -> Option<String> {
    let (days, rest) = (duration.as_secs() / 86_400, duration.as_secs() % 86_400);
    (days > 0 && rest == 0).then(|| format!("{days}d"))
}

/// Parses the name of a world.
pub fn world(text: &str) -> Result<String, String> {
    dunlin::space::check_world_name(text).map_err(|wrong| wrong.to_string())?;
    Ok(text.to_owned())
}

/// Parses a distance from 0.001 to 1e12. The cube of such a distance fits into an f32.
pub fn distance(text: &str) -> Result<f32, String> {
    let read = text.parse().ok().filter(|read| (1e-3..=1e12).contains(read));
    read.ok_or_else(|| "expected a number from 0.001 to 1e12".into())
}

/// Parses a factor from 0.001 to 1e6.
pub fn times(text: &str) -> Result<f64, String> {
    let read = text.parse().ok().filter(|read| (1e-3..=1e6).contains(read));
    read.ok_or_else(|| "expected a number from 0.001 to 1e6".into())
}

/// Parses a duration and returns it as a number of milliseconds, at least 1.
pub fn span(text: &str) -> Result<u32, String> {
    let ms = u32::try_from(duration(text)?.as_millis()).ok().filter(|ms| *ms > 0);
    ms.ok_or_else(|| format!("expected 1ms to {}d", u32::MAX / 86_400_000))
}

/// Parses the number of a node.
pub fn node_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a node's number, as `dunlin cluster status` shows it".into())
}

/// Parses a rate per second, at least 0.001.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 1e-3);
    rate.ok_or_else(|| "expected a number over 0, like 100 or 0.5".into())
}

/// Parses `NAME=VALUE`.
pub fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// Parses a number of processors (`2`, `0.5`, `500m`) as thousandths.
pub fn processors(text: &str) -> Result<u32, String> {
    let milli = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<u32>().ok(),
        None => text.parse::<f64>().ok().map(|all| (all * 1_000.0).round()).and_then(|milli| {
            // An `f64` represents each whole number in this range exactly.
            (1.0..=f64::from(u32::MAX)).contains(&milli).then_some(milli as u32)
        }),
    };
    milli.filter(|milli| *milli > 0).ok_or_else(|| "expected processors, like 2, 0.5 or 500m".into())
}

/// Parses an amount of memory, such as `2GiB`, and returns it in bytes.
pub fn memory(text: &str) -> Result<u64, String> {
    text.parse().map(|ByteSize(bytes)| bytes)
}

/// Replaces the escapes `\n`, `\r`, `\t`, `\0` and `\\` by the characters that they stand for. Fails at any other
/// escape.
pub fn unescaped(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = if c == '\\' {
            rest.next()
        } else {
            plain.push(c);
            continue;
        };
        plain.push(match next {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('0') => '\0',
            Some('\\') => '\\',
            other => {
                let unknown = other.map_or_else(String::new, String::from);
                return Err(format!(
                    "unknown escape \\{unknown}: use \\n, \\r, \\t, \\0, or \\\\ for a backslash"
                ));
            }
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_counts_and_memory_sizes_are_parsed_with_units() {
        for (text, milli) in [("2", 2_000), ("0.5", 500), ("500m", 500), ("1.0004", 1_000), ("0.001", 1)] {
            assert_eq!(processors(text), Ok(milli), "{text}");
        }
        for text in ["", "0", "-1", "0.0001", "m", "0m", "nan", "inf", "5000000", "x"] {
            assert!(processors(text).is_err(), "{text}");
        }
        assert_eq!(memory("2GiB"), Ok(2 << 30));
        assert!(memory("much").is_err());
    }

    #[test]
    fn durations_out_of_range_are_refused() {
        for text in ["0s", "0", "-1s", "999us", "367d", "400y", "1", "x"] {
            assert!(ttl(text).is_err(), "{text}");
        }
        assert_eq!(ttl("0s").unwrap_err(), "expected 1ms to 366d");
        assert_eq!(ttl("366d"), Ok(TTL_MAX));
        assert!(world_ttl("99ms").is_err() && world_ttl("100ms").is_ok());
        assert!(positive_duration("0s").is_err() && positive_duration("1ns").is_ok());
        assert!(duration("101y").is_err() && duration("0s").is_ok());
        // The tick of a world is stored in whole microseconds, so that every process of the world uses the same tick.
        assert_eq!(tick("16666666ns"), Ok(Duration::from_micros(16_666)));
        assert!(tick("1us").is_err() && tick("11s").is_err());
    }

    #[test]
    fn all_six_notations_of_a_start_position_are_parsed() {
        assert_eq!(start("earliest"), Ok(Start::Earliest));
        assert_eq!(start("snapshot"), Ok(Start::Snapshot));
        assert_eq!(start("7-1042"), Ok(Start::After(Position { epoch: 7, seq: 1042 })));
        assert_eq!(start("1970-01-01T00:00:01Z"), Ok(Start::Time(1_000_000_000)));
        let Ok(Start::Time(ago)) = start("5m") else { panic!("a duration is a time") };
        let now = unix_ns(SystemTime::now());
        assert!((299_000_000_000..301_000_000_000).contains(&(now - ago)));
        assert!(start("yesterday").is_err());
    }

    #[test]
    fn common_escapes_are_decoded_and_unknown_escapes_are_refused() {
        assert_eq!(unescaped(r"a\tb\\\n").unwrap(), "a\tb\\\n");
        assert!(unescaped(r"\q").is_err() && unescaped("\\").is_err());
        assert_eq!(header("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(header("=b").is_err());
    }
}

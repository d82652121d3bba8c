//! The recording of a market: its lines, and the time of each line.
//!
//! In the file, each line ends with `\n`, which is not part of the line. All other bytes, even a `\r` before the `\n`,
//! are part of a line. The times of the lines never decrease. This module parses only the time in a line.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The recorded lines of one market, in memory.
#[derive(Debug)]
pub struct MarketRecording {
    /// The topic to which the lines are published.
    pub topic: String,
    /// The path of the recording's file, or the name of the generator.
    pub source: String,
    bytes: Vec<u8>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    start: u32,
    end: u32,
    time_ms: u64,
}

/// The file format of a market recording. The format determines where a line contains its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarketRecordingFormat {
    /// Betfair's stream. Each line is a JSON object: its field `pt` is the time in ms, and `mc[0].id` is the market's
    /// id.
    Betfair,
    /// Bitstamp's orders. The lines are comma-separated columns below a heading; the third column is the exchange's
    /// time in ms.
    Bitstamp,
}

/// The files of the five recordings that `cargo xtask data` fetches, with their formats.
pub const FILES: [(&str, MarketRecordingFormat); 5] = [
    ("SELF-1.181223994", MarketRecordingFormat::Betfair),
    ("PRO-1.170258213", MarketRecordingFormat::Betfair),
    ("SELF-1.181223995", MarketRecordingFormat::Betfair),
    ("1.200806927", MarketRecordingFormat::Betfair),
    ("orders.csv", MarketRecordingFormat::Bitstamp),
];

impl MarketRecording {
    /// Splits the bytes of a file into lines, and parses the time of each line.
    pub fn parse(source: &str, bytes: Vec<u8>, layout: MarketRecordingFormat) -> Result<MarketRecording> {
        ensure!(u32::try_from(bytes.len()).is_ok(), "{source} is larger than 4 GiB");
        ensure!(bytes.last() == Some(&b'\n'), "{source} was cut short: its last line is incomplete");
        let mut lines = Vec::new();
        let mut time_ms = 0;
        for range in line_ranges(&bytes) {
            let here = layout.time_ms(&bytes[range.clone()]);
            let here = here.with_context(|| format!("{source}:{}", lines.len() + 1))?;
            // Only the first line, which is the heading, may have no time; its time is set after the loop. A line whose
            // time is lower than the previous line's time gets the previous line's time.
            time_ms = here.unwrap_or(time_ms).max(time_ms);
            lines.push(Line { start: range.start as u32, end: range.end as u32, time_ms });
        }
        if let [heading, first, ..] = &mut lines[..]
            && heading.time_ms == 0
        {
            heading.time_ms = first.time_ms;
        }
        let topic = layout.topic(&bytes[lines[0].range()]).with_context(|| format!("{source}:1"))?;
        Ok(MarketRecording { topic, source: source.to_owned(), bytes, lines })
    }

    /// Keeps the first `lines` lines, or the first two if `lines` is smaller, and removes the others.
    pub fn cut(&mut self, lines: usize) {
        self.lines.truncate(lines.max(2));
        self.bytes.truncate(self.lines.last().map_or(0, |last| last.end as usize + 1));
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the line with index `at`, counted from 0.
    ///
    /// # Panics
    ///
    /// If there is no such line.
    pub fn line(&self, at: usize) -> &[u8] {
        &self.bytes[self.lines[at].range()]
    }

    /// Returns the recorded time in ms from the first line to the line with index `at`.
    pub fn offset_ms(&self, at: usize) -> u64 {
        self.lines[at].time_ms - self.lines[0].time_ms
    }

    /// Returns the recorded time in ms from the first line to the last.
    pub fn span_ms(&self) -> u64 {
        self.offset_ms(self.lines.len() - 1)
    }
}

impl Line {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

fn line_ranges(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(move |(end, _)| {
        let range = start..end;
        start = end + 1;
        range
    })
}

impl MarketRecordingFormat {
    fn time_ms(self, line: &[u8]) -> Result<Option<u64>> {
        match self {
            MarketRecordingFormat::Betfair => {
                let message: Value = serde_json::from_slice(line).context("the line is not JSON")?;
                message["pt"].as_u64().context("the line has no publish time `pt`").map(Some)
            }
            MarketRecordingFormat::Bitstamp => {
                let field = line
                    .split(|&byte| byte == b',')
                    .nth(2)
                    .context("the line has fewer than three columns")?;
                match std::str::from_utf8(field).ok().and_then(|text| text.parse().ok()) {
                    Some(time_ms) => Ok(Some(time_ms)),
                    None if field == b"exchange_timestamp" => Ok(None),
                    None => bail!("the third column has no time"),
                }
            }
        }
    }

    fn topic(self, first_line: &[u8]) -> Result<String> {
        match self {
            MarketRecordingFormat::Betfair => {
                let message: Value = serde_json::from_slice(first_line).context("the line is not JSON")?;
                let id = message["mc"][0]["id"].as_str().context("the line has no market id `mc[0].id`")?;
                Ok(format!("market.betfair.{id}"))
            }
            MarketRecordingFormat::Bitstamp => Ok("market.bitstamp.btcusd".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BETFAIR: &str =
        "{\"op\":\"mcm\",\"pt\":1000,\"mc\":[{\"id\":\"1.5\"}]}\n{\"pt\":1500}\n{\"pt\":1400}\n";
    const BITSTAMP: &str = "id,timestamp,exchange_timestamp,price\r\n1,9,1000,5\r\n2,8,1250,6\r\n";

    fn parse(text: &str, layout: MarketRecordingFormat) -> Result<MarketRecording> {
        MarketRecording::parse("a file", text.as_bytes().to_vec(), layout)
    }

    #[test]
    fn joined_recording_lines_equal_the_original_file() {
        for (text, layout) in
            [(BETFAIR, MarketRecordingFormat::Betfair), (BITSTAMP, MarketRecordingFormat::Bitstamp)]
        {
            let recording = parse(text, layout).unwrap();
            let mut again = Vec::new();
            for at in 0..recording.len() {
                again.extend_from_slice(recording.line(at));
                again.push(b'\n');
            }
            assert_eq!(again, text.as_bytes());
        }
    }

    #[test]
    fn times_are_read_from_recorded_lines_and_never_decrease() {
        let betfair = parse(BETFAIR, MarketRecordingFormat::Betfair).unwrap();
        assert_eq!(betfair.topic, "market.betfair.1.5");
        assert_eq!([0, 1, 2].map(|at| betfair.offset_ms(at)), [0, 500, 500]);
        let bitstamp = parse(BITSTAMP, MarketRecordingFormat::Bitstamp).unwrap();
        assert_eq!([0, 1, 2].map(|at| bitstamp.offset_ms(at)), [0, 0, 250]);
        assert_eq!(bitstamp.span_ms(), 250);
    }

    #[test]
    fn error_for_a_damaged_recording_names_the_line_number() {
        let error = |text: &str, layout| format!("{:#}", parse(text, layout).unwrap_err());
        assert!(error("", MarketRecordingFormat::Betfair).contains("cut short"));
        assert!(error("{\"pt\":1}\n{\"pt\":", MarketRecordingFormat::Betfair).contains("cut short"));
        assert!(
            error("{\"pt\":1,\"mc\":[{\"id\":\"1\"}]}\n{\"op\":1}\n", MarketRecordingFormat::Betfair)
                .starts_with("a file:2: the line has no publish time")
        );
        assert!(
            error("1,2\n", MarketRecordingFormat::Bitstamp)
                .starts_with("a file:1: the line has fewer than three")
        );
        assert!(
            error("1,2,x\n", MarketRecordingFormat::Bitstamp)
                .starts_with("a file:1: the third column has no time")
        );
    }
}

//! The recordings that the demo replays. They are read from files, or generated. The demo shows which markets are
//! generated.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use dunlin_cli::outcome::CommandRefusal;
use dunlin_server::read_file_up_to;

use super::recording::{FILES, MarketRecording, MarketRecordingFormat};

/// The size in bytes of the largest recording that is loaded.
const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// The market recordings that the demo replays: read from files, or generated.
#[derive(Debug)]
pub struct ReplaySource {
    pub recordings: Vec<MarketRecording>,
    /// Whether the markets are generated, because a file was missing and the user allowed generated markets.
    pub generated: bool,
}

impl ReplaySource {
    /// Loads all recordings from `directory`. If a file is missing and `allow_generated` is set, generates all markets
    /// instead.
    pub fn load(directory: &Path, allow_generated: bool) -> Result<ReplaySource> {
        let mut recordings = Vec::new();
        for (file, layout) in FILES {
            let path = directory.join(file);
            match read_file_up_to(&path, RECORDING_BYTES_MAX) {
                Ok(bytes) => {
                    recordings.push(MarketRecording::parse(&path.display().to_string(), bytes, layout)?)
                }
                Err(error) if error.kind() == ErrorKind::NotFound && allow_generated => return generate(),
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(&path)),
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        Ok(ReplaySource { recordings, generated: false })
    }
}

fn missing(path: &Path) -> anyhow::Error {
    CommandRefusal(format!(
        "the recording {} does not exist. `cargo xtask data` downloads all five; --data names their directory; \
         --allow-generated replays generated markets instead",
        path.display()
    ))
    .into()
}

/// Generates markets in the formats of the recordings. The generated markets are the same in every run.
fn generate() -> Result<ReplaySource> {
    const BETFAIR: [(&str, usize); 4] =
        [("1.900000001", 44_000), ("1.900000002", 22_000), ("1.900000003", 22_000), ("1.900000004", 18_000)];
    const BITSTAMP_LINES: usize = 314_000;
    let mut random = Random(0x5eed);
    let mut recordings = Vec::new();
    for (id, lines) in BETFAIR {
        let text = betfair(id, lines, &mut random)?;
        recordings.push(MarketRecording::parse(
            &format!("generated {id}"),
            text.into_bytes(),
            MarketRecordingFormat::Betfair,
        )?);
    }
    let text = bitstamp(BITSTAMP_LINES, &mut random)?;
    recordings.push(MarketRecording::parse(
        "generated orders",
        text.into_bytes(),
        MarketRecordingFormat::Bitstamp,
    )?);
    Ok(ReplaySource { recordings, generated: true })
}

fn betfair(id: &str, lines: usize, random: &mut Random) -> Result<String> {
    let mut text = String::new();
    let mut time_ms = 1_600_000_000_000;
    for _ in 0..lines {
        time_ms += random.below(4_000);
        let (runner, odds, size) = (random.below(12), 101 + random.below(900), random.below(100_000));
        let side = ["atb", "atl"][random.below(2) as usize];
        writeln!(
            text,
            r#"{{"op":"mcm","clk":null,"pt":{time_ms},"mc":[{{"id":"{id}","rc":[{{"{side}":[[{}.{:02},{}.{:02}]],"id":{runner}}}]}}]}}"#,
            odds / 100,
            odds % 100,
            size / 100,
            size % 100
        )?;
    }
    Ok(text)
}

fn bitstamp(lines: usize, random: &mut Random) -> Result<String> {
    let mut text = String::from("id,timestamp,exchange_timestamp,price,volume,action,direction\r\n");
    let mut time_ms: u64 = 1_700_000_000_000;
    for order in 0..lines as u64 / 2 {
        let (price, volume) = (78_000 + random.below(700), random.below(1_000_000_000));
        let direction = ["bid", "ask"][random.below(2) as usize];
        for action in ["created", "deleted"] {
            time_ms += random.below(11);
            let (local, id) = (time_ms + 40, 2_000_000_000_000_000 + order * 4096);
            let volume = format_args!("{}.{:08}", volume / 100_000_000, volume % 100_000_000);
            write!(text, "{id},{local},{time_ms},{price}.0,{volume},{action},{direction}\r\n")?;
        }
    }
    Ok(text)
}

/// The pseudo-random number generator SplitMix64, which is good enough for generated prices.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_recordings_are_generated_only_on_request() {
        let nowhere = Path::new("/nonexistent");
        let error = ReplaySource::load(nowhere, false).unwrap_err();
        assert!(error.is::<CommandRefusal>() && error.to_string().contains("cargo xtask data"), "{error}");
        let source = ReplaySource::load(nowhere, true).unwrap();
        assert!(source.generated);
        let lines: Vec<_> = source.recordings.iter().map(MarketRecording::len).collect();
        assert_eq!(lines, [44_000, 22_000, 22_000, 18_000, 314_001]);
        let minutes = source.recordings[4].span_ms() / 60_000;
        assert!((20..40).contains(&minutes), "{minutes}");
    }
}

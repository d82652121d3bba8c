//! Lost connections: said once, then waited out. The client goes on trying, and resumes where it was.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use dunlin_topic::SubscribeError;

use crate::console::Paint;

/// The client paces its attempts; this only keeps one that does not from spinning.
const PAUSE: Duration = Duration::from_millis(10);

/// Whether the user knows that the connection is lost.
#[derive(Debug, Default)]
pub struct Outage {
    said: bool,
}

impl Outage {
    /// A lost connection is waited out; any other error comes back.
    pub fn wait_out(&mut self, error: SubscribeError, paint: Paint) -> Result<()> {
        let SubscribeError::Connection(why) = error else { return Err(error.into()) };
        self.said_once(&why, paint)
    }

    /// Says that the connection is lost, if that is news.
    pub fn said_once(&mut self, why: &str, paint: Paint) -> Result<()> {
        if !self.said {
            self.said = true;
            writeln!(std::io::stderr(), "{} {why}; trying again", paint.warning("connection lost:"))?;
        }
        thread::sleep(PAUSE);
        Ok(())
    }

    /// Something came.
    #[inline]
    pub fn over(&mut self) {
        self.said = false;
    }
}

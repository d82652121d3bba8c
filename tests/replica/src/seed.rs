//! Makes random decisions that can be repeated: the same seed leads to the same decisions.

/// A generator of random numbers (xorshift) that repeats the same numbers for the same seed.
#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> SeededRandom {
        let mixed = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        SeededRandom((mixed ^ (mixed >> 31)) | 1)
    }

    /// Returns a new seed, for a run to which no seed is given.
    pub fn fresh() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_micros() as u64) ^ u64::from(std::process::id()) << 44
    }

    /// The next random number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }
}

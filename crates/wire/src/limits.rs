/// What a decoder accepts. A message over its limit is refused on its header alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest message that carries records, bytes, header included.
    pub run_bytes_max: usize,
    /// The largest message of any other kind, bytes, header included.
    pub control_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { run_bytes_max: 16 << 20, control_bytes_max: 64 << 10 }
    }
}

//! `errors`: the one table of errors, the same through every door.

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A name or number; all of them without
    code: Option<String>,
}

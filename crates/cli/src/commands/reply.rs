//! `reply`: answers requests.

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin reply echo --echo                       what was sent
  dunlin reply motd --text 'mind the gap'        always the same
  dunlin reply time.now -- date -u               a command's output
  dunlin reply 'math.*' -- bc                    the request is the command's standard input

A command finds the subject in DUNLIN_SUBJECT and each header in DUNLIN_HEADER_<NAME>. When it fails, the reply carries
the header dunlin-error with its exit code.")]
#[command(group = clap::ArgGroup::new("answer").required(true))]
pub struct Arguments {
    /// What to answer; wildcards are fine
    pub pattern: String,
    /// Answer with what was sent
    #[arg(long, group = "answer")]
    pub echo: bool,
    /// Answer with this text
    #[arg(long, group = "answer")]
    pub text: Option<String>,
    /// Answer with the output of this command
    #[arg(last = true, group = "answer", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
}

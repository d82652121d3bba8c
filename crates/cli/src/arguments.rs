//! The tree of commands, and what is common to all of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::parser::ValueSource;
use clap::{ArgMatches, Parser, Subcommand, ValueEnum};

use crate::commands::{
    bench, cluster, completions, config, demo, dev, elect, errors, feed, kv, lock, log, man, publish, reply,
    report, request, scale, serve, space, subscribe, subscriptions, task, top, topics, user,
};
use crate::outcome::Refusal;

/// Publish, subscribe, and be told exactly what you missed
///
/// A node keeps topics: sequenced logs in memory. Every subscriber sees every record of a topic in order, or is told
/// which records it missed.
#[derive(Debug, Parser)]
#[command(name = "dunlin", version, styles = STYLES, max_term_width = 80)]
#[command(after_help = after_help())]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

const TRY_IT: &str = "\
Try it:
  dunlin dev                                    start a node
  yes tick | dunlin pub ticks                   publish as fast as it goes
  dunlin sub ticks --sleep 1ms --on-gap newest  a reader that cannot keep up, and is told so";

fn after_help() -> String {
    format!("{TRY_IT}\n\n{}", crate::outcome::EXIT_CODES)
}

/// The colours of help texts.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Where the password of who connects may be named, too.
pub const PASSWORD_FILE: &str = "DUNLIN_PASSWORD_FILE";

/// Options every command takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The node to talk to, or several nodes (HOST:PORT,HOST:PORT): dunlin://HOST:PORT, tls://HOST:PORT or unix:///PATH [default: dunlin://127.0.0.1:4220]
    #[arg(long, global = true, env = "DUNLIN_URL")]
    pub url: Option<String>,
    /// Our user, for a node that asks; its password is in --password-file
    #[arg(long, global = true, env = "DUNLIN_USER", value_name = "NAME")]
    pub user: Option<String>,
    /// The file with our user's password
    #[arg(long, global = true, env = PASSWORD_FILE, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The file with our token, in the place of user and password
    #[arg(long, global = true, env = "DUNLIN_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates of the authorities that may vouch for a tls:// node, PEM [default: the system's]
    #[arg(long, global = true, env = "DUNLIN_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Our own certificate, for a tls:// node that asks for one, PEM
    #[arg(long, global = true, env = "DUNLIN_CLIENT_CERT", value_name = "FILE")]
    pub client_cert: Option<PathBuf>,
    /// The key of our own certificate, PEM
    #[arg(long, global = true, env = "DUNLIN_CLIENT_KEY", value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Print one JSON object per line instead of a table
    #[arg(long, global = true)]
    pub json: bool,
    /// When to colour the output; NO_COLOR is respected
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true
    )]
    #[arg(help = "When to colour: auto, always or never; NO_COLOR and CLICOLOR_FORCE are respected")]
    pub color: Color,
}

/// Takes out what the environment says against an option of the command line.
pub fn prefer_command_line(matches: &mut ArgMatches) {
    let is_given = |matches: &ArgMatches, name: &str| {
        let is_there = matches.ids().any(|id| id == name);
        is_there && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    let mut deepest: &ArgMatches = matches;
    while let Some((_, below)) = deepest.subcommand() {
        deepest = below;
    }
    // A command that listens by itself is not at another node.
    let instead_of_url = is_given(deepest, "listen");
    let instead_of_token = is_given(matches, "user") || is_given(matches, "password_file");
    if instead_of_url && !is_given(matches, "url") {
        // Where there is none, none is to be taken out.
        let _ = matches.try_remove_one::<String>("url");
    }
    if instead_of_token && !is_given(matches, "token_file") {
        let _ = matches.try_remove_one::<PathBuf>("token_file");
    }
}

/// Refuses both a node of the command's own and another one.
pub fn either_listen_or_url(listen: Option<SocketAddr>, global: &Global) -> Result<(), Refusal> {
    match (listen, &global.url) {
        (Some(listen), Some(url)) => {
            Err(Refusal(format!("--listen {listen} and --url {url}: give one of the two")))
        }
        _ => Ok(()),
    }
}

/// When to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node
    Serve(serve::Arguments),
    /// Run a node to try things on: it says where it listens and what to type next
    Dev(dev::Arguments),
    /// Look after a cluster: see its nodes, let others in, hand the lead over, back it up
    Cluster(cluster::Arguments),
    /// Publish records: arguments, lines of standard input, or files
    Pub(publish::Arguments),
    /// Read records, and be told what was missed
    Sub(subscribe::Arguments),
    /// Send a request and print the replies
    Req(request::Arguments),
    /// Answer requests: with a command's output, a fixed text, or what was sent
    Reply(reply::Arguments),
    /// List, create, delete and describe topics
    Topics(topics::Arguments),
    /// Keys and values that all nodes of a cluster agree on: read, written, compared and watched
    Kv(kv::Arguments),
    /// Run a command while holding a lock
    Lock(lock::Arguments),
    /// Beside `lock`, started by it: kills the command when `lock` is killed or its lease is over
    #[command(hide = true)]
    LockGuard,
    /// Be elected, and stay so until ended
    Elect(elect::Arguments),
    /// Work for workers that come and go: submitted, done, looked at, tried again
    Task(task::Arguments),
    /// How a node does, in the terminal: rates, memory, who is slow, topics, cluster, work and worlds
    Top(top::Arguments),
    /// Who reads what, and how far behind
    Subscriptions(subscriptions::Arguments),
    /// Look into the logs behind topics
    Log(log::Arguments),
    /// How many workers there should be: planned, recommended, simulated
    Scale(scale::Arguments),
    /// A world full of moving entities, over as many processes as wanted
    Space(space::Arguments),
    /// Order books and other live state: made up, watched, recorded and replayed
    Feed(feed::Arguments),
    /// Replay recorded markets to many subscribers, and account for every record
    Demo(demo::Arguments),
    /// Measure: this node, or real peers beside it
    Bench(bench::Arguments),
    /// Turn kept benchmark runs into a page
    Report(report::Arguments),
    /// Show a node's configuration and where each value came from
    Config(config::Arguments),
    /// Who may come in: add, remove and list users, and make tokens
    User(user::Arguments),
    /// Explain error codes
    Errors(errors::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print the manual page
    Man(man::Arguments),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_tree_passes_the_debug_checks_of_clap() {
        Arguments::command().debug_assert();
    }
}

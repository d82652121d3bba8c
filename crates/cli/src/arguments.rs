//! The commands of `dunlin`, and the options that all of them share.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::parser::ValueSource;
use clap::{ArgMatches, Parser, Subcommand, ValueEnum};

use crate::commands::{
    bench, cluster, completions, config, demo, dev, elect, errors, feed, kv, lock, log, man, publish, reply,
    report, request, scale, serve, space, subscribe, subscriptions, task, top, topics, user,
};
use crate::outcome::CommandRefusal;

/// Publish and subscribe to topics, with exact reports of missed records
///
/// A node keeps topics: ordered logs of records.
/// Each subscriber receives every record of a topic in order, or a report of exactly which records it missed.
#[derive(Debug, Parser)]
#[command(name = "dunlin", version, styles = STYLES, max_term_width = 80)]
#[command(after_help = after_help())]
pub struct Arguments {
    #[command(subcommand)]
    pub command: CliCommand,
    #[command(flatten)]
    pub global: GlobalOptions,
}

const TRY_IT: &str = "\
Try it:
  dunlin dev                                    start a node
  yes tick | dunlin pub ticks                   publish at full speed
  dunlin sub ticks --sleep 1ms --on-gap newest  subscribe too slowly and see gaps";

fn after_help() -> String {
    format!("{TRY_IT}\n\n{}", crate::outcome::EXIT_CODES)
}

/// The colours of help texts.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The environment variable that names the file with the user's password.
pub const PASSWORD_FILE: &str = "DUNLIN_PASSWORD_FILE";

/// The options that every command of `dunlin` accepts.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalOptions {
    /// Address of the node: dunlin://HOST:PORT, tls://HOST:PORT or unix:///PATH; for several nodes of a cluster:
    /// dunlin://HOST:PORT,HOST:PORT [default: dunlin://127.0.0.1:4220]
    #[arg(long, global = true, env = "DUNLIN_URL")]
    pub url: Option<String>,
    /// User name, for a node that requires one; needs --password-file
    #[arg(long, global = true, env = "DUNLIN_USER", value_name = "NAME")]
    pub user: Option<String>,
    /// File with the user's password
    #[arg(long, global = true, env = PASSWORD_FILE, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File with an access token, used instead of user name and password
    #[arg(long, global = true, env = "DUNLIN_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with the certificate authorities (PEM) to trust for a tls:// node [default: the system's]
    #[arg(long, global = true, env = "DUNLIN_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// File with the client certificate (PEM), for a tls:// node that requires one
    #[arg(long, global = true, env = "DUNLIN_CLIENT_CERT", value_name = "FILE")]
    pub client_cert: Option<PathBuf>,
    /// File with the private key of --client-cert (PEM)
    #[arg(long, global = true, env = "DUNLIN_CLIENT_KEY", value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// When to print colours: auto, always or never; auto respects NO_COLOR and CLICOLOR_FORCE
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: Color,
}

/// Ignores an environment variable if the command line has an option that conflicts with this variable.
pub fn prefer_command_line(matches: &mut ArgMatches) {
    let is_given = |matches: &ArgMatches, name: &str| {
        let is_there = matches.ids().any(|id| id == name);
        is_there && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    let mut deepest: &ArgMatches = matches;
    while let Some((_, below)) = deepest.subcommand() {
        deepest = below;
    }
    // A command with `--listen` starts its own node. An environment variable with the URL of a node is then ignored.
    let instead_of_url = is_given(deepest, "listen");
    let instead_of_token = is_given(matches, "user") || is_given(matches, "password_file");
    if instead_of_url && !is_given(matches, "url") {
        // `--url` is not an option of every command.
        let _ = matches.try_remove_one::<String>("url");
    }
    if instead_of_token && !is_given(matches, "token_file") {
        let _ = matches.try_remove_one::<PathBuf>("token_file");
    }
}

/// Returns an error if both `--listen` and `--url` are set.
pub fn either_listen_or_url(
    listen: Option<SocketAddr>,
    global: &GlobalOptions,
) -> Result<(), CommandRefusal> {
    match (listen, &global.url) {
        (Some(listen), Some(url)) => Err(CommandRefusal(format!(
            "--listen {listen} cannot be used with --url {url}: give only one of them"
        ))),
        _ => Ok(()),
    }
}

/// A value of option `--color`, which decides whether output is coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// The commands of `dunlin`.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run a node
    Serve(serve::Arguments),
    /// Run a node for development: open all listeners and print commands to try
    Dev(dev::Arguments),
    /// Manage a cluster: show, add and remove nodes, change the leader, back up and restore
    Cluster(cluster::Arguments),
    /// Publish records from arguments, standard input or files
    Pub(publish::Arguments),
    /// Subscribe to subjects; print their records and report gaps
    Sub(subscribe::Arguments),
    /// Send a request and print the reply
    Req(request::Arguments),
    /// Reply to requests with a command's output, a fixed text or the request itself
    Reply(reply::Arguments),
    /// List, create, delete, move and describe topics
    Topics(topics::Arguments),
    /// Read, write, compare and watch keys that all nodes of a cluster agree on
    Kv(kv::Arguments),
    /// Run a command while holding a lock
    Lock(lock::Arguments),
    /// Watch a `dunlin lock` process; if it is killed or its lease ends, kill its command
    #[command(hide = true)]
    LockGuard,
    /// Take part in an election and stay elected until stopped
    Elect(elect::Arguments),
    /// Submit, run, list and retry tasks
    Task(task::Arguments),
    /// Show a node's rates, memory, slowest subscribers, topics, cluster, tasks and worlds
    Top(top::Arguments),
    /// List subscriptions and their lag
    Subscriptions(subscriptions::Arguments),
    /// Print the records of a topic's log
    Log(log::Arguments),
    /// Plan, recommend or simulate the number of workers for tasks
    Scale(scale::Arguments),
    /// Run and watch a world of moving entities, on one or more processes
    Space(space::Arguments),
    /// Simulate, watch, import, record, replay and verify order books and other states
    Feed(feed::Arguments),
    /// Replay recorded markets to many subscribers, and check that none loses a record unnoticed
    Demo(demo::Arguments),
    /// Measure the performance of Dunlin, alone or compared with other systems
    Bench(bench::Arguments),
    /// Write a report page from benchmark runs
    Report(report::Arguments),
    /// Print a node's configuration, with the source of each value
    Config(config::Arguments),
    /// Add, change, remove and list users, and create access tokens
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

//! The command-line flags of a node's configuration. Each key of the table [`KEYS`] has a flag.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::keys::{ConfigKey, DEV_DEFAULTS, KEYS};
use super::raw::{RawConfig, ValueOrigin};

/// The command-line flags of a node's configuration: the path of the configuration file, and the keys that flags have
/// set.
#[derive(Debug, Default)]
pub struct ConfigFlags {
    pub file: Option<PathBuf>,
    set: Vec<(usize, String)>,
}

impl ConfigFlags {
    /// Reads the values from the file and the environment variables, and applies the flags. Flags take precedence over
    /// variables, and variables over the file. Returns the values and the warnings to print.
    pub fn gather(&self) -> Result<(RawConfig, Vec<String>)> {
        self.gather_with_defaults(RawConfig::defaults())
    }

    /// Like [`gather`](ConfigFlags::gather), but with the defaults in `raw`.
    pub fn gather_with_defaults(&self, mut raw: RawConfig) -> Result<(RawConfig, Vec<String>)> {
        if let Some(path) = &self.file {
            raw.read_file(path)?;
        }
        let warnings = raw.apply_variables(std::env::vars_os())?;
        for (key, text) in &self.set {
            raw.set(*key, text.clone(), ValueOrigin::Flag(KEYS[*key].flag()));
        }
        Ok((raw, warnings))
    }
}

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("DUNLIN_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Configuration file (TOML); DUNLIN_* variables and flags take precedence over it");
        let command = command.next_help_heading("Configuration").arg(file);
        KEYS.iter().map(argument).fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(key: &ConfigKey) -> Arg {
    let argument = Arg::new(key.name)
        .long(key.flag())
        .value_name(key.value)
        .action(ArgAction::Set)
        .help(format!("{} [default: {}]", key.help, default_of(key)));
    let argument = match key.name {
        "cluster.join" => argument.visible_alias("join"),
        _ => argument,
    };
    if key.is_switch() {
        argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(["true", "false"])
            .hide_possible_values(true)
    } else {
        argument
    }
}

/// Returns the text about a key's default in the help.
fn default_of(key: &ConfigKey) -> String {
    let in_dev = DEV_DEFAULTS.iter().find(|(name, _)| *name == key.name);
    in_dev
        .map_or_else(|| key.default.to_owned(), |(_, dev)| format!("{}; {dev} with dunlin dev", key.default))
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ConfigFlags, clap::Error> {
        let mut flags = ConfigFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one("config").cloned();
        let flag_text = |(at, key): (usize, &ConfigKey)| {
            matches.get_one::<String>(key.name).map(|text| (at, text.clone()))
        };
        self.set = KEYS.iter().enumerate().filter_map(flag_text).collect();
        Ok(())
    }
}

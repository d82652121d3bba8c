//! The values of a node's configuration as text, and where they come from.
//!
//! A flag takes precedence over an environment variable, a variable over the file, and the file over the default. This
//! module does not interpret values, so that a later error can quote the text and name its source.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dunlin_server::read_text;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, KEYS, VARIABLE_PREFIX};

/// Where a configuration value comes from: the default, the file, an environment variable or a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    Default,
    File { path: PathBuf, line: usize },
    Variable(String),
    Flag(String),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueOrigin::Default => f.write_str("default"),
            ValueOrigin::File { path, line } => write!(f, "{}:{line}", path.display()),
            ValueOrigin::Variable(name) => f.write_str(name),
            ValueOrigin::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// The text of one configuration value, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigValue {
    pub text: String,
    pub origin: ValueOrigin,
}

/// The texts of all configuration values before validation, in the order of [`KEYS`].
#[derive(Debug, Clone)]
pub struct RawConfig {
    settings: Vec<ConfigValue>,
}

impl RawConfig {
    /// Creates a configuration in which each key has its default.
    pub fn defaults() -> RawConfig {
        let setting = |key: &keys::ConfigKey| ConfigValue {
            text: key.default.to_owned(),
            origin: ValueOrigin::Default,
        };
        RawConfig { settings: KEYS.iter().map(setting).collect() }
    }

    /// Creates a configuration in which each key has its default for `dunlin dev`.
    pub fn dev_defaults() -> RawConfig {
        let mut raw = RawConfig::defaults();
        for (name, text) in keys::DEV_DEFAULTS {
            raw.set_default(name, text);
        }
        raw
    }

    /// Replaces the default of the key named `name` by `text`.
    pub fn set_default(&mut self, name: &str, text: &str) {
        if let Some(key) = keys::find(name) {
            self.set(key, text.to_owned(), ValueOrigin::Default);
        }
    }

    /// Sets the value of a key and the origin of the value. `key` is the key's index in [`KEYS`].
    pub fn set(&mut self, key: usize, text: String, origin: ValueOrigin) {
        self.settings[key] = ConfigValue { text, origin };
    }

    /// Reads the TOML file at `path`. The values in the file replace the present ones.
    pub fn read_file(&mut self, path: &Path) -> Result<()> {
        let text =
            read_text(path).with_context(|| format!("cannot read the configuration {}", path.display()))?;
        self.apply_toml(&text, path)
    }

    /// Reads the environment variables `DUNLIN_*` among `variables`. Their values replace the present ones. Returns a
    /// warning for each unknown variable.
    pub fn apply_variables(
        &mut self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        // All of this program's variables have names in ASCII, so a name that is not valid UTF-8 belongs to another
        // program.
        let variables = variables.filter_map(|(name, text)| Some((name.into_string().ok()?, text)));
        for (name, text) in variables.filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)) {
            if let Some(key) = KEYS.iter().position(|key| key.variable() == name) {
                let Ok(text) = text.into_string() else { bail!("the variable {name} is not valid UTF-8") };
                self.set(key, text, ValueOrigin::Variable(name));
            } else if !VARIABLES_OF_CLIENTS.contains(&name.as_str()) {
                let nearest = keys::nearest(&name, KEYS.iter().map(keys::ConfigKey::variable));
                let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"));
                warnings.push(format!("the variable {name} sets no key{hint}"));
            }
        }
        Ok(warnings)
    }

    /// Returns each key with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static keys::ConfigKey, &ConfigValue)> {
        KEYS.iter().zip(&self.settings)
    }

    pub fn get(&self, name: &str) -> &ConfigValue {
        &self.settings[keys::find(name).expect("the name is in the table of keys")]
    }

    fn apply_toml(&mut self, text: &str, path: &Path) -> Result<()> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            anyhow::anyhow!("{}:{line}: {}", path.display(), error.message())
        })?;
        self.apply_table("", table.get_ref(), text, path)
    }

    fn apply_table(&mut self, prefix: &str, table: &DeTable<'_>, text: &str, path: &Path) -> Result<()> {
        for (name, value) in table.iter() {
            let full = format!("{prefix}{}", name.get_ref());
            let line = line_of(text, name.span().start);
            if let DeValue::Table(inner) = value.get_ref()
                && KEYS.iter().any(|key| key.name.starts_with(&format!("{full}.")))
            {
                self.apply_table(&format!("{full}."), inner, text, path)?;
                continue;
            }
            let Some(key) = keys::find(&full) else {
                let nearest = keys::nearest(&full, KEYS.iter().map(|key| key.name.to_owned()));
                let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
                bail!("{}:{line}: there is no key {full:?}{hint}", path.display());
            };
            let Some(value) = plain(value) else {
                bail!("{}:{line}: {full} takes one value, not a table or list", path.display());
            };
            self.set(key, value, ValueOrigin::File { path: path.to_owned(), line });
        }
        Ok(())
    }
}

/// The environment variables that commands read to connect to a node. They are not keys of the configuration.
const VARIABLES_OF_CLIENTS: &[&str] = &[
    "DUNLIN_URL",
    "DUNLIN_USER",
    "DUNLIN_PASSWORD_FILE",
    "DUNLIN_TOKEN_FILE",
    "DUNLIN_CONFIG",
    "DUNLIN_CA",
    "DUNLIN_CLIENT_CERT",
    "DUNLIN_CLIENT_KEY",
    "DUNLIN_STALL",
];

fn plain(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn parse(text: &str) -> Result<RawConfig> {
        let mut raw = RawConfig::defaults();
        raw.apply_toml(text, Path::new("d.toml")).map(|()| raw)
    }

    #[test]
    fn value_from_a_file_keeps_its_line_number() {
        let raw = parse("# a node\nlisten = \"127.0.0.1:0\"\n[retention]\nrecords = 1000\n").unwrap();
        assert_eq!(raw.get("listen").origin.to_string(), "d.toml:2");
        assert_eq!(raw.get("retention.records").text, "1000");
        assert_eq!(raw.get("retention.records").origin.to_string(), "d.toml:4");
        assert_eq!(raw.get("retention.bytes").origin, ValueOrigin::Default);
    }

    #[test]
    fn example_file_lists_every_key_with_its_default() {
        let example = crate::config::example();
        assert_eq!(
            parse(&example).unwrap().settings,
            RawConfig::defaults().settings,
            "all of it is commented out"
        );
        let is_key =
            |line: &str| line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_lowercase());
        let set: Vec<&str> =
            example.lines().map(|line| if is_key(line) { &line[1..] } else { line }).collect();
        let raw = parse(&set.join("\n")).unwrap();
        for (setting, key) in raw.settings.iter().zip(KEYS) {
            assert_eq!(setting.text, key.default, "{}", key.name);
            assert!(matches!(setting.origin, ValueOrigin::File { .. }), "{} is not in it", key.name);
        }
        let page = include_str!("../../../../docs/configuration.md");
        let shown = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(
            shown,
            Some(example.as_str()),
            "docs/configuration.md: put in what `dunlin config example` prints"
        );
    }

    #[test]
    fn error_for_an_unknown_key_suggests_the_nearest_key() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("[retention]\nbyte = 5"),
            "d.toml:2: there is no key \"retention.byte\"; did you mean \"retention.bytes\"?"
        );
        assert_eq!(
            error("heartbeats_ms = 5"),
            "d.toml:1: there is no key \"heartbeats_ms\"; did you mean \"heartbeat_ms\"?"
        );
        assert_eq!(error("listen = [1]"), "d.toml:1: listen takes one value, not a table or list");
        assert!(error("listen = ").starts_with("d.toml:1: "));
    }

    #[test]
    fn variables_override_the_file_and_misspelt_ones_cause_warnings() {
        let mut raw = parse("listen = \"127.0.0.1:1\"").unwrap();
        let variables =
            [("DUNLIN_LISTEN", "127.0.0.1:2"), ("DUNLIN_LISTN", "x"), ("DUNLIN_URL", "y"), ("HOME", "/")];
        let warnings = raw.apply_variables(variables.iter().map(|(n, v)| (n.into(), v.into()))).unwrap();
        assert_eq!(raw.get("listen").text, "127.0.0.1:2");
        assert_eq!(warnings, ["the variable DUNLIN_LISTN sets no key; did you mean DUNLIN_LISTEN?"]);
    }

    #[test]
    fn dunlin_ca_variable_may_hold_a_file_name_that_is_not_utf8() {
        let variable = (OsString::from("DUNLIN_CA"), OsString::from_vec(b"/ca\xff".to_vec()));
        let warnings = RawConfig::defaults().apply_variables(std::iter::once(variable)).unwrap();
        assert_eq!(warnings, [""; 0]);
    }
}

//! Creates the text of an example configuration file. The text contains every key of the table [`KEYS`] with its
//! default, as a comment.

use std::fmt::Write;

use super::keys::{ConfigKey, KEYS};

const HEAD: &str = "\
# All settings of a node, with their defaults. Remove the # before a key to set
# it. DUNLIN_* variables take precedence over this file, and flags over both.
# `dunlin config show --config FILE` prints each value and its source.
";

/// The largest width of a comment line in the example file, in columns.
const WIDTH: usize = 80;

/// Returns the text of the example file.
pub fn example() -> String {
    let mut text = HEAD.to_owned();
    let table_of = |key: &ConfigKey| key.name.split_once('.').map(|(table, _)| table);
    // Keys without a TOML table must come before the first table.
    for key in KEYS.iter().filter(|key| table_of(key).is_none()) {
        write_key(key, key.name, &mut text);
    }
    let mut tables: Vec<&str> = Vec::new();
    for table in KEYS.iter().filter_map(table_of) {
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    for table in tables {
        let _ = write!(text, "\n[{table}]\n");
        for key in KEYS.iter().filter(|key| table_of(key) == Some(table)) {
            write_key(key, &key.name[table.len() + 1..], &mut text);
        }
    }
    text
}

fn write_key(key: &ConfigKey, name: &str, text: &mut String) {
    let mut line = String::from("\n#");
    for word in key.help.split_whitespace() {
        if line.trim_start().chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            line = String::from("\n#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    let is_bare = key.default.parse::<u64>().is_ok() || key.is_switch();
    let value = if is_bare { key.default.to_owned() } else { format!("{:?}", key.default) };
    let _ = write!(text, "\n# {}\n#{name} = {value}\n", key.value);
}

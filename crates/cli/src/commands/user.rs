//! The command `dunlin user`, which manages the users in the users file.
//!
//! A command replaces only the entries that it changes, and keeps the formatting and the comments of the file.

mod password;
mod users_file;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dunlin::{KeyPattern, KeyRule, Permissions, SubjectRule};
use dunlin_server::access::{TENANT_DEFAULT, UserDirectory, UserInfo, hash_password, is_name, new_token};
use dunlin_topic::Pattern;
use serde_json::json;
use toml_edit::{Array, DocumentMut, Item, Table as Toml, value};

use crate::arguments::{GlobalOptions, PASSWORD_FILE};
use crate::console::Console;
use crate::outcome::CommandRefusal;
use crate::table::TextTable;

pub use password::trim_line_end;
use users_file::{edit, read, read_or_new};

/// Arguments of `dunlin user`, which changes the users file.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
The limits of users and all settings of tenants have no option: edit the users file. A running node reads it again
within seconds. docs/security.md describes it.")]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
    /// Users file, which `dunlin serve --auth-users-file` reads
    #[arg(
        long,
        global = true,
        env = "DUNLIN_AUTH_USERS_FILE",
        value_name = "FILE",
        default_value = "users.toml"
    )]
    users_file: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Add a user
    #[command(after_help = "\
Examples:
  dunlin user add ana --tenant acme --publish 'acme.orders.>' --subscribe 'acme.>' --deny-subscribe 'acme.secret.>'
  dunlin user add robot --no-password --publish '>'   a user with tokens only; then: dunlin user token robot

The command asks for the password on the terminal, or reads it from a file or standard input. It is never an argument,
because other users of the machine can see arguments.")]
    Add(Box<Add>),
    /// Change a user: each given option replaces its old value, and the others stay
    #[command(after_help = "\
Examples:
  dunlin user change ana --publish 'acme.>'             replace this permission
  dunlin user change ana --without create --without surveys
  dunlin user change ana --password-from ana.password   replace the password; `-` asks for it on the terminal")]
    Change(Box<Change>),
    /// Create an access token for a user and print it; the users file keeps only the token's hash
    Token {
        /// Name of the user
        name: String,
    },
    /// Remove a user; a running node ends the user's connections
    Remove {
        /// Name of the user
        name: String,
    },
    /// List users and their permissions
    List,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Name of the user: 1 to 64 letters, digits, or any of _-.@
    name: String,
    /// Tenant of the user [default: `default`]
    #[arg(long)]
    tenant: Option<String>,
    /// File with the password; a newline at its end is ignored [default: ask, or read standard input]
    #[arg(long, value_name = "FILE", conflicts_with = "no_password")]
    password_from: Option<PathBuf>,
    /// Add the user without a password, for use with tokens
    #[arg(long)]
    no_password: bool,
    #[command(flatten)]
    permissions: UserPermissions,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// Name of the user
    name: String,
    /// File with the new password; a newline at its end is ignored; `-` asks for it or reads standard input
    #[arg(long, value_name = "FILE")]
    password_from: Option<PathBuf>,
    /// Setting to remove from the user; may be given several times
    #[arg(long, value_name = "SETTING", value_parser = REMOVABLE_SETTINGS)]
    without: Vec<String>,
    #[command(flatten)]
    permissions: UserPermissions,
}

/// The settings of a user that `--without` can remove, as the users file names them.
const REMOVABLE_SETTINGS: [&str; 19] = [
    "publish",
    "publish_deny",
    "subscribe",
    "subscribe_deny",
    "create",
    "create_deny",
    "delete",
    "delete_deny",
    "groups",
    "groups_deny",
    "keys",
    "keys_read",
    "keys_deny",
    "tasks",
    "surveys",
    "password",
    "tokens",
    "certificates",
    "nkeys",
];

#[derive(Debug, clap::Args)]
#[group(skip)]
struct UserPermissions {
    /// Subject, or alternative name, of a client certificate that identifies the user; may be given several times
    #[arg(long, value_name = "TEXT")]
    certificate: Vec<String>,
    /// Public key (nkey) of a NATS user, 56 letters and digits that begin with U; may be given several times
    #[arg(long, value_name = "KEY")]
    nkey: Vec<String>,
    /// Subjects to which the user may publish; may be given several times
    #[arg(long, value_name = "PATTERN")]
    publish: Vec<String>,
    /// Subjects to which the user may not publish although --publish allows them; may be given several times
    #[arg(long, value_name = "PATTERN")]
    deny_publish: Vec<String>,
    /// Subjects to which the user may subscribe; may be given several times
    #[arg(long, value_name = "PATTERN")]
    subscribe: Vec<String>,
    /// Subjects to which the user may not subscribe although --subscribe allows them; may be given several times
    #[arg(long, value_name = "PATTERN")]
    deny_subscribe: Vec<String>,
    /// Topics that the user may create; may be given several times
    #[arg(long, value_name = "PATTERN")]
    create: Vec<String>,
    /// Topics that the user may not create although --create allows them; may be given several times
    #[arg(long, value_name = "PATTERN")]
    deny_create: Vec<String>,
    /// Topics that the user may delete; may be given several times
    #[arg(long, value_name = "PATTERN")]
    delete: Vec<String>,
    /// Topics that the user may not delete although --delete allows them; may be given several times
    #[arg(long, value_name = "PATTERN")]
    deny_delete: Vec<String>,
    /// Groups that the user may join; may be given several times
    #[arg(long, value_name = "PATTERN")]
    groups: Vec<String>,
    /// Groups that the user may not join although --groups allows them; may be given several times
    #[arg(long, value_name = "PATTERN")]
    deny_groups: Vec<String>,
    /// Keys that the user may read and write: a key, or a prefix with * at its end; may be given several times
    #[arg(long, value_name = "KEYS")]
    keys: Vec<String>,
    /// Keys that the user may read but not write: a key, or a prefix with * at its end; may be given several times
    #[arg(long, value_name = "KEYS")]
    read_keys: Vec<String>,
    /// Keys that the user may not read or write although --keys or --read-keys allows them; may be given several times
    #[arg(long, value_name = "KEYS")]
    deny_keys: Vec<String>,
    /// Task permission: submit (own tenant), work (all tenants), work:TENANT or manage; may be given several times
    #[arg(long, value_name = "PERMISSION")]
    tasks: Vec<String>,
    /// Allow the user to see metrics and subscriptions
    #[arg(long)]
    surveys: bool,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let file = &arguments.users_file;
    // `--password-file` is for commands that log in at a node, but `dunlin user` uses no node. The option is therefore
    // an error. The environment variable is not an error, because it may be set for other commands.
    if global.password_file.is_some()
        && global.password_file != std::env::var_os(PASSWORD_FILE).map(Into::into)
    {
        bail!(
            "--password-file has no effect here, because this command does not connect to a node: use --password-from FILE"
        );
    }
    match &arguments.subcommand {
        Subcommand::Add(user) => add(file, user, console),
        Subcommand::Change(user) => change(file, user, console),
        Subcommand::Token { name } => token(file, name),
        Subcommand::Remove { name } => remove(file, name, console),
        Subcommand::List => list(file, console),
    }
}

fn add(file: &Path, add: &Add, console: &Console) -> Result<()> {
    if !is_name(&add.name) {
        bail!(CommandRefusal(format!(
            "user name {:?} is invalid: use 1 to 64 letters, digits, or any of _-.@",
            add.name
        )));
    }
    let refuse_existing = |users: &Toml| -> Result<()> {
        if users.contains_key(&add.name) {
            let name = &add.name;
            bail!(CommandRefusal(format!(
                "user {name} already exists: `dunlin user change {name}` changes permissions and password"
            )));
        }
        Ok(())
    };
    // `edit` repeats this check while the file is locked. The check is also made here, so that a refused command does
    // not first ask for a password.
    refuse_existing(table(&mut read_or_new(file)?, "users")?)?;
    let mut user = Toml::new();
    if let Some(tenant) = &add.tenant {
        user["tenant"] = value(tenant);
    }
    if !add.no_password {
        let password = password::read(add.password_from.as_deref(), &add.name)?;
        user["password"] = value(hash_password(&password)?);
    }
    add.permissions.write_to(&mut user);
    edit(file, read_or_new, |document| {
        let users = table(document, "users")?;
        refuse_existing(users)?;
        users.insert(&add.name, Item::Table(user.clone()));
        if let Some(tenant) = add.tenant.as_deref().filter(|tenant| *tenant != TENANT_DEFAULT) {
            let tenants = table(document, "tenants")?;
            tenants.entry(tenant).or_insert_with(|| Item::Table(Toml::new()));
        }
        Ok(())
    })?;
    print_done("added", &format!("{} added to {}", add.name, file.display()), &add.name, console)?;
    show(file, &add.name, console)
}

fn change(file: &Path, change: &Change, console: &Console) -> Result<()> {
    // `edit` repeats this check while the file is locked. The check is also made here, so that a refused command does
    // not first ask for a password.
    find_user(&mut read(file)?, &change.name)?;
    let mut password = None;
    if let Some(from) = &change.password_from {
        let from = (from.as_os_str() != "-").then_some(from.as_path());
        password = Some(hash_password(&password::read(from, &change.name)?)?);
    }
    edit(file, read, |document| {
        let user = find_user(document, &change.name)?;
        if let Some(password) = &password {
            user["password"] = value(password);
        }
        for setting in &change.without {
            user.remove(setting);
        }
        change.permissions.write_to(user);
        Ok(())
    })?;
    print_done("changed", &format!("{} changed in {}", change.name, file.display()), &change.name, console)?;
    show(file, &change.name, console)
}

/// Prints what the command did: as the text `text`, or with `--json` as an object that contains `done` and `user`.
fn print_done(done: &str, text: &str, user: &str, console: &Console) -> Result<()> {
    let mut out = console.out();
    match console.json {
        true => writeln!(out, "{}", json!({"user": user, "done": done}))?,
        false => writeln!(out, "{text}")?,
    }
    Ok(out.flush()?)
}

/// Prints all permissions of the user named `name`, so that the operator sees the result of a change.
fn show(file: &Path, name: &str, console: &Console) -> Result<()> {
    if console.json {
        return Ok(());
    }
    let users = UserDirectory::read(file)?;
    let Some(user) = users.list().find(|user| user.name == name) else { return Ok(()) };
    let mut out = console.out();
    for line in permission_lines(user.permissions) {
        writeln!(out, "  {line}")?;
    }
    Ok(out.flush()?)
}

impl UserPermissions {
    fn write_to(&self, user: &mut Toml) {
        for (name, patterns) in [
            ("certificates", &self.certificate),
            ("nkeys", &self.nkey),
            ("publish", &self.publish),
            ("publish_deny", &self.deny_publish),
            ("subscribe", &self.subscribe),
            ("subscribe_deny", &self.deny_subscribe),
            ("create", &self.create),
            ("create_deny", &self.deny_create),
            ("delete", &self.delete),
            ("delete_deny", &self.deny_delete),
            ("groups", &self.groups),
            ("groups_deny", &self.deny_groups),
            ("keys", &self.keys),
            ("keys_read", &self.read_keys),
            ("keys_deny", &self.deny_keys),
            ("tasks", &self.tasks),
        ] {
            if !patterns.is_empty() {
                user[name] = value(patterns.iter().collect::<Array>());
            }
        }
        if self.surveys {
            user["surveys"] = value(true);
        }
    }
}

/// Formats the permissions of a user in one line for each kind. They are already limited to what the tenant's
/// permissions allow.
fn permission_lines(permissions: &Permissions) -> Vec<String> {
    let rules = [
        ("publish", &permissions.publish),
        ("subscribe", &permissions.subscribe),
        ("create", &permissions.create),
        ("delete", &permissions.delete),
        ("groups", &permissions.groups),
    ];
    let mut rules: Vec<_> =
        rules.map(|(name, SubjectRule { allow, deny })| (name, texts(allow), texts(deny))).into();
    let KeyRule { allow, read, deny } = &permissions.keys;
    rules.push(("keys", key_texts(allow), key_texts(deny)));
    rules.push(("keys_read", key_texts(read), key_texts(deny)));
    let mut lines: Vec<String> = Vec::new();
    for (name, allow, deny) in rules.into_iter().filter(|(_, allow, _)| !allow.is_empty()) {
        let not = if deny.is_empty() { String::new() } else { format!(", not {}", deny.join(" ")) };
        lines.push(format!("{name} {}{not}", allow.join(" ")));
    }
    if permissions.tasks.is_any() {
        lines.push(format!("tasks {}", permissions.tasks));
    }
    if permissions.surveys {
        lines.push("surveys".to_owned());
    }
    if lines.is_empty() {
        lines.push("nothing".to_owned());
    }
    lines
}

fn token(file: &Path, name: &str) -> Result<()> {
    let (token, hash) = new_token()?;
    edit(file, read, |document| {
        let user = find_user(document, name)?;
        let tokens = user.entry("tokens").or_insert_with(|| value(Array::new()));
        tokens
            .as_array_mut()
            .with_context(|| format!("in the users file, `tokens` of user {name:?} is not a list"))?
            .push(&hash);
        Ok(())
    })?;
    // The output is only the token and a line break, so that it can be redirected to a file.
    Ok(writeln!(std::io::stdout(), "{token}")?)
}

fn remove(file: &Path, name: &str, console: &Console) -> Result<()> {
    edit(file, read, |document| {
        find_user(document, name)?;
        table(document, "users")?.remove(name);
        Ok(())
    })?;
    print_done("removed", &format!("{name} removed from {}", file.display()), name, console)
}

fn list(file: &Path, console: &Console) -> Result<()> {
    let users = UserDirectory::read(file)?;
    let mut out = console.out();
    if console.json {
        for UserInfo { name, tenant, password, tokens, certificates, nkeys, permissions } in users.list() {
            let KeyRule { allow, read, deny } = &permissions.keys;
            let object = json!({
                "user": name, "tenant": tenant, "password": password, "tokens": tokens,
                "certificates": certificates, "nkeys": nkeys,
                "permissions": {
                    "publish": rule(&permissions.publish), "subscribe": rule(&permissions.subscribe),
                    "create": rule(&permissions.create), "delete": rule(&permissions.delete),
                    "groups": rule(&permissions.groups),
                    "keys": {"allow": key_texts(allow), "read": key_texts(read), "deny": key_texts(deny)},
                    "tasks": permissions.tasks.to_string(), "surveys": permissions.surveys,
                },
            });
            writeln!(out, "{object}")?;
        }
        return Ok(out.flush()?);
    }
    let mut shown = TextTable::new(&["USER", "TENANT", "PASSWORD", "TOKENS", "PERMISSIONS"]);
    for UserInfo { name, tenant, password, tokens, permissions, .. } in users.list() {
        let password = if password { "yes" } else { "no" };
        let lines = permission_lines(permissions).join("; ");
        shown.row([name.to_owned(), tenant.to_owned(), password.to_owned(), tokens.to_string(), lines]);
    }
    shown.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

fn rule(rule: &SubjectRule) -> serde_json::Value {
    json!({"allow": texts(&rule.allow), "deny": texts(&rule.deny)})
}

fn texts(patterns: &[Pattern]) -> Vec<&str> {
    patterns.iter().map(Pattern::as_str).collect()
}

fn key_texts(patterns: &[KeyPattern]) -> Vec<&str> {
    patterns.iter().map(KeyPattern::as_str).collect()
}

fn table<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut Toml> {
    let item = document.entry(name).or_insert_with(|| {
        let mut table = Toml::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    item.as_table_mut().with_context(|| format!("in the users file, `{name}` is not a table"))
}

fn find_user<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut Toml> {
    let user = document.get_mut("users").and_then(|users| users.get_mut(name)).and_then(Item::as_table_mut);
    user.ok_or_else(|| {
        CommandRefusal(format!("user {name:?} does not exist: `dunlin user list` shows the users")).into()
    })
}

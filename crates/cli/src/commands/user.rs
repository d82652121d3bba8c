//! `user`: who may come in, in the users file.
//!
//! The file stays as people wrote it: only what is added or removed changes. It is written beside itself and put in its
//! place, readable by its owner alone.

mod password;

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dunlin_server::access::{TENANT_DEFAULT, Users, hash_password, is_name, new_token};
use serde_json::json;
use toml_edit::{Array, DocumentMut, Item, Table as Toml, value};

use crate::console::Console;
use crate::outcome::Refusal;
use crate::table::Table;

pub use password::without_line_end;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// The users file, which `dunlin serve --auth-users-file` reads
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
enum Verb {
    /// Add a user, or change one: what is given takes the place of what was there
    #[command(after_help = "\
Examples:
  dunlin user add ana --tenant acme --publish 'acme.orders.>' --subscribe 'acme.>' --deny-subscribe 'acme.secret.>'
  dunlin user add ana --password-from ana.password    another password
  dunlin user add robot --no-password --publish '>'   one who comes with a token: dunlin user token robot

The password is asked for on the terminal, or read from a file or from standard input: never from an argument, which
others on the machine could see.")]
    Add(Box<Add>),
    /// Make a token for a user; it is shown once, and kept as its hash only
    Token { name: String },
    /// Remove a user; a running node ends their connections
    Remove { name: String },
    /// List the users
    List,
}

#[derive(Debug, clap::Args)]
struct Add {
    name: String,
    /// Whose user it is
    #[arg(long)]
    tenant: Option<String>,
    /// Read the password from this file, without the line's end
    #[arg(long, value_name = "FILE", conflicts_with = "no_password")]
    password_from: Option<PathBuf>,
    /// No password: the user comes with a token
    #[arg(long)]
    no_password: bool,
    /// Subjects it may publish to
    #[arg(long, value_name = "PATTERN")]
    publish: Vec<String>,
    /// But not these
    #[arg(long, value_name = "PATTERN")]
    deny_publish: Vec<String>,
    /// Subjects it may read
    #[arg(long, value_name = "PATTERN")]
    subscribe: Vec<String>,
    /// But not these
    #[arg(long, value_name = "PATTERN")]
    deny_subscribe: Vec<String>,
    /// Topics it may create
    #[arg(long, value_name = "PATTERN")]
    create: Vec<String>,
    /// Topics it may delete
    #[arg(long, value_name = "PATTERN")]
    delete: Vec<String>,
    /// Groups it may be a member of
    #[arg(long, value_name = "PATTERN")]
    groups: Vec<String>,
    /// It may see metrics, and who reads what
    #[arg(long)]
    surveys: bool,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let file = &arguments.users_file;
    match &arguments.verb {
        Verb::Add(user) => add(file, user, console),
        Verb::Token { name } => token(file, name),
        Verb::Remove { name } => remove(file, name, console),
        Verb::List => list(file, console),
    }
}

fn add(file: &Path, add: &Add, console: &Console) -> Result<()> {
    if !is_name(&add.name) {
        bail!(Refusal(format!("{:?}: a name is 1 to 64 letters, digits, or one of _-.@", add.name)));
    }
    let mut document = read_or_new(file)?;
    let users = table(&mut document, "users")?;
    let is_new = !users.contains_key(&add.name);
    let user = users.entry(&add.name).or_insert_with(|| Item::Table(Toml::new()));
    let user = user.as_table_mut().context("the user's entry in the file is no table")?;
    if let Some(tenant) = &add.tenant {
        user["tenant"] = value(tenant);
    }
    if !add.no_password {
        let password = password::read(add.password_from.as_deref(), &add.name)?;
        user["password"] = value(hash_password(&password)?);
    }
    for (name, patterns) in [
        ("publish", &add.publish),
        ("publish_deny", &add.deny_publish),
        ("subscribe", &add.subscribe),
        ("subscribe_deny", &add.deny_subscribe),
        ("create", &add.create),
        ("delete", &add.delete),
        ("groups", &add.groups),
    ] {
        if !patterns.is_empty() {
            user[name] = value(patterns.iter().collect::<Array>());
        }
    }
    if add.surveys {
        user["surveys"] = value(true);
    }
    if let Some(tenant) = add.tenant.as_deref().filter(|tenant| *tenant != TENANT_DEFAULT) {
        let tenants = table(&mut document, "tenants")?;
        tenants.entry(tenant).or_insert_with(|| Item::Table(Toml::new()));
    }
    write(file, &document)?;
    let what = if is_new { "added" } else { "changed" };
    Ok(writeln!(console.out(), "{} {what} in {}", add.name, file.display())?)
}

fn token(file: &Path, name: &str) -> Result<()> {
    let mut document = read(file)?;
    let user = user_of(&mut document, name)?;
    let (token, kept) = new_token()?;
    let tokens = user.entry("tokens").or_insert_with(|| value(Array::new()));
    tokens.as_array_mut().context("the user's tokens in the file are no list")?.push(kept);
    write(file, &document)?;
    // The only time that it is shown: alone, so that it can go to a file.
    Ok(writeln!(std::io::stdout(), "{token}")?)
}

fn remove(file: &Path, name: &str, console: &Console) -> Result<()> {
    let mut document = read(file)?;
    user_of(&mut document, name)?;
    table(&mut document, "users")?.remove(name);
    write(file, &document)?;
    Ok(writeln!(console.out(), "{name} removed from {}", file.display())?)
}

fn list(file: &Path, console: &Console) -> Result<()> {
    let users = Users::read(file)?;
    let mut out = console.out();
    if console.json {
        for (name, tenant, password, tokens) in users.list() {
            writeln!(
                out,
                "{}",
                json!({"user": name, "tenant": tenant, "password": password, "tokens": tokens})
            )?;
        }
        return Ok(out.flush()?);
    }
    let mut shown = Table::new(&["USER", "TENANT", "PASSWORD", "TOKENS"]);
    for (name, tenant, password, tokens) in users.list() {
        let password = if password { "yes" } else { "no" };
        shown.row([name.to_owned(), tenant.to_owned(), password.to_owned(), tokens.to_string()]);
    }
    shown.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

fn read_or_new(file: &Path) -> Result<DocumentMut> {
    if file.exists() { read(file) } else { Ok(DocumentMut::new()) }
}

fn read(file: &Path) -> Result<DocumentMut> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // In the words in which a node would refuse it.
    Users::parse(&text, &file.display().to_string())?;
    text.parse().with_context(|| format!("cannot read {}", file.display()))
}

fn table<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut Toml> {
    let item = document.entry(name).or_insert_with(|| {
        let mut table = Toml::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    item.as_table_mut().with_context(|| format!("{name} in the file is no table"))
}

fn user_of<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut Toml> {
    let user = document.get_mut("users").and_then(|users| users.get_mut(name)).and_then(Item::as_table_mut);
    user.ok_or_else(|| Refusal(format!("there is no user {name:?}")).into())
}

/// Nothing is written that a node would not take.
fn write(file: &Path, document: &DocumentMut) -> Result<()> {
    let text = document.to_string();
    Users::parse(&text, &file.display().to_string())?;
    let beside = file.with_extension(format!("toml.{}", std::process::id()));
    let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
    let written = written.and_then(|mut new| {
        if let Ok(found) = std::fs::metadata(file) {
            // Whoever could read it before still can.
            new.set_permissions(PermissionsExt::from_mode(found.permissions().mode() & 0o777))?;
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()
    });
    written
        .and_then(|()| std::fs::rename(&beside, file))
        .inspect_err(|_| drop(std::fs::remove_file(&beside)))
        .with_context(|| format!("cannot write {}", file.display()))
}

//! Reads and changes the users file.
//!
//! A change replaces the file atomically, and keeps the file's owner and permissions. Only the owner of a new file can
//! read it. If the file is a symbolic link, the link's target is replaced. The file is locked while a command changes
//! it, so that commands that run at the same time keep each other's changes. There is no lock file, because a lock file
//! that root has created would stop commands of other users.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dunlin_server::access::UserDirectory;
use dunlin_server::read_text;
use toml_edit::DocumentMut;

/// Maximum number of symbolic links that lead to the users file, as in Linux.
const LINKS_MAX: u32 = 40;
/// Maximum number of other commands for which a command waits.
const LOCK_ATTEMPTS_MAX: u32 = 10_000;

pub fn read_or_new(file: &Path) -> Result<DocumentMut> {
    if file.exists() { read(file) } else { Ok(DocumentMut::new()) }
}

pub fn read(file: &Path) -> Result<DocumentMut> {
    let text = read_text(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Checks the file as a node does, so that errors have the same text.
    UserDirectory::parse(&text, &file.display().to_string())?;
    text.parse().with_context(|| format!("cannot read {}", file.display()))
}

/// Changes the users file while no other command changes it. Calls `change` again if another command has created the
/// file meanwhile.
pub fn edit(
    file: &Path,
    read: impl Fn(&Path) -> Result<DocumentMut>,
    change: impl Fn(&mut DocumentMut) -> Result<()>,
) -> Result<()> {
    let target = link_target(file).with_context(|| format!("cannot read {}", file.display()))?;
    loop {
        let locked = lock(&target).with_context(|| format!("cannot lock {}", file.display()))?;
        let mut document = read(file)?;
        change(&mut document)?;
        let text = file_text(file, &document)?;
        let is_new = locked.is_none();
        if write(&target, &text, is_new).with_context(|| format!("cannot write {}", file.display()))? {
            return Ok(());
        }
    }
}

/// Returns the path to which the symbolic links of `file` lead, also if there is no file at that path.
fn link_target(file: &Path) -> io::Result<PathBuf> {
    let mut target = file.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = target.read_link() else { return Ok(target) };
        target = target.parent().unwrap_or(Path::new("")).join(link);
    }
    Err(io::Error::other("the path leads through too many symbolic links"))
}

/// Locks the file until the result is dropped. Returns `None` if there is no such file.
fn lock(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        // Opening a pipe would wait. Reading it is refused later.
        match path.metadata() {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        // Network file systems lock only files that are open for writing.
        let opened = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path));
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        file.lock()?;
        // While this command waited, another one may have replaced the file.
        let locked = file.metadata()?;
        if path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (locked.dev(), locked.ino())) {
            return Ok(Some(file));
        }
    }
    Err(io::Error::other("other programs replace the file all the time"))
}

/// Returns the file's new text after checking that a node would accept it.
fn file_text(file: &Path, document: &DocumentMut) -> Result<String> {
    let mut text = document.to_string();
    if text.is_empty() {
        // A running node treats an empty file as one that is still being written. A file without users therefore has
        // this line.
        text = "[users]\n".to_owned();
    }
    let text = UserDirectory::with_end_line(&text);
    UserDirectory::parse(&text, &file.display().to_string())?;
    Ok(text)
}

/// Replaces the file, or creates a new one. Returns `false` if `is_new` is set and another program has created the file
/// meanwhile.
fn write(path: &Path, text: &str, is_new: bool) -> io::Result<bool> {
    let temporary = path.with_extension(format!("toml.{}", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let written = written.and_then(|mut new| {
        if let Ok(found) = path.metadata() {
            // Keeps the file's owner, so that a node can still read the file after an administrator has changed it.
            let created = new.metadata()?;
            if (created.uid(), created.gid()) != (found.uid(), found.gid()) {
                fchown(&new, Some(found.uid()), Some(found.gid()))?;
            }
            new.set_permissions(PermissionsExt::from_mode(found.permissions().mode() & 0o777))?;
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()
    });
    let replaced = written.and_then(|()| match is_new {
        false => std::fs::rename(&temporary, path).map(|()| true),
        true => match std::fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            // Some file systems have no hard links.
            linked => linked.or_else(|_| std::fs::rename(&temporary, path)).map(|()| true),
        },
    });
    if is_new || replaced.is_err() {
        drop(std::fs::remove_file(&temporary));
    }
    replaced
}

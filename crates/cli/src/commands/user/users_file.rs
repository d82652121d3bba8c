//! Reads and changes the users file.
//!
//! A change replaces the file atomically, and keeps the file's owner and permissions. A new file can be read only by
//! its owner. If the file is a symbolic link, the link's target is replaced. The users file itself is locked while a
//! command changes it, so that two commands at the same time do not lose each other's changes. A separate lock file
//! would not work: if root had created it, the commands of other users would fail.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dunlin_server::access::UserDirectory;
use dunlin_server::read_text;
use toml_edit::DocumentMut;

/// The maximum number of symbolic links that are followed to find the users file. Linux has the same limit.
const LINKS_MAX: u32 = 40;
/// The maximum number of attempts to lock the file. An attempt fails if another program replaces the file during the
/// attempt.
const LOCK_ATTEMPTS_MAX: u32 = 10_000;

pub fn read_or_new(file: &Path) -> Result<DocumentMut> {
    if file.exists() { read(file) } else { Ok(DocumentMut::new()) }
}

pub fn read(file: &Path) -> Result<DocumentMut> {
    let text = read_text(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Checks the file as a node does, so that errors have the same text as a node's errors.
    UserDirectory::parse(&text, &file.display().to_string())?;
    text.parse().with_context(|| format!("cannot read {}", file.display()))
}

/// Reads the users file with `read`, and applies `change`, while no other command changes the file. If another command
/// creates the file at the same time, both functions are called again for the new file.
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

/// Follows the symbolic links of `file`, and returns the path to which they lead. This path need not exist.
fn link_target(file: &Path) -> io::Result<PathBuf> {
    let mut target = file.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = target.read_link() else { return Ok(target) };
        target = target.parent().unwrap_or(Path::new("")).join(link);
    }
    Err(io::Error::other("the path leads through too many symbolic links"))
}

/// Locks the file until the result is dropped. Returns `None` if `path` is not a regular file or does not exist.
fn lock(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        // A pipe is not locked, because opening it would wait. The caller's attempt to read it fails.
        match path.metadata() {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        // A network file system locks only files that are open for writing.
        let opened = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path));
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        file.lock()?;
        // While this process waited for the lock, another one may have replaced the file.
        let locked = file.metadata()?;
        if path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (locked.dev(), locked.ino())) {
            return Ok(Some(file));
        }
    }
    Err(io::Error::other("other programs replace the file all the time"))
}

/// Returns the text to write to the file. Fails if a node would not accept this text.
fn file_text(file: &Path, document: &DocumentMut) -> Result<String> {
    let mut text = document.to_string();
    if text.is_empty() {
        // A running node considers an empty file incomplete, so a file without users contains this line.
        text = "[users]\n".to_owned();
    }
    let text = UserDirectory::with_end_line(&text);
    UserDirectory::parse(&text, &file.display().to_string())?;
    Ok(text)
}

/// Replaces the file, or creates it. Returns `false` if `is_new` is set, but another program has created the file
/// since.
fn write(path: &Path, text: &str, is_new: bool) -> io::Result<bool> {
    let temporary = path.with_extension(format!("toml.{}", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let written = written.and_then(|mut new| {
        if let Ok(found) = path.metadata() {
            // The new file keeps the owner of the old one, so that a node can still read the file after an
            // administrator has changed it.
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
            // If the file system has no hard links, rename the file instead.
            linked => linked.or_else(|_| std::fs::rename(&temporary, path)).map(|()| true),
        },
    });
    if is_new || replaced.is_err() {
        drop(std::fs::remove_file(&temporary));
    }
    replaced
}

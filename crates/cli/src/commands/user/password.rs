//! Reads a password from a file, from standard input, or from a terminal that does not show what the user types.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use dunlin_server::read_input;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::outcome::CommandRefusal;

/// The maximum length in bytes of the line that contains a password.
const LINE_BYTES_MAX: u64 = 64 << 10;

pub fn read(file: Option<&Path>, user: &str) -> Result<Vec<u8>> {
    let password = match file {
        Some(file) => {
            let bytes = read_input(file)
                .with_context(|| format!("cannot read the password file {}", file.display()))?;
            trim_line_end(bytes)
        }
        None if std::io::stdin().is_terminal() => {
            let first = prompt(&format!("Password for {user}: "))?;
            if prompt("Repeat the password: ")? != first {
                bail!(CommandRefusal("the two passwords differ: run the command again".to_owned()));
            }
            first
        }
        None => read_password_line()?,
    };
    if password.is_empty() {
        bail!(CommandRefusal(
            "the password is empty: give one, or --no-password for a user with tokens only".to_owned()
        ));
    }
    Ok(password)
}

/// Removes the line end that text editors append to a file.
pub fn trim_line_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    bytes
}

fn prompt(text: &str) -> Result<Vec<u8>> {
    let input = std::io::stdin();
    let visible = tcgetattr(&input).context("cannot ask for a password")?;
    let mut hidden = visible.clone();
    hidden.local_modes &= !LocalModes::ECHO;
    let mut errors = std::io::stderr();
    write!(errors, "{text}").and_then(|()| errors.flush())?;
    tcsetattr(&input, OptionalActions::Flush, &hidden).context("cannot hide the password")?;
    let line = read_password_line();
    tcsetattr(&input, OptionalActions::Flush, &visible).context("cannot restore the terminal's echo")?;
    writeln!(errors)?;
    line
}

fn read_password_line() -> Result<Vec<u8>> {
    read_line_of(std::io::stdin().lock()).context("cannot read the password")
}

/// Reads a line. Fails if the line is longer than [`LINE_BYTES_MAX`], because a line from a device may never end.
fn read_line_of(input: impl BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes)?;
    if bytes.len() as u64 > LINE_BYTES_MAX {
        return Err(io::Error::other(format!("the line has more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(trim_line_end(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_password_line_is_refused() {
        let refused = read_line_of(io::BufReader::new(io::repeat(b'x'))).unwrap_err();
        assert_eq!(refused.to_string(), "the line has more than 65536 bytes");
        assert_eq!(read_line_of(&b"secret\r\nrest"[..]).unwrap(), b"secret");
        assert_eq!(read_line_of(&b"secret"[..]).unwrap(), b"secret");
    }
}

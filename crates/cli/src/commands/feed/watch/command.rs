//! The commands that the user can type while `dunlin feed watch` shows books.

use crate::outcome::CommandRefusal;

/// A command that the user types while `dunlin feed watch` runs.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchCommand {
    /// Watch another book.
    Subscribe(String),
    /// Stop watching a book.
    Unsubscribe(String),
    /// Print the books once.
    Show,
    /// Print the commands.
    Help,
    /// End `dunlin feed watch`.
    Quit,
    /// An empty line.
    Nothing,
}

pub const HELP: &str = "\
sub SUBJECT    add a topic or pattern
unsub SUBJECT  remove a topic or pattern
show           print the order books once
help           print this list
quit           end";

/// Parses a line.
pub fn parse(line: &str) -> Result<WatchCommand, CommandRefusal> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(WatchCommand::Nothing),
        ["sub" | "subscribe", subject] => Ok(WatchCommand::Subscribe((*subject).to_owned())),
        ["unsub" | "unsubscribe", subject] => Ok(WatchCommand::Unsubscribe((*subject).to_owned())),
        ["show"] => Ok(WatchCommand::Show),
        ["help" | "?"] => Ok(WatchCommand::Help),
        ["quit" | "exit" | "q"] => Ok(WatchCommand::Quit),
        _ => Err(CommandRefusal(format!("{line:?} is not a command: `help` lists the commands"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_in_the_help_is_accepted() {
        for line in HELP.lines() {
            let command = line.split("  ").next().unwrap();
            assert!(parse(command).is_ok(), "{command}");
        }
        assert_eq!(parse(" sub  md.X ").unwrap(), WatchCommand::Subscribe("md.X".into()));
        assert!(parse("sub").is_err() && parse("dance").is_err());
    }
}

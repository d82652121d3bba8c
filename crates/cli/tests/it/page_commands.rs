//! Checks that every `dunlin` command in a code block of the documentation has valid arguments. The commands that can
//! run as they stand are also run, by `pages.rs`.

use std::fs;

use clap::Parser as _;
use dunlin_cli::arguments::Arguments;

use crate::pages::{pages, root};

/// The words that end a command of the shell.
const SEPARATORS: [&str; 6] = ["|", "||", "&&", "&", ";", "<"];

/// Returns the arguments of each `dunlin` command in a line of shell, beginning with `dunlin`.
fn dunlin_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut is_inside = false;
    let mut begins = true;
    // Quoted, `>` is a pattern of subjects. `split` removes the quotes.
    let line = line.replace("'>'", "all.>");
    for word in shlex::split(&line).unwrap_or_else(|| panic!("no valid shell: {line}")) {
        let begins_command = begins;
        begins =
            SEPARATORS.contains(&word.as_str()) || word.ends_with(';') || word.contains('=') || word == "do";
        if SEPARATORS.contains(&word.as_str()) || word.trim_start_matches('2').starts_with('>') {
            is_inside = false;
        } else if begins_command && !is_inside && word == "dunlin" {
            is_inside = true;
            commands.push(vec![word]);
        } else if let Some(command) = commands.last_mut().filter(|_| is_inside) {
            is_inside = !word.ends_with(';');
            command.push(word.trim_end_matches(';').to_owned());
        }
    }
    // The arguments that another command prints are not known.
    commands.retain(|command| command.iter().all(|word| !word.contains("$(")));
    commands
}

/// Returns the commands in the shell blocks of a page, each with its line number. A command may continue on the next
/// line after a backslash.
fn shell_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut language: Option<&str> = None;
    let mut continued: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            language =
                if language.is_none() { Some(fence.split(' ').next().unwrap_or_default()) } else { None };
            continue;
        }
        let command = match language {
            Some("sh") => Some(line),
            Some("console") if continued.is_none() => line.strip_prefix("$ "),
            Some("console") => Some(line),
            _ => None,
        };
        let Some(command) = command else { continue };
        let (first, mut whole) = continued.take().unwrap_or((number + 1, String::new()));
        whole.push_str(command.trim_end_matches('\\'));
        if command.ends_with('\\') {
            continued = Some((first, whole));
        } else {
            lines.push((first, whole));
        }
    }
    lines
}

#[test]
fn dunlin_commands_in_the_docs_have_valid_arguments() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for (number, line) in shell_lines(&fs::read_to_string(root().join(&page)).unwrap()) {
            if !line.contains("dunlin") {
                continue;
            }
            for command in dunlin_commands(&line) {
                count += 1;
                if let Err(error) = Arguments::try_parse_from(&command) {
                    let is_help = !error.use_stderr();
                    wrong.extend(
                        (!is_help).then(|| format!("{page}:{number}: {}\n{error}", command.join(" "))),
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} commands are invalid:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 150, "only {count} commands were found");
}

#[test]
fn dunlin_commands_are_found_in_lines_of_shell() {
    let found =
        |line: &str| -> Vec<String> { dunlin_commands(line).iter().map(|words| words.join(" ")).collect() };
    assert_eq!(found("dunlin pub a b; dunlin sub a  # why"), ["dunlin pub a b", "dunlin sub a"]);
    assert_eq!(found("yes | dunlin pub ticks > out"), ["dunlin pub ticks"]);
    assert_eq!(found("systemctl stop dunlin && cp a b; journalctl -u dunlin -o cat"), Vec::<String>::new());
    assert_eq!(found("dunlin user add ana --publish '>' > out"), ["dunlin user add ana --publish all.>"]);
    assert_eq!(found("a=$(b) dunlin sub x; dunlin sub y --from $(cat z)"), ["dunlin sub x"]);
    assert_eq!(
        shell_lines("```sh\na \\\nb\n```\n```console\n$ c\nout\n```\n"),
        [(2, "a b".into()), (6, "c".into())]
    );
}

//! Wraps help texts to 80 columns. At the end of a help text, paragraphs and examples are wrapped in different ways.

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Command, CommandFactory};

/// The width of help texts in columns. A terminal usually has at least this width.
pub const WIDTH: usize = 80;
/// The indentation of an explanation on the line below its example.
const INDENT: &str = "      ";

/// Returns the program's top-level command with all subcommands, and wraps their help texts.
pub fn command<A: CommandFactory>() -> Command {
    wrap_help(A::command())
}

/// Parses the command line of this process. If the command line is invalid, prints a message and exits. If a command is
/// unknown, but a group of commands has a subcommand with this name, the message suggests the complete command.
pub fn matches(mut command: Command) -> ArgMatches {
    command.try_get_matches_from_mut(std::env::args_os()).unwrap_or_else(|error| {
        let hint = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(name)) => find_nested_command(&command, name),
            _ => None,
        };
        if let Some(hint) = hint {
            let _ = error.print();
            eprintln!("\n  tip: did you mean `{hint}`?");
            std::process::exit(error.exit_code());
        }
        error.exit()
    })
}

/// Finds a group of commands that has the subcommand `name`. Returns the complete command, such as `dunlin kv get`.
fn find_nested_command(command: &Command, name: &str) -> Option<String> {
    let has_command = |group: &&Command| group.get_subcommands().any(|below| below.get_name() == name);
    let group = command.get_subcommands().find(has_command)?;
    Some(format!("{} {} {name}", command.get_name(), group.get_name()))
}

fn wrap_help(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help() {
        let text = wrap_text(&text.to_string());
        command = command.after_help(text);
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| command.mut_subcommand(name, wrap_help))
}

fn wrap_text(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with(' ') {
            end_paragraph(&mut paragraph, &mut out);
            if line.is_empty() { out.push(String::new()) } else { example(line, &mut out) }
        } else {
            paragraph.push(line);
        }
    }
    end_paragraph(&mut paragraph, &mut out);
    out.join("\n")
}

fn end_paragraph(paragraph: &mut Vec<&str>, out: &mut Vec<String>) {
    let lines = std::mem::take(paragraph);
    if lines.iter().all(|line| width(line) <= WIDTH) {
        return out.extend(lines.into_iter().map(str::to_owned));
    }
    wrap(&lines.join(" "), "", "", out);
}

/// Formats a line with an example, its explanation, or both.
fn example(line: &str, out: &mut Vec<String>) {
    if width(line) <= WIDTH {
        return out.push(line.to_owned());
    }
    let indent = line.len() - line.trim_start().len();
    // A line that is indented by more than `INDENT` is the explanation of the example above it.
    if indent > INDENT.len() {
        return wrap(line.trim(), INDENT, "", out);
    }
    match line[indent..].rfind("   ").or_else(|| line[indent..].rfind("  ")) {
        Some(at) => {
            let (example_text, explanation) = line.split_at(indent + at);
            out.push(example_text.trim_end().to_owned());
            wrap(explanation.trim(), INDENT, "", out);
        }
        // A backslash continues a shell command on the next line.
        None => wrap(line.trim(), &line[..indent], " \\", out),
    }
}

/// Wraps text at spaces. The first line begins with `indent`. If `line_end` is empty, later lines also begin with
/// `indent`. If `line_end` is not empty, later lines begin with `INDENT`, and every line but the last ends with
/// `line_end`.
fn wrap(text: &str, indent: &str, line_end: &str, out: &mut Vec<String>) {
    let mut line = indent.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && width(&line) + 1 + width(word) + width(line_end) > WIDTH {
            let next = if line_end.is_empty() { indent } else { INDENT };
            out.push(std::mem::replace(&mut line, next.to_owned()) + line_end);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.push(line);
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn only_wrapped_examples_are_indented() {
        let about = "to be read by those who want it all the time and more than that";
        let text = format!("Examples:\n  dunlin sub ticks --from earliest   {about}\n\n{about}; {about}");
        let fitted = wrap_text(&text);
        assert_eq!(
            fitted,
            "Examples:\n  dunlin sub ticks --from earliest\n      to be read by those who want it all the time and more than that\n\n\
             to be read by those who want it all the time and more than that; to be read by\nthose who want it all the \
             time and more than that"
        );
    }

    #[test]
    fn too_long_description_of_an_example_moves_below_its_command() {
        let indent = " ".repeat(45);
        let text = format!(
            "Examples:\n  dunlin dev --workers w\n{indent}workers for tasks, as many as those that wait need"
        );
        let below =
            "Examples:\n  dunlin dev --workers w\n      workers for tasks, as many as those that wait need";
        assert_eq!(wrap_text(&text), below);
    }

    #[test]
    fn help_lines_fit_a_terminal_and_have_no_source_comments() {
        fn check_help(command: &mut Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            for help in [command.render_help(), command.render_long_help()] {
                for line in help.to_string().lines().filter(|line| !line.starts_with("Usage:")) {
                    assert!(!line.trim_start().starts_with("///"), "{path}: a comment of the source: {line}");
                    assert!(width(line) <= WIDTH, "{path}: {} columns: {line}", width(line));
                }
            }
            command.get_subcommands_mut().for_each(|sub| check_help(sub, &path));
        }
        let mut tree = command::<Arguments>();
        tree.build();
        check_help(&mut tree, "");
    }
}

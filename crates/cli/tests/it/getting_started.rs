//! Runs the commands of the page "Getting started" in one session, from top to bottom, and compares their output with
//! the page.
//!
//! The page's code blocks have the word `session` in their fence. In a `sh session` block, every line is a command. In a
//! `console session` block, `$ ` precedes a command, and its output follows. A `text session` block shows further output
//! of the subscriber that runs. [`Rule`] describes how shown and actual numbers are compared.
//!
//! The test runs itself again in namespaces of its own, so that the page's default ports are free.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use dunlin_chaos::process::bind_to_this_thread;
use dunlin_wait::{find, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::dunlin::{RunningProgram, dunlin, run_with};
use crate::namespace::in_namespaces;
use crate::pages::root;

/// The full name of the test that runs the page.
const TEST: &str = "getting_started::getting_started_page_works_from_top_to_bottom";
/// The environment variable that the test sets when it runs itself in namespaces.
const INSIDE: &str = "GETTING_STARTED_IN_NAMESPACES";

/// A part of the page.
#[derive(Debug, PartialEq)]
enum Part {
    /// A heading. The page ends publishers and subscribers before it.
    Heading,
    Command {
        line: usize,
        text: String,
        /// The output that the page shows for the command; empty if it shows none.
        shown: Vec<String>,
    },
    /// Further output of the subscriber that runs.
    Output { line: usize, shown: Vec<String> },
}

/// Returns the headings, commands and outputs of the page, in the page's order.
fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut language: Option<&str> = None;
    for (index, text) in page.lines().enumerate() {
        let line = index + 1;
        if let Some(fence) = text.strip_prefix("```") {
            language = if language.is_some() { None } else { Some(fence) };
            if fence == "text session" {
                parts.push(Part::Output { line, shown: Vec::new() });
            }
            continue;
        }
        let command = match language {
            None if text.starts_with("## ") => {
                parts.push(Part::Heading);
                continue;
            }
            Some("sh session") => Some(text),
            Some("console session") => text.strip_prefix("$ "),
            Some("text session") => None,
            _ => continue,
        };
        if let Some(command) = command {
            parts.push(Part::Command { line, text: command.to_owned(), shown: Vec::new() });
            continue;
        }
        match parts.last_mut() {
            Some(Part::Command { shown, .. } | Part::Output { shown, .. }) => shown.push(text.to_owned()),
            _ => panic!("line {line}: output without a command"),
        }
    }
    parts
}

/// How a number on the page is compared with the number in the output. `…` on the page stands for any text.
#[derive(Debug, PartialEq)]
enum Rule {
    /// One or two digits: the number is the same.
    Equal,
    /// Three to eight digits, or commas: a count that differs from run to run.
    Any,
    /// Nine digits or more: an epoch. The same epoch on the page is the same epoch in the output everywhere, and a
    /// greater epoch is greater.
    Epoch,
}

/// Returns the rule for a word of [`words`], if the word is a number.
fn rule(word: &str) -> Option<Rule> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(match word.len() {
        _ if word.contains(',') => Rule::Any,
        1 | 2 => Rule::Equal,
        3..=8 => Rule::Any,
        _ => Rule::Epoch,
    })
}

/// Splits a line into numbers, which may contain commas, and single other characters.
fn words(line: &str) -> Vec<String> {
    let characters: Vec<char> = line.trim_end().chars().collect();
    let is_digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    let mut words: Vec<String> = Vec::new();
    let mut was_number = false;
    for (at, character) in characters.iter().enumerate() {
        let is_number = is_digit(at) || (*character == ',' && was_number && is_digit(at + 1));
        match words.last_mut() {
            Some(number) if is_number && was_number => number.push(*character),
            _ => words.push(character.to_string()),
        }
        was_number = is_number;
    }
    words
}

/// The epochs of the page, each with the epoch in the output.
type Epochs = BTreeMap<String, String>;

/// Whether a line of output equals the line on the page. Adds the line's epochs to `epochs`, and fails if they
/// contradict `epochs`.
fn matches_line(shown: &str, actual: &str, epochs: &mut Epochs) -> bool {
    let mut found = Vec::new();
    if !matches_words(&words(shown), &words(actual), &mut found) {
        return false;
    }
    let mut all = epochs.clone();
    for (shown, actual) in found {
        if all.entry(shown).or_insert_with(|| actual.clone()) != &actual {
            return false;
        }
    }
    let numbers: Vec<u64> = all.values().filter_map(|epoch| epoch.parse().ok()).collect();
    let grows = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if grows {
        *epochs = all;
    }
    grows
}

/// Like [`matches_line`], for [`words`]. Appends the epochs to `epochs`, without a comparison of them.
fn matches_words(shown: &[String], actual: &[String], epochs: &mut Vec<(String, String)>) -> bool {
    let Some((word, shown)) = shown.split_first() else { return actual.is_empty() };
    let before = epochs.len();
    if word == "…" {
        return (0..=actual.len()).any(|skipped| {
            epochs.truncate(before);
            matches_words(shown, &actual[skipped..], epochs)
        });
    }
    let Some((other, actual)) = actual.split_first() else { return false };
    let is_equal = match rule(word) {
        Some(Rule::Any) => rule(other).is_some(),
        Some(Rule::Epoch) => {
            epochs.push((word.clone(), other.clone()));
            rule(other) == Some(Rule::Epoch)
        }
        Some(Rule::Equal) | None => word == other,
    };
    is_equal && matches_words(shown, actual, epochs)
}

/// Whether a line is a record of the publisher at full speed. The page shows only some of these lines.
fn is_tick(line: &str) -> bool {
    line.ends_with(" tick")
}

/// Finds the shown lines in the output, in their order. Between them may be ticks, but no other lines. Returns the
/// number of lines up to the last one found.
fn find_lines(shown: &[String], output: &[String], epochs: &mut Epochs) -> Option<usize> {
    let mut expected = shown.iter();
    let mut next = expected.next();
    for (at, line) in output.iter().enumerate() {
        let Some(wanted) = next else { return Some(at) };
        if matches_line(wanted, line, epochs) {
            next = expected.next();
        } else if !is_tick(line) {
            return None;
        }
    }
    next.is_none().then_some(output.len())
}

/// Returns the numbers of a line.
fn numbers(line: &str) -> Vec<u64> {
    words(line).iter().filter_map(|word| word.replace(',', "").parse().ok()).collect()
}

/// Checks the numbers of the first gap in a subscriber's output: the gap begins after the last record before it, and
/// the next record is the one that the gap names.
fn check_gap(output: &[String]) {
    let gap = output.iter().position(|line| line.starts_with("GAP ")).expect("a gap");
    let [first, last, count, now] = numbers(&output[gap])[..] else { panic!("{}", output[gap]) };
    let before = output[..gap].iter().rfind(|line| is_tick(line)).map_or(0, |line| numbers(line)[0]);
    let after = output[gap..].iter().find(|line| is_tick(line)).map(|line| numbers(line)[0]);
    assert_eq!((first, now, count), (before + 1, last + 1, last + 1 - first), "{}", output[gap]);
    assert_eq!(after, Some(now), "{}", output[gap]);
}

/// A command of the session and its output. The command and all its processes form a process group, as in a terminal.
struct Terminal {
    program: RunningProgram,
    output: Arc<Mutex<Vec<String>>>,
    reader: Option<thread::JoinHandle<()>>,
    /// The number of lines that were already compared with the page.
    compared: usize,
}

impl Terminal {
    fn start(directory: &Path, command: &str) -> Terminal {
        let program = dunlin(&[]).get_program().to_owned();
        let folder = Path::new(&program).parent().unwrap().display().to_string();
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 2>&1; {command}")]).current_dir(directory);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DUNLIN_") {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
        shell.env("HOME", directory).env("TMPDIR", directory).env("NO_COLOR", "1");
        bind_to_this_thread(&mut shell);
        let mut program = shell.spawn().expect("bash starts");
        let lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
        let output: Arc<Mutex<Vec<String>>> = Arc::default();
        let written = Arc::clone(&output);
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if !is_tick(&line) {
                    eprintln!("{line}");
                }
                written.lock().unwrap().push(line);
            }
        });
        Terminal { program: program.into(), output, reader: Some(reader), compared: 0 }
    }

    fn signal(&self, signal: Signal) {
        let group = Pid::from_raw(self.program.id().cast_signed()).expect("a process id");
        kill_process_group(group, signal).expect("the command runs");
    }

    /// Waits until the command has ended. Returns whether it succeeded, and its output.
    fn wait(mut self) -> (bool, Vec<String>) {
        let status = find("the command ends", || self.program.try_wait().expect("wait for the command"));
        self.reader.take().expect("a thread").join().unwrap();
        (status.success(), self.lines())
    }

    /// Types Ctrl-C, and waits until the command has ended.
    fn interrupt(self) {
        self.signal(Signal::INT);
        self.wait();
    }

    fn lines(&self) -> Vec<String> {
        self.output.lock().unwrap().clone()
    }

    /// Waits until the command has printed the shown lines after the lines that were already compared.
    fn wait_for(&mut self, at: &str, shown: &[String], epochs: &mut Epochs) {
        let (compared, found) = find(format!("{at}: the output {shown:#?}"), || {
            let mut found = epochs.clone();
            let length = find_lines(shown, &self.lines()[self.compared..], &mut found)?;
            Some((self.compared + length, found))
        });
        self.compared = compared;
        *epochs = found;
    }
}

/// The terminals of the session.
struct Session {
    directory: PathBuf,
    node: Option<Terminal>,
    publisher: Option<Terminal>,
    subscriber: Option<Terminal>,
    epochs: Epochs,
}

impl Session {
    fn run(&mut self, part: &Part) {
        match part {
            Part::Heading => {
                for terminal in [self.publisher.take(), self.subscriber.take()].into_iter().flatten() {
                    terminal.interrupt();
                }
            }
            Part::Command { line, text, shown } => {
                eprintln!("$ {text}");
                self.run_command(&format!("line {line}, `{text}`"), text, shown);
            }
            Part::Output { line, shown } => {
                let subscriber = self.subscriber.as_mut().expect("a subscriber runs");
                subscriber.wait_for(&format!("line {line}"), shown, &mut self.epochs);
                if shown.iter().any(|line| line.starts_with("GAP ")) {
                    check_gap(&subscriber.lines());
                }
            }
        }
    }

    fn run_command(&mut self, at: &str, command: &str, shown: &[String]) {
        match command {
            "dunlin dev --data-dir data" | "dunlin dev --nodes 3" => {
                if let Some(node) = self.node.take() {
                    node.interrupt();
                }
                self.node = Some(self.start_node(command));
            }
            "pkill -KILL -f 'dunlin dev'" => {
                let node = self.node.take().expect("a node runs");
                node.signal(Signal::KILL);
                node.wait();
            }
            "kill -9 7926" => self.kill_owner(),
            "yes tick | dunlin pub ticks" => self.publisher = Some(Terminal::start(&self.directory, command)),
            "dunlin sub ticks --sleep 1ms --on-gap newest" | "dunlin sub orders --from earliest" => {
                let mut subscriber = Terminal::start(&self.directory, command);
                subscriber.wait_for(at, shown, &mut self.epochs);
                self.subscriber = Some(subscriber);
            }
            _ => {
                assert!(command.starts_with("dunlin "), "{at}: this test does not know the command");
                let (succeeded, output) = Terminal::start(&self.directory, command).wait();
                assert!(succeeded, "{at} failed: {output:#?}");
                let is_shown =
                    |(shown, line): (&String, &String)| matches_line(shown, line, &mut self.epochs);
                let is_as_shown = shown.len() == output.len() && shown.iter().zip(&output).all(is_shown);
                assert!(is_as_shown, "{at} printed {output:#?}, and the page shows {shown:#?}");
            }
        }
    }

    /// Starts one node or several, and waits until they are up at the default ports.
    fn start_node(&self, command: &str) -> Terminal {
        let node = Terminal::start(&self.directory, command);
        until("the node is up", || {
            let output = node.lines();
            output.iter().any(|line| line.starts_with("Ctrl-C stops the node"))
        });
        let output = node.lines().join("\n");
        for port in [4220, 4222, 8222, 50051] {
            assert!(output.contains(&format!("127.0.0.1:{port}")), "no port {port}: {output}");
        }
        node
    }

    /// Kills node 2 by its process id in the table of `dunlin dev`, and waits until another node owns its topic.
    fn kill_owner(&self) {
        let table = self.node.as_ref().expect("a node runs").lines();
        let row =
            table.iter().find(|line| line.trim_start().starts_with("2 ") && line.contains("127.0.0.1:"));
        let process_id = row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok());
        let process = process_id.and_then(Pid::from_raw).expect("node 2 is in the table");
        kill_process(process, Signal::KILL).expect("node 2 runs");
        until("another node owns the topic", || {
            let (succeeded, output) =
                Terminal::start(&self.directory, "dunlin topics describe orders").wait();
            let owner = output.iter().find(|line| line.trim_start().starts_with("owner "));
            succeeded && owner.is_some_and(|owner| !owner.contains(" node 2 "))
        });
    }
}

#[test]
fn getting_started_page_works_from_top_to_bottom() {
    if std::env::var_os(INSIDE).is_none() {
        let mut command = in_namespaces("\"$@\"");
        command.arg(std::env::current_exe().unwrap()).args([TEST, "--exact", "--nocapture"]);
        command.env(INSIDE, "1");
        let outcome = run_with(command, b"");
        let succeeded = outcome.code == Some(0) && outcome.out.contains("1 passed");
        assert!(succeeded, "this test needs unshare, ip, and root or user namespaces: {}", outcome.err);
        return;
    }
    let page = fs::read_to_string(root().join("docs/getting-started.md")).unwrap();
    let parts = parts(&page);
    assert!(parts.len() > 20, "the page has commands: {parts:#?}");
    let directory = tempfile::tempdir().unwrap();
    let mut session = Session {
        directory: directory.path().to_owned(),
        node: None,
        publisher: None,
        subscriber: None,
        epochs: Epochs::new(),
    };
    for part in &parts {
        session.run(part);
    }
    session.run(&Part::Heading);
    session.node.expect("the nodes run").interrupt();
}

#[test]
fn commands_and_outputs_are_parsed_in_page_order() {
    let page = "# A\n## B\n```sh session\nx\n```\n```console session\n$ y\none\n```\n```text session\ntwo\n```\n\
                ```sh\nnot\n```\n";
    let command = |line, text: &str, shown: &[&str]| Part::Command {
        line,
        text: text.to_owned(),
        shown: shown.iter().map(|&line| line.to_owned()).collect(),
    };
    let output = Part::Output { line: 10, shown: vec!["two".to_owned()] };
    assert_eq!(parts(page), [Part::Heading, command(4, "x", &[]), command(7, "y", &["one"]), output]);
}

#[test]
fn epochs_and_gaps_on_the_page_may_differ_from_the_output() {
    let matches = |shown: &str, actual: &str| matches_line(shown, actual, &mut Epochs::new());
    assert!(matches("published 2 records, last …-2", "published 2 records, last 600640011-2"));
    assert!(!matches("published 2 records, last …-2", "published 3 records, last 600640011-2"));
    assert!(matches("GAP 683 … 1,403,906  (1,403,224 records)", "GAP 12 … 906  (895 records)"));
    assert!(!matches("GAP 683 … 1,403,906  (1,403,224 records)", "GAP 12 … 906  (many records)"));

    let mut epochs = Epochs::new();
    assert!(matches_line("600640011 → 600640012", "700000001 → 700000007", &mut epochs));
    assert!(matches_line("at 600640012-3", "at 700000007-3", &mut epochs));
    assert!(!matches_line("at 600640012-3", "at 700000008-3", &mut epochs), "another epoch");
    assert!(!matches_line("at 600640013-3", "at 700000006-3", &mut epochs), "an epoch that does not grow");
}

#[test]
fn output_matches_the_page_despite_additional_ticks() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let shown = lines("682 tick\nLAGGING x\nGAP 683\n999 tick");
    let found = |text: &str| find_lines(&shown, &lines(text), &mut Epochs::new());
    assert_eq!(found("1 tick\n2 tick\nLAGGING x\n3 tick\nGAP 4\n9 tick\n10 tick"), Some(6));
    assert_eq!(found("1 tick\n2 tick\nLAGGING x\n3 tick\nGAP 4"), None);
    assert_eq!(found("1 tick\n2 tick\nLAGGING x\nEPOCH\nGAP 4\n9 tick"), None);
    check_gap(&lines("1 tick\n2 tick\nLAGGING x\nGAP 3 … 1,007  (1,005 records)   now at 1,008\n1008 tick"));
}

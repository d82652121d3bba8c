//! Runs the commands in the documentation. Each code block whose fence says `run` is executed line by line in bash,
//! with a node of its own.
//!
//! In a `console run` block, `$ ` precedes a command. The lines after a command are its output, in which `…` matches
//! any text. In a `sh run` block, every line is a command. No command may fail. If a command does not end by itself, it
//! is ended after some time and counts as successful. [`create_example_files`] creates the files that the commands use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::dunlin::{Node, dunlin, run_with};

/// The time in seconds after which a command that does not end by itself is ended. This time applies if the page shows
/// no output of the command.
const STOP_AFTER: u32 = 3;
/// The time in seconds after which a command that does not end by itself is ended. This time applies if the page shows
/// output of the command.
const STOP_SHOWN_AFTER: u32 = 10;
/// The number of blocks that run at the same time.
const BLOCKS_AT_ONCE: usize = 8;
/// A shell function that runs a command. It repeats a failed command, because background programs of the page may still
/// be starting. It prints the output of the last attempt.
const TRY: &str = "set -a
try() {
  for n in {1..60}; do
    timeout $1 bash -o pipefail -c \"$2\" > said 2>&1; status=$?
    case $status in 0 | 124) break ;; *) sleep 0.5 ;; esac
  done
  cat said; return $status
}
";
/// The separator between two commands in the shell's output.
const MARK: &str = "@@@";

struct Typed {
    line: usize,
    command: String,
    /// The output that the page shows for the command; `None` if it shows none.
    output: Option<String>,
}

/// Returns the blocks of a page that the test runs, and the commands of each block.
fn blocks(text: &str) -> Vec<Vec<Typed>> {
    let mut blocks: Vec<Vec<Typed>> = Vec::new();
    let mut inside: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        match (inside, line) {
            (None, "```console run" | "```sh run") => {
                inside = Some(line.contains("console"));
                blocks.push(Vec::new());
            }
            (Some(_), "```") => inside = None,
            (Some(shows_output), _) => {
                let block = blocks.last_mut().expect("a block has begun");
                let command = if shows_output { line.strip_prefix("$ ") } else { Some(line) };
                match command {
                    Some(command) => {
                        block.push(Typed { line: number + 1, command: command.to_owned(), output: None });
                    }
                    None => {
                        let output = &mut block.last_mut().expect("a command first").output;
                        let output = output.get_or_insert_default();
                        output.push_str(line);
                        output.push('\n');
                    }
                }
            }
            (None, _) => {}
        }
    }
    blocks
}

/// Creates the files that the commands on the pages use.
fn create_example_files(directory: &Path) {
    for script in ["resize.sh", "thumb.sh", "backup.sh"] {
        let path = directory.join(script);
        fs::write(&path, "#!/bin/sh\nwc -c\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // These settings make curl print its output and errors, but no progress meter.
    fs::write(directory.join(".curlrc"), "silent\nshow-error\n").unwrap();
    fs::write(directory.join("urls.txt"), "https://example.org/a\nhttps://example.org/b\n").unwrap();
}

/// Returns a shell script that runs the commands of a block, and prints the exit status of each. Later commands see the
/// variables that earlier ones have set.
fn script(block: &[Typed]) -> String {
    let mut script = String::from(TRY);
    for typed in block {
        let command = &typed.command;
        let word: String = command.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let sets_variable = command[word.len()..].starts_with('=');
        let is_left_running =
            command.split(" #").next().is_some_and(|before| before.trim_end().ends_with('&'));
        if sets_variable || is_left_running {
            script.push_str(&format!("{command}\n"));
        } else {
            let quoted = command.replace('\'', r"'\''");
            let seconds = if typed.output.is_some() { STOP_SHOWN_AFTER } else { STOP_AFTER };
            script.push_str(&format!("try {seconds} '{quoted}'\n"));
        }
        script.push_str(&format!("echo \"{MARK}$?\"\n"));
    }
    script.push_str("kill $(jobs -p) 2> /dev/null\nwait 2> /dev/null\n");
    script
}

/// Whether `actual`, the output of a command, equals `shown`, the output on the page. In `shown`, `…` stands for any
/// text.
fn matches_shown(shown: &str, actual: &str) -> bool {
    let (shown, actual) = (shown.trim_end(), actual.trim_end());
    let mut parts = shown.split('…');
    let mut rest = match actual.strip_prefix(parts.next().unwrap_or_default()) {
        Some(rest) => rest,
        None => return false,
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || shown.ends_with('…')
}

fn check_block(page: &str, block: &[Typed]) {
    let directory = tempfile::tempdir().unwrap();
    create_example_files(directory.path());
    let data = directory.path().join("data");
    let node = Node::start_with(&["--http-listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    let http = node.ready_field("http=").to_owned();
    let tcp = node.url.strip_prefix("dunlin://").unwrap();
    let script = script(block)
        .replace("localhost:8222", &http)
        .replace("HERE/", &format!("{http}/"))
        .replace("127.0.0.1:8222", &http)
        .replace("127.0.0.1:4220", tcp);
    let program = dunlin(&[]).get_program().to_owned();
    let folder = Path::new(&program).parent().unwrap().display().to_string();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(directory.path()).stdin(Stdio::null());
    shell
        .env("LOOK", STOP_AFTER.to_string())
        .env("DUNLIN_URL", &node.url)
        .env("HOME", directory.path())
        .env("NO_COLOR", "1");
    shell.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
    let outcome = run_with(shell, b"");
    let mut parts = outcome.out.split(MARK);
    let mut output = parts.next().unwrap_or_default().to_owned();
    for typed in block {
        let at = format!("{page}:{}: `{}`", typed.line, typed.command);
        let (status, rest) = parts.next().and_then(|part| part.split_once('\n')).unwrap_or_default();
        // The program `timeout` returns 124 if it has ended the command.
        assert!(["0", "124"].contains(&status), "{at} ended with {status}: {output}\nall: {}", outcome.out);
        if let Some(shown) = &typed.output {
            assert!(matches_shown(shown, &output), "{at} said\n{output}\nand the page shows\n{shown}");
        }
        rest.clone_into(&mut output);
    }
}

/// Returns the root directory of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the paths of all pages for users, relative to [`root`].
pub fn pages() -> Vec<String> {
    let mut pages = ["README.md", "clients/python/README.md", "deploy/README.md", "web/client/README.md"]
        .map(str::to_owned)
        .to_vec();
    for folder in ["docs", "docs/coming-from", "docs/how-to"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            pages.extend(name.ends_with(".md").then(|| format!("{folder}/{name}")));
        }
    }
    pages
}

#[test]
fn commands_in_the_docs_run_as_shown() {
    let page_blocks = |page: &String| {
        let blocks = blocks(&fs::read_to_string(root().join(page)).unwrap());
        blocks.into_iter().map(|block| (page.clone(), block)).collect::<Vec<_>>()
    };
    let all: Vec<_> = pages().iter().flat_map(page_blocks).collect();
    assert!(all.len() > 4, "the pages have blocks to run: {}", all.len());
    // Several blocks run at the same time, because a command may take several seconds. Each block has its own node.
    let next = Mutex::new(all.iter());
    std::thread::scope(|scope| {
        for _ in 0..BLOCKS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((page, block)) = next.lock().unwrap().next() else { return };
                    check_block(page, block);
                }
            });
        }
    });
}

#[test]
fn ellipsis_in_expected_output_matches_any_text() {
    assert!(matches_shown("revision 5\n", "revision 5\n"));
    assert!(!matches_shown("revision 5\n", "revision 6\n"));
    assert!(matches_shown("task …: done\n", "task 100000001: done\n"));
    assert!(!matches_shown("task …: done\n", "task 100000001: dead\n"));
    assert!(matches_shown("{\"epoch\":…\n", "{\"epoch\":3}\n"));
    let page = "```console run\n$ x\none\n$ y\n```\n```sh run\nz  # why\n```\n```sh\nnot\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0][0].command.as_str(), found[0][0].output.as_deref()), ("x", Some("one\n")));
    assert_eq!((found[0][1].output.as_deref(), found[1][0].line), (None, 7));
}

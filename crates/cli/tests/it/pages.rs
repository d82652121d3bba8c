//! Runs the commands in the documentation. The word after `sh` or `console` in a code block's fence says how the block
//! is tested:
//!
//! - `run`: it is executed line by line in bash, with a node of its own.
//! - `alone`: likewise, but without a node, and with the default ports. The block starts its nodes itself. A command that
//!   starts a node, or a process of a world, runs until the block ends.
//! - a word in [`PREPARATIONS`]: like `alone`, after other commands.
//! - `session`: `getting_started.rs` executes the blocks of that page.
//! - a word in [`NOT_RUN`]: it is not executed.
//!
//! In a `console run` block, `$ ` precedes a command. The lines after a command are its output, in which `…` matches
//! any text. In a `sh run` block, every line is a command. No command may fail. If a command does not end by itself, it
//! is ended after some time and counts as successful. [`create_example_files`] creates the files that the commands use.
//! [`REPLACED`] lists the parts of commands that are replaced before a block is executed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::dunlin::{Node, dunlin, run, run_with};
use crate::namespace::in_namespaces;

/// The time in seconds after which a command that does not end by itself is ended. This time applies if the page shows
/// no output of the command.
const STOP_AFTER: u32 = 3;
/// The time in seconds after which a command that does not end by itself is ended. This time applies if the page shows
/// output of the command.
const STOP_SHOWN_AFTER: u32 = 10;
/// The number of blocks that run at the same time.
const BLOCKS_AT_ONCE: usize = 6;
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
/// A shell function that starts a program, waits until it is up, and leaves it running. It fails if the program ends.
const LEAVE: &str = "left=0
leave() {
  left=$((left + 1))
  bash -c \"exec $1\" > left.$left 2>&1 &
  for n in {1..1200}; do
    if grep -qsE '^READY| is up|Ctrl-C stops' left.$left; then return 0; fi
    if ! kill -0 $! 2> /dev/null; then break; fi
    sleep 0.1
  done
  cat left.$left; return 1
}
";
/// Words in the fences of blocks, each with the commands that are executed before the block's own commands.
const PREPARATIONS: [(&str, &str); 6] = [
    ("alone", ""),
    // A cluster of three nodes with some topics and a key. The blocks use the data directory of node 1.
    (
        "cluster",
        "leave 'dunlin dev --nodes 3 --data-dir cluster' || exit
         rmdir /var/lib/dunlin && ln -s \"$PWD/cluster/node-1\" /var/lib/dunlin
         for n in {1..600}; do
           if [ $(dunlin cluster status --data-dir /var/lib/dunlin | grep -c ' ready$') = 3 ]; then break; fi
           sleep 0.1
         done
         dunlin pub ticks tick && dunlin topics create orders && dunlin topics create ledger --durable || exit
         dunlin kv put config/limit 100 || exit",
    ),
    // The first node of a cluster at 10.0.0.1, and a token for other nodes.
    (
        "join",
        "dunlin cluster init --data-dir first || exit
         leave 'dunlin serve --data-dir first --listen 127.0.0.1:0 --cluster-listen 10.0.0.1:6222' || exit
         dunlin cluster token --data-dir first > token || exit",
    ),
    // A node with two users and their tokens: one may run the world `birds`, the other may watch it.
    (
        "users",
        "dunlin user add runner --no-password --keys 'space/birds/*' --keys space-secret/birds \
           --publish 'space.birds.map.>' --create space.birds.map --create 'space.birds.map.>' || exit
         dunlin user add watcher --no-password --read-keys 'space/birds/*' --subscribe 'space.birds.region.*' || exit
         dunlin user token runner > runner.token && dunlin user token watcher > watcher.token || exit
         leave 'dunlin serve --auth-users-file users.toml' || exit",
    ),
    ("world", "leave 'dunlin space run --processes 1 --flock 200' || exit"),
    // A node, and the recording of a feed.
    (
        "recording",
        "leave 'dunlin feed serve --config baseline_1x1_10k' || exit
         dunlin feed record --out rec/ 'md.>' --time 1s || exit
         kill $! && wait $!
         leave 'dunlin dev' || exit",
    ),
];
/// The beginnings of commands that do not end and that later commands of an `alone` block need.
const LEFT_RUNNING: [&str; 5] =
    ["dunlin dev", "dunlin serve", "dunlin feed serve", "dunlin space run", "dunlin space join"];
/// Parts of commands, each with its replacement: files of root, worlds that are too large for the test, and
/// times that are too long.
const REPLACED: [(&str, &str); 4] = [
    ("/etc/dunlin/", "etc/"),
    ("--flock 20000", "--flock 200"),
    ("--time 10s", "--time 1s"),
    ("10.0.0.1:8222", "127.0.0.1:8222"),
];
/// The words in the fences of blocks that are not executed, each with the reason.
const NOT_RUN: [(&str, &str); 3] = [
    ("build", "the block builds programs or packages, or needs a package that is built first"),
    ("installed", "the block needs systemd, or directories of root"),
    ("machines", "the block needs other machines or programs"),
];
/// A file of Bitstamp's orders.
const ORDERS: &str = "id,timestamp,exchange_timestamp,price,volume,action,direction\n\
    1,9,5,78318.0,1.5,created,bid\n2,60,50,78319.0,0.5,created,ask\n";
/// The number of characters of a failed block's output that the test prints.
const PRINTED_MAX: usize = 20_000;
/// The separator between two commands in the shell's output.
const MARK: &str = "@@@";

struct Block {
    /// The commands to execute before the block's own commands. `None`: the block has a node instead, with a free port.
    preparation: Option<&'static str>,
    commands: Vec<Typed>,
}

struct Typed {
    line: usize,
    command: String,
    /// The output that the page shows for the command; `None` if it shows none.
    output: Option<String>,
}

/// Returns the blocks of a page that the test runs.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // Whether the present block shows output; `None` outside of the blocks that the test runs.
    let mut inside: Option<bool> = None;
    let mut indentation = 0;
    let mut is_continued = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            let (language, word) = fence.split_once(' ').unwrap_or_default();
            let preparation =
                PREPARATIONS.iter().find(|(name, _)| *name == word).map(|(_, commands)| *commands);
            let is_run = ["sh", "console"].contains(&language) && (word == "run" || preparation.is_some());
            inside = is_run.then_some(language == "console");
            if is_run {
                blocks.push(Block { preparation, commands: Vec::new() });
            }
            indentation = line.len() - line.trim_start().len();
            continue;
        }
        let Some(shows_output) = inside else { continue };
        let line = line.get(indentation..).unwrap_or_default();
        let commands = &mut blocks.last_mut().expect("a block has begun").commands;
        let command = if shows_output { line.strip_prefix("$ ") } else { Some(line) };
        match (command, commands.last_mut()) {
            (_, Some(last)) if is_continued => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (None, last) => {
                let output = last.expect("a command first").output.get_or_insert_default();
                output.push_str(line);
                output.push('\n');
            }
            (Some(command), _) => {
                commands.push(Typed { line: number + 1, command: command.to_owned(), output: None });
            }
        }
        is_continued = line.ends_with('\\');
    }
    blocks
}

/// Creates the files that the commands on the pages use.
fn create_example_files(directory: &Path) {
    for script in ["resize.sh", "thumb.sh", "backup.sh", "train.sh"] {
        let path = directory.join(script);
        fs::write(&path, "#!/bin/sh\nwc -c\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let users = directory.join("etc/users.toml");
    fs::create_dir(directory.join("etc")).unwrap();
    run(&["user", "add", "ana", "--no-password", "--users-file", users.to_str().unwrap()]).done();
    fs::copy(root().join("deploy/node.toml"), directory.join("etc/node.toml")).unwrap();
    fs::write(directory.join("new.password"), "a long password\n").unwrap();
    // These settings make curl print its output and errors, but no progress meter.
    fs::write(directory.join(".curlrc"), "silent\nshow-error\n").unwrap();
    fs::create_dir(directory.join("data")).unwrap();
    fs::write(directory.join("data/orders.csv"), ORDERS).unwrap();
    fs::write(directory.join("urls.txt"), "https://example.org/a\nhttps://example.org/b\n").unwrap();
}

/// Returns a shell script that runs the commands of a block, and prints the exit status of each. Later commands see the
/// variables that earlier ones have set.
fn script(block: &Block) -> String {
    let mut script = format!("{TRY}{LEAVE}");
    if let Some(preparation) = block.preparation {
        script.push_str(&format!("{preparation}\necho \"{MARK}\"\n"));
    }
    for typed in &block.commands {
        let mut command = typed.command.clone();
        for (part, replacement) in REPLACED {
            command = command.replace(part, replacement);
        }
        let word: String = command.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let sets_variable = command[word.len()..].starts_with('=') || word == "export";
        let is_left_running =
            command.split(" #").next().is_some_and(|before| before.trim_end().ends_with('&'));
        if sets_variable || is_left_running {
            script.push_str(&format!("{command}\n"));
        } else if block.preparation.is_some() && LEFT_RUNNING.iter().any(|left| command.starts_with(left)) {
            script.push_str(&format!("leave '{}'\n", command.replace('\'', r"'\''")));
        } else {
            let quoted = command.replace('\'', r"'\''");
            let seconds = if typed.output.is_some() { STOP_SHOWN_AFTER } else { STOP_AFTER };
            script.push_str(&format!("try {seconds} '{quoted}'\n"));
        }
        script.push_str(&format!("echo \"{MARK}$?\"\n"));
    }
    if block.preparation.is_none() {
        script.push_str("kill $(jobs -p) 2> /dev/null\nwait 2> /dev/null\n");
    }
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

fn check_block(page: &str, block: &Block) {
    let directory = tempfile::tempdir().unwrap();
    create_example_files(directory.path());
    let script = script(block);
    let outcome = if block.preparation.is_none() {
        let data = directory.path().join("node");
        let node = Node::start_with(&["--http-listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
        let http = node.ready_field("http=").to_owned();
        let tcp = node.url.strip_prefix("dunlin://").unwrap();
        let script = script
            .replace("localhost:8222", &http)
            .replace("HERE/", &format!("{http}/"))
            .replace("127.0.0.1:8222", &http)
            .replace("127.0.0.1:4220", tcp);
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 2>&1\n{script}")]);
        run_with(prepared(shell, directory.path(), Some(&node)), b"")
    } else {
        run_with(prepared(in_namespaces(&format!("exec 2>&1\n{script}")), directory.path(), None), b"")
    };
    let mut parts = outcome.out.split(MARK);
    if block.preparation.is_some() {
        parts.next();
    }
    let mut output = parts.next().unwrap_or_default().trim_start_matches('\n').to_owned();
    for typed in &block.commands {
        let at = format!("{page}:{}: `{}`", typed.line, typed.command);
        let (status, rest) = parts.next().and_then(|part| part.split_once('\n')).unwrap_or_default();
        // The program `timeout` returns 124 if it has ended the command. A command with `--count` must end by itself.
        let all: String = format!("{}{}", outcome.err, outcome.out).chars().take(PRINTED_MAX).collect();
        let ends = status == "0" || status == "124" && !typed.command.contains(" --count ");
        assert!(ends, "{at} ended with {status}: {output}\nall: {all}");
        if let Some(shown) = &typed.output {
            assert!(matches_shown(shown, &output), "{at} said\n{output}\nand the page shows\n{shown}");
        }
        rest.clone_into(&mut output);
    }
}

/// Adds the directory and the environment of a block's commands to the command that runs the block.
fn prepared(mut shell: Command, directory: &Path, node: Option<&Node>) -> Command {
    let program = dunlin(&[]).get_program().to_owned();
    let folder = Path::new(&program).parent().unwrap().display().to_string();
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DUNLIN_") {
            shell.env_remove(name);
        }
    }
    shell.current_dir(directory).stdin(Stdio::null());
    shell.env("HOME", directory).env("TMPDIR", directory).env("NO_COLOR", "1");
    shell.env("LOOK", STOP_AFTER.to_string());
    shell.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
    if let Some(node) = node {
        shell.env("DUNLIN_URL", &node.url);
    }
    shell
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
fn every_shell_block_in_the_docs_says_how_it_is_tested() {
    let mut wrong = Vec::new();
    for page in pages() {
        let mut is_inside = false;
        for (number, line) in fs::read_to_string(root().join(&page)).unwrap().lines().enumerate() {
            let Some(fence) = line.trim_start().strip_prefix("```") else { continue };
            is_inside = !is_inside;
            let (language, word) = fence.split_once(' ').unwrap_or((fence, ""));
            let is_known = word == "run"
                || PREPARATIONS.iter().chain(&NOT_RUN).any(|(name, _)| *name == word)
                || (word == "session" && page == "docs/getting-started.md");
            if is_inside && ["sh", "console", "bash", "shell"].contains(&language) && !is_known {
                wrong.push(format!("{page}:{}: ```{fence}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "blocks without a word of `pages.rs`:\n{}", wrong.join("\n"));
}

#[test]
fn ellipsis_in_expected_output_matches_any_text() {
    assert!(matches_shown("revision 5\n", "revision 5\n"));
    assert!(!matches_shown("revision 5\n", "revision 6\n"));
    assert!(matches_shown("task …: done\n", "task 100000001: done\n"));
    assert!(!matches_shown("task …: done\n", "task 100000001: dead\n"));
    assert!(matches_shown("{\"epoch\":…\n", "{\"epoch\":3}\n"));
    let page = "```console run\n$ x\none\n$ y\n```\n```sh run\nz  # why\n```\n```sh build\nnot\n```\n\
                1. item\n   ```sh alone\n   a \\\n     b\n   c\n   ```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 3);
    let [x, y] = &found[0].commands[..] else { panic!("{} commands", found[0].commands.len()) };
    assert_eq!((x.command.as_str(), x.output.as_deref()), ("x", Some("one\n")));
    assert_eq!((y.output.as_deref(), found[1].commands[0].line), (None, 7));
    let alone: Vec<&str> = found[2].commands.iter().map(|typed| typed.command.as_str()).collect();
    assert_eq!((found[2].preparation, alone), (Some(""), vec!["a \\\n  b", "c"]));
}

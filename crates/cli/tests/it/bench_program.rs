//! Tests of the commands `bench`, `report` and `demo`, which `dunlin` runs with the program `dunlin-bench`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

use crate::dunlin::{Outcome, dunlin, run, run_with};

/// A directory that contains the program `dunlin`, and another directory, which PATH names.
struct Installed {
    program_dir: TempDir,
    path_dir: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let folder = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let installed = Installed { program_dir: folder(), path_dir: folder() };
        fs::hard_link(env!("CARGO_BIN_EXE_dunlin"), installed.program_dir.path().join("dunlin")).unwrap();
        installed
    }

    /// Installs `program` as `dunlin-bench` in `folder`.
    fn install(folder: &TempDir, program: &str) {
        symlink(program, folder.path().join("dunlin-bench")).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let template = dunlin(arguments);
        let mut command = Command::new(self.program_dir.path().join("dunlin"));
        command.args(template.get_args()).env_clear().env("NO_COLOR", "1").env("PATH", self.path_dir.path());
        run_with(command, b"")
    }
}

#[test]
fn error_for_a_missing_bench_program_tells_how_to_install_it() {
    let installed = Installed::new();
    for command in [&["bench", "spot"][..], &["report"], &["demo", "--once"]] {
        let outcome = installed.run(command);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        let program_dir = installed.program_dir.path().display().to_string();
        for text in ["dunlin-bench", "cargo install --path crates/bench-cli", &program_dir] {
            assert!(outcome.err.contains(text), "{text}: {outcome:?}");
        }
    }
}

#[test]
fn bench_program_next_to_dunlin_is_preferred_to_one_in_path() {
    let installed = Installed::new();
    Installed::install(&installed.path_dir, "/bin/false");
    let outcome = installed.run(&["bench", "spot", "--quick"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""), "{outcome:?}");
    Installed::install(&installed.program_dir, "/bin/echo");
    let outcome = installed.run(&["--json", "bench", "spot", "--quick"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), "--json bench spot --quick\n"), "{outcome:?}");
}

#[test]
fn dunlin_shows_help_and_usage_errors_without_its_bench_program() {
    let installed = Installed::new();
    assert_eq!(installed.run(&["bench", "--help"]).done(), run(&["bench", "--help"]).done());
    assert!(installed.run(&["help", "demo"]).done().contains("--together"));
    assert!(installed.run(&["completions", "bash"]).done().contains("--kill-every"));
    let outcome = installed.run(&["demo", "--speed", "fast"]);
    assert!(outcome.code == Some(2) && outcome.err.contains("expected a factor such as 10x"), "{outcome:?}");
}

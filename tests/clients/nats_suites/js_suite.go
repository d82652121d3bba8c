package main

import (
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// jsCommit is the commit of nats.js to which the exclusions apply. Packages of nats.js do not contain the tests, so the
// suite needs a clone of https://github.com/nats-io/nats.js.
const jsCommit = "3a7b736b175d9a387130210c88f851d71e1b014f"

// jsTests is the path of the core tests in the clone.
const jsTests = "core/tests"

// jsModules are modules of TypeScript: a replacement for modules from JSR, and the module that selects the tests.
//
//go:embed js
var jsModules embed.FS

// jsSuite runs the core tests of nats.js, except the excluded tests. It returns whether all of them passed. The tests
// start nats-server from PATH.
func jsSuite(args []string) (bool, error) {
	flags := flag.NewFlagSet("nats_suites nats.js", flag.ContinueOnError)
	dir := flags.String("dir", "", "a clone of nats.js")
	deno := flags.String("deno", "deno", "the program deno")
	excluded := flags.String("excluded", "excluded.tsv", "the list of exclusions")
	nodes := flags.Int("nodes", 1, "nodes that stand for each nats-server")
	only := flags.String("run", "", "only tests whose file and name contain this")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	clone, err := filepath.Abs(*dir)
	if err != nil {
		return false, err
	}
	commit, err := exec.Command("git", "-C", clone, "rev-parse", "HEAD").Output()
	if err != nil || strings.TrimSpace(string(commit)) != jsCommit {
		return false, fmt.Errorf("%q must be a clone of nats.js at %s: %w", *dir, jsCommit, errors.Join(err, os.ErrNotExist))
	}
	list, err := readExclusions(*excluded, "nats.js", *nodes)
	if err != nil {
		return false, err
	}
	place, err := os.MkdirTemp("", "nats_suites")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(place)
	if err := prepareJS(clone, place); err != nil {
		return false, err
	}
	report := filepath.Join(place, "report.xml")
	test := func(settings ...string) *exec.Cmd {
		command := exec.Command(*deno, "test", "--allow-all", "--no-check", "--no-lock", "--no-config", "--quiet",
			"--import-map="+filepath.Join(place, "imports.json"), "--preload="+filepath.Join(place, "js/preload.ts"),
			"--junit-path="+report, jsTests)
		command.Dir = clone
		command.Env = append(os.Environ(),
			"PATH="+place+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1",
			// The tests write the servers' configuration files there, and expect the files of ports there.
			"TMPDIR="+place, "SUITE_DIR="+place, "SUITE_NODES="+strconv.Itoa(*nodes))
		command.Env = append(command.Env, settings...)
		return command
	}
	if output, err := test().CombinedOutput(); err != nil {
		return false, fmt.Errorf("deno lists no tests: %w\n%s", err, output)
	}
	tests, err := readCases(report)
	if err != nil {
		return false, err
	}
	total := result{excluded: map[string]int{}}
	chosen := []string{}
	for _, one := range tests {
		// See js/preload.ts.
		file, name, _ := strings.Cut(one.Name, ": ")
		reason := list.reason(file, name)
		switch {
		case slices.Contains(chosen, one.Name):
			return false, fmt.Errorf("two tests are called %q", one.Name)
		case reason != "":
			total.excluded[reason]++
		case strings.Contains(one.Name, *only):
			chosen = append(chosen, one.Name)
		}
	}
	total.run = len(chosen)
	names := filepath.Join(place, "tests.json")
	if err := writeJSON(names, chosen); err != nil {
		return false, err
	}
	run := test("SUITE_TESTS=" + names)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	// The exit code is used only if the report cannot be read, because the report lists the failed tests.
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended := run.Run()
	// Failed tests leave servers behind; they are in the process group of deno.
	syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
	if err := total.readReport(report); err != nil {
		return false, errors.Join(ended, err)
	}
	for at, name := range total.failed {
		_, total.failed[at], _ = strings.Cut(name, "preload.ts.")
	}
	return total.print(fmt.Sprintf("nats.js against %d node(s)", *nodes), list, *only == ""), nil
}

// prepareJS writes the modules, the import map, and the link that stands for nats-server.
func prepareJS(clone, place string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Symlink(program, filepath.Join(place, "nats-server")); err != nil {
		return err
	}
	modules, err := fs.Sub(jsModules, "js")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(place, "js"), modules); err != nil {
		return err
	}
	module := func(path string) string { return "file://" + filepath.ToSlash(path) }
	return writeJSON(filepath.Join(place, "imports.json"), map[string]any{"imports": map[string]string{
		"nst":                         module(filepath.Join(clone, jsTests, "nst.ts")),
		"@nats-io/nats-core":          module(filepath.Join(clone, "core/src/mod.ts")),
		"@nats-io/nats-core/internal": module(filepath.Join(clone, "core/src/internal_mod.ts")),
		"@nats-io/transport-deno":     module(filepath.Join(clone, "transport-deno/src/mod.ts")),
		"@std/assert":                 module(filepath.Join(place, "js/assert.ts")),
		"@std/io":                     module(filepath.Join(place, "js/io.ts")),
		"@std/path":                   "node:path",
		"@nats-io/nkeys":              "npm:@nats-io/nkeys@2.0.3",
		"@nats-io/nuid":               "npm:@nats-io/nuid@3.0.0",
		"@nats-io/jwt":                "npm:@nats-io/jwt@0.0.11",
	}})
}

func writeJSON(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

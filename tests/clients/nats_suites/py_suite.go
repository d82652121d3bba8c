package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pyCommit is the commit of nats.py to which the exclusions apply. Packages of nats.py do not contain the tests, so the
// suite needs a clone of https://github.com/nats-io/nats.py.
const pyCommit = "06b677808029274b64e06af9eee7170d3b80a09b"

// pyTests and pySource are the paths of the tests and of the client's source in the clone.
const pyTests, pySource = "nats/tests", "nats/src"

// pySuite runs the tests of nats.py, except the excluded tests. It returns whether all of them passed. The tests start
// nats-server from PATH at fixed ports (4222 and others), which must be free.
func pySuite(args []string) (bool, error) {
	flags := flag.NewFlagSet("nats_suites nats.py", flag.ContinueOnError)
	dir := flags.String("dir", "", "a clone of nats.py")
	python := flags.String("python", "python3", "an interpreter with pytest, nkeys and aiohttp")
	excluded := flags.String("excluded", "excluded.tsv", "the list of exclusions")
	only := flags.String("run", "", "only tests whose name contains this")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	commit, err := exec.Command("git", "-C", *dir, "rev-parse", "HEAD").Output()
	if err != nil || strings.TrimSpace(string(commit)) != pyCommit {
		return false, fmt.Errorf("%q must be a clone of nats.py at %s: %w", *dir, pyCommit, errors.Join(err, os.ErrNotExist))
	}
	list, err := readExclusions(*excluded, "nats.py", 1)
	if err != nil {
		return false, err
	}
	place, err := os.MkdirTemp("", "nats_suites")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(place)
	program, err := os.Executable()
	if err != nil {
		return false, err
	}
	if err := os.Symlink(program, filepath.Join(place, "nats-server")); err != nil {
		return false, err
	}
	pytest := func(arguments ...string) *exec.Cmd {
		command := exec.Command(*python, append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider"}, arguments...)...)
		command.Dir = *dir
		command.Env = append(os.Environ(),
			"PATH="+place+string(os.PathListSeparator)+os.Getenv("PATH"),
			"PYTHONPATH="+pySource, "PYTHONDONTWRITEBYTECODE=1", "SUITE_DIR="+place,
			// Some tests skip themselves if this variable does not name a recent version.
			"NATS_SERVER_VERSION=main")
		return command
	}
	output, err := pytest("--collect-only", pyTests).CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("pytest lists no tests: %w\n%s", err, output)
	}
	total := result{excluded: map[string]int{}}
	var chosen []string
	for _, line := range strings.Fields(string(output)) {
		file, test, found := strings.Cut(line, "::")
		if !found {
			continue
		}
		reason := list.reason(filepath.Base(file), strings.ReplaceAll(test, "::", "."))
		switch {
		case reason != "":
			total.excluded[reason]++
		case strings.Contains(test, *only):
			chosen = append(chosen, line)
		}
	}
	total.run = len(chosen)
	names, report := filepath.Join(place, "tests"), filepath.Join(place, "report.xml")
	if err := os.WriteFile(names, []byte(strings.Join(chosen, "\n")), 0o600); err != nil {
		return false, err
	}
	run := pytest("--tb=native", "--junit-xml="+report, "@"+names)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	// The exit code is used only if the report cannot be read, because the report lists the failed tests.
	ended := run.Run()
	if err := total.readReport(report); err != nil {
		return false, errors.Join(ended, err)
	}
	return total.print("nats.py against 1 node(s)", list, *only == ""), nil
}

type testCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Failure *struct{} `xml:"failure"`
	Error   *struct{} `xml:"error"`
	Skipped *struct{} `xml:"skipped"`
}

// readCases reads a report in JUnit's XML format.
func readCases(name string) ([]testCase, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var report struct {
		Cases []testCase `xml:"testsuite>testcase"`
	}
	err = xml.Unmarshal(text, &report)
	return report.Cases, err
}

// readReport counts the tests of a report. A test that skips itself counts as failed unless it is excluded.
func (r *result) readReport(name string) error {
	cases, err := readCases(name)
	if err != nil {
		return err
	}
	for _, one := range cases {
		if one.Failure == nil && one.Error == nil && one.Skipped == nil {
			r.passed++
		} else if name := one.Class + "." + one.Name; !slices.Contains(r.failed, name) {
			r.failed = append(r.failed, name)
		}
	}
	return nil
}

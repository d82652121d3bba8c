package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// exclusions are the lines of excluded.tsv for one suite and number of nodes.
type exclusions struct {
	lines []*exclusion
	smoke map[string]bool
}

type exclusion struct {
	test, reason string
	used         bool
}

// readExclusions reads a suite's lines for this number of nodes. A line names a test (TestName), a part of a test
// (TestName/part), all tests with a prefix (TestPrefix*), or all tests of a file (name_test.go).
func readExclusions(name, suite string, nodes int) (*exclusions, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list := &exclusions{smoke: map[string]bool{}}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || fields[3] == "" {
			return nil, fmt.Errorf("%s: not suite, nodes, test, reason: %q", name, line)
		}
		if fields[0] != suite {
			continue
		}
		switch fields[1] {
		case "smoke":
			list.smoke[fields[2]] = true
		case "any", strconv.Itoa(nodes):
			list.lines = append(list.lines, &exclusion{test: fields[2], reason: fields[3]})
		}
	}
	return list, nil
}

// reason returns the reason why a test is excluded; empty if the test is not excluded.
func (e *exclusions) reason(file, test string) string {
	for _, line := range e.lines {
		start, is := strings.CutSuffix(line.test, "*")
		if line.test == test || line.test == file || is && strings.HasPrefix(test, start) {
			line.used = true
			return line.reason
		}
	}
	return ""
}

// parts returns a regular expression that matches the excluded parts of tests.
func (e *exclusions) parts() string {
	var parts []string
	for _, line := range e.lines {
		if strings.HasPrefix(line.test, "Test") && strings.Contains(line.test, "/") {
			line.used = true
			test, part, _ := strings.Cut(line.test, "/")
			parts = append(parts, "^"+test+"$/^"+part+"$")
		}
	}
	return strings.Join(parts, "|")
}

// unused returns the lines that matched no test.
func (e *exclusions) unused() []string {
	var names []string
	for _, line := range e.lines {
		if !line.used {
			names = append(names, line.test)
		}
	}
	slices.Sort(names)
	return names
}

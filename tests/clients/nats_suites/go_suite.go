package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// packages are the packages of nats.go with tests of core NATS. The package jetstream is excluded.
var packages = []string{".", "test", "micro", "micro/test"}

// goSuite runs the tests of nats.go, except the excluded tests. It returns whether all of them passed.
func goSuite(args []string) (bool, error) {
	flags := flag.NewFlagSet("nats_suites", flag.ContinueOnError)
	dir := flags.String("dir", "", "where the suite is copied to and built")
	excluded := flags.String("excluded", "excluded.tsv", "the list of exclusions")
	nodes := flags.Int("nodes", 1, "nodes that stand for each nats-server")
	smoke := flags.Bool("smoke", false, "only the tests of the list's lines \"smoke\"")
	only := flags.String("run", "", "only tests whose name this expression finds")
	verbose := flags.Bool("v", false, "show all that the tests print")
	install := flags.Bool("install", false, "copy and build the suite, run nothing")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if err := build(*dir); err != nil || *install {
		return err == nil, err
	}
	list, err := readExclusions(*excluded, "nats.go", *nodes)
	if err != nil {
		return false, err
	}
	filter, err := regexp.Compile(*only)
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
	tester, err := startTester(program, *nodes, place)
	if err != nil {
		return false, err
	}
	defer tester.close()
	done := make(chan bool, 1)
	var total result
	go func() {
		defer close(done)
		for _, name := range packages {
			total.add(runPackage(filepath.Join(*dir, name), name, list, tester.url(), *smoke, filter, *verbose))
		}
	}()
	for running := true; running; {
		select {
		case request := <-tester.requests:
			request()
		case <-done:
			running = false
		}
	}
	suite := fmt.Sprintf("nats.go against %d node(s)", *nodes)
	if *smoke {
		suite += ", smoke"
	}
	return total.print(suite, list, !*smoke && *only == ""), total.err
}

type result struct {
	run, passed int
	failed      []string
	excluded    map[string]int
	err         error
}

func (r *result) add(other result) {
	r.run += other.run
	r.passed += other.passed
	r.failed = append(r.failed, other.failed...)
	if r.excluded == nil {
		r.excluded = map[string]int{}
	}
	for reason, count := range other.excluded {
		r.excluded[reason] += count
	}
	r.err = errors.Join(r.err, other.err)
}

// print prints the results, and returns whether all tests passed. If the whole suite ran, each line of the exclusions
// must have matched a test.
func (r *result) print(suite string, list *exclusions, whole bool) bool {
	slices.Sort(r.failed)
	for _, name := range r.failed {
		fmt.Printf("FAILED %s\n", name)
	}
	if whole {
		for reason, count := range r.excluded {
			fmt.Printf("excluded: %4d  %s\n", count, reason)
		}
		for _, name := range list.unused() {
			fmt.Printf("FAILED list of exclusions: no test is called %s\n", name)
			r.failed = append(r.failed, name)
		}
	}
	fmt.Printf("%s: run %d, passed %d, excluded %d\n", suite, r.run, r.passed, r.excludedCount())
	return len(r.failed) == 0 && r.passed > 0 && r.passed == r.run
}

func (r *result) excludedCount() (sum int) {
	for _, count := range r.excluded {
		sum += count
	}
	return sum
}

// build copies the source of nats.go from Go's module cache, and builds its tests.
func build(dir string) error {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "github.com/nats-io/nats.go").Output()
	if err != nil {
		return fmt.Errorf("where is nats.go? %w", err)
	}
	source, version, _ := strings.Cut(strings.TrimSpace(string(output)), " ")
	stamp := filepath.Join(dir, "built")
	if text, err := os.ReadFile(stamp); err == nil && string(text) == version {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		return err
	}
	for _, name := range packages {
		place := filepath.Join(dir, name)
		command := exec.Command("go", "test", "-modfile", filepath.Join(dir, "go_test.mod"), "-vet=off", "-c", "-o", "suite.test", ".")
		command.Dir = place
		command.Stdout, command.Stderr = os.Stderr, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("cannot build the tests of %s: %w", name, err)
		}
	}
	return os.WriteFile(stamp, []byte(version), 0o600)
}

var (
	testLine   = regexp.MustCompile(`(?m)^func (Test\w+)\(\w* ?\*testing\.T\)`)
	resultLine = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) `)
	runLine    = regexp.MustCompile(`^=== RUN\s+([^/\s]+)$`)
)

func runPackage(dir, name string, list *exclusions, url string, smoke bool, filter *regexp.Regexp, verbose bool) result {
	total := result{excluded: map[string]int{}}
	binary := filepath.Join(dir, "suite.test")
	// TestMain of nats.go connects to the tester even if it only lists tests.
	command := exec.Command(binary, "-test.list", ".")
	command.Env = append(os.Environ(), "TESTER_NATS_URL="+url)
	output, err := command.Output()
	if err != nil {
		total.err = fmt.Errorf("%s has no list of tests: %w", name, err)
		return total
	}
	files, err := filesOf(dir)
	if err != nil {
		total.err = err
		return total
	}
	var left []string
	for _, test := range strings.Fields(string(output)) {
		if !strings.HasPrefix(test, "Test") {
			continue
		}
		reason := list.reason(filepath.ToSlash(filepath.Join(name, files[test])), test)
		switch {
		case reason != "":
			total.excluded[reason]++
		case (!smoke || list.smoke[test]) && filter.MatchString(test):
			left = append(left, test)
		}
	}
	total.run = len(left)
	for len(left) > 0 {
		before := len(left)
		left = runTests(dir, name, left, list.parts(), url, verbose, &total)
		if len(left) == before {
			total.failed = append(total.failed, left...)
			break
		}
	}
	return total
}

// filesOf returns the name of each test's file, by the test's name.
func filesOf(dir string) (map[string]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	files := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, found := range testLine.FindAllSubmatch(text, -1) {
			files[string(found[1])] = filepath.Base(name)
		}
	}
	return files, err
}

// runTests runs the tests in one process. If the process ends early, it returns the tests that have not run.
func runTests(dir, name string, tests []string, without, url string, verbose bool, total *result) []string {
	arguments := []string{"-test.v", "-test.timeout", "30m", "-test.run", "^(" + strings.Join(tests, "|") + ")$"}
	if without != "" {
		arguments = append(arguments, "-test.skip", without)
	}
	command := exec.Command(filepath.Join(dir, "suite.test"), arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), "TESTER_NATS_URL="+url)
	output, err := command.StdoutPipe()
	if err == nil {
		command.Stderr = command.Stdout
		err = command.Start()
	}
	if err != nil {
		total.err = errors.Join(total.err, err)
		return tests
	}
	left, current, said := slices.Clone(tests), "", []string(nil)
	settle := func(test string, passed bool) {
		at := slices.Index(left, test)
		if at < 0 {
			return
		}
		left = slices.Delete(left, at, at+1)
		if passed {
			total.passed++
			return
		}
		total.failed = append(total.failed, name+"/"+test)
		if !verbose {
			fmt.Println(strings.Join(said, "\n"))
		}
	}
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	began := time.Now()
	for lines.Scan() {
		line := lines.Text()
		if verbose {
			fmt.Println(line)
		}
		if found := runLine.FindStringSubmatch(line); found != nil {
			current, said, began = found[1], nil, time.Now()
		}
		if len(said) < 200 {
			said = append(said, line)
		}
		if found := resultLine.FindStringSubmatch(line); found != nil {
			// A test that skips itself counts as failed unless it is excluded.
			settle(found[2], found[1] == "PASS")
			current = ""
		}
	}
	if err := command.Wait(); err != nil && current != "" {
		fmt.Printf("%s ended the process after %s: %v\n", current, time.Since(began).Round(time.Millisecond), err)
		settle(current, false)
	}
	return left
}

// The core test suites of NATS clients, unmodified, run against Dunlin.
//
// Called as nats-server, it takes nats-server's flags and configuration file, and runs one Dunlin node instead, or
// SUITE_NODES of them behind one port. Called as nats_suites, it runs the suite of nats.go (see go_suite.go), or with
// nats.py as its first argument that of nats.py (see py_suite.go).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Nodes are killed with the thread that started them, so this thread starts all of them.
func init() { runtime.LockOSThread() }

func main() {
	if filepath.Base(os.Args[0]) == "nats-server" {
		os.Exit(shim(os.Args[1:]))
	}
	suite, args := goSuite, os.Args[1:]
	if len(args) > 0 && args[0] == "nats.py" {
		suite, args = pySuite, args[1:]
	}
	passed, err := suite(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats_suites:", err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}

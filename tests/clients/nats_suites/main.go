// Command nats_suites runs the unmodified core test suites of NATS clients against Dunlin.
//
// By default, the program runs the suite of nats.go (see go_suite.go). With the first argument nats.py, it runs the
// suite of nats.py (see py_suite.go); with nats.js, that of nats.js (see js_suite.go). If the program is started under
// the name nats-server, it accepts nats-server's flags and configuration file, and runs one Dunlin node, or SUITE_NODES
// nodes behind one port.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// The kernel kills a node when the thread that started the node ends. Therefore, the main thread starts all nodes.
func init() { runtime.LockOSThread() }

func main() {
	if filepath.Base(os.Args[0]) == "nats-server" {
		os.Exit(shim(os.Args[1:]))
	}
	suite, args := goSuite, os.Args[1:]
	if len(args) > 0 && args[0] == "nats.py" {
		suite, args = pySuite, args[1:]
	} else if len(args) > 0 && args[0] == "nats.js" {
		suite, args = jsSuite, args[1:]
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

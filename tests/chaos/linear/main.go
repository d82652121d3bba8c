// Command linear checks whether histories of operations are linearizable. Usage: linear FILE OUT
//
// Each line of FILE is one operation as JSON (Operation). Operations of a group access the same keys and are checked
// together. Groups are independent of each other. The program prints the result as one line of JSON. For each group
// that is not linearizable, it writes a page to OUT that shows the violation.
//
// The exit code is 0 if every group is linearizable or undecided, 1 if a group is not linearizable, and 2 if the check
// failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience limits the time to check a group. After this time, the group counts as undecided. The caller limits the
// number of undecided groups.
const patience = 20 * time.Second

type verdict struct {
	Groups     int      `json:"groups"`
	Operations int      `json:"operations"`
	Undecided  int      `json:"undecided"`
	Illegal    []string `json:"illegal"`
}

func main() {
	if len(os.Args) != 3 {
		fail("usage: linear FILE OUT")
	}
	groups, count := read(os.Args[1])
	found := verdict{Groups: len(groups), Operations: count, Illegal: []string{}}
	var mutex sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, 2)
	for name, operations := range groups {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wait.Done() }()
			result, info := porcupine.CheckOperationsVerbose(model, operations, patience)
			mutex.Lock()
			defer mutex.Unlock()
			switch result {
			case porcupine.Unknown:
				found.Undecided++
			case porcupine.Illegal:
				found.Illegal = append(found.Illegal, name)
				page := filepath.Join(os.Args[2], "illegal-"+name+".html")
				if err := porcupine.VisualizePath(model, info, page); err != nil {
					fmt.Fprintln(os.Stderr, "cannot draw", page, err)
				}
			}
		}()
	}
	wait.Wait()
	sort.Strings(found.Illegal)
	line, _ := json.Marshal(found)
	fmt.Println(string(line))
	if len(found.Illegal) > 0 {
		os.Exit(1)
	}
}

// An operation with unknown outcome may take effect at any time after its call.
func read(path string) (map[string][]porcupine.Operation, int) {
	file, err := os.Open(path)
	if err != nil {
		fail(err)
	}
	defer file.Close()
	groups, count := map[string][]porcupine.Operation{}, 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for ; lines.Scan(); count++ {
		var op Operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fail(err)
		}
		end := int64(math.MaxInt64)
		if op.Return != nil {
			end = *op.Return
		}
		groups[op.Group] = append(groups[op.Group], porcupine.Operation{
			ClientId: op.Client, Input: op, Output: op.Out, Call: op.Call, Return: end,
		})
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
	return groups, count
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "linear:", why)
	os.Exit(2)
}

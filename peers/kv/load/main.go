// Command kv_load sends requests to a key-value store, over several connections, with a fixed number of requests in
// flight.
//
//	kv_load WORK
//
// WORK describes the workload as JSON (crates/bench/src/control/work.rs). The program generates the same keys and
// values as dunlin-bench. It reads acknowledged values back and compares them before it prints the report as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// work is the workload from the command line.
type work struct {
	Store     string   `json:"store"`
	Endpoints []string `json:"endpoints"`
	Case      string   `json:"case"`
	Clients   int      `json:"clients"`
	InFlight  int      `json:"in_flight"`
	Keys      int      `json:"keys"`
	Bytes     int      `json:"bytes"`
	Batch     int      `json:"batch"`
	WarmupNs  int64    `json:"warmup_ns"`
	TimeNs    int64    `json:"time_ns"`
}

const (
	timeout   = 60 * time.Second
	loadBatch = 100
	loadLanes = 32
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func printJSON(line any) { check(json.NewEncoder(os.Stdout).Encode(line)) }

func main() {
	if len(os.Args) != 2 {
		check(fmt.Errorf("kv_load WORK"))
	}
	var todo work
	check(json.Unmarshal([]byte(os.Args[1]), &todo))
	ctx := context.Background()
	if todo.Case == "probe" {
		probe(ctx, todo.Endpoints)
		return
	}
	stores := connect(ctx, todo)
	acked := newAckedValues(todo)
	switch todo.Case {
	case "put":
		run(ctx, todo, stores, acked, putOne)
		check(acked.verify(ctx, stores))
	case "cas":
		run(ctx, todo, stores, acked, casOne)
		check(acked.verify(ctx, stores))
	case "batch":
		run(ctx, todo, stores, acked, putMany)
		check(acked.verify(ctx, stores))
	case "get":
		check(acked.load(ctx, stores))
		run(ctx, todo, stores, acked, getOne)
	case "range":
		check(acked.load(ctx, stores))
		run(ctx, todo, stores, acked, getMany)
	default:
		check(fmt.Errorf("there is no case %q", todo.Case))
	}
	printJSON(result)
}

// connect opens todo.Clients connections, and waits until the store accepts requests.
func connect(ctx context.Context, todo work) []store {
	if todo.Store == "etcd" {
		leaderOf(ctx, todo.Endpoints)
	}
	stores := make([]store, todo.Clients)
	for nth := range stores {
		var err error
		if todo.Store == "jetstream" {
			stores[nth], err = newJetStream(ctx, todo, nth)
		} else {
			stores[nth], err = newEtcd(todo)
		}
		check(err)
	}
	return stores
}

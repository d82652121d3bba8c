// Command asynq_load measures asynq with Redis as its queue. One process submits and runs the tasks.
//
//	asynq_load WORK
//
// WORK describes the workload as JSON (crates/bench/src/tasks/work.rs). The program prints the report as JSON. The report
// counts tasks that ran twice. The program fails if a task does not run.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// work is the workload from the command line.
type work struct {
	Endpoint string  `json:"endpoint"`
	Workers  int     `json:"workers"`
	TaskNs   int64   `json:"task_ns"`
	Backlog  int     `json:"backlog"`
	Rate     float64 `json:"rate"`
	Bytes    int     `json:"bytes"`
	WarmupNs int64   `json:"warmup_ns"`
	TimeNs   int64   `json:"time_ns"`
}

// report has the results. A latency is the time from when a task was due until it started or ended.
type report struct {
	Ops         int64 `json:"ops"`
	Submitted   int64 `json:"submitted"`
	Completed   int64 `json:"completed"`
	Twice       int64 `json:"twice"`
	ElapsedNs   int64 `json:"elapsed_ns"`
	StartP50Ns  int64 `json:"start_p50_ns"`
	StartP99Ns  int64 `json:"start_p99_ns"`
	EndP50Ns    int64 `json:"end_p50_ns"`
	EndP99Ns    int64 `json:"end_p99_ns"`
	InOneWorker int   `json:"workers_in_a_process"`
}

const timeout = 60 * time.Second

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 2 {
		check(fmt.Errorf("asynq_load WORK"))
	}
	var todo work
	check(json.Unmarshal([]byte(os.Args[1]), &todo))
	result := run(todo)
	check(json.NewEncoder(os.Stdout).Encode(result))
}

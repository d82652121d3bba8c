// A task queue on Redis with asynq: submits, runs and completes the tasks in one process.
//
//	asynq_load WORK
//
// WORK describes the work as JSON (crates/bench/src/tasks/work.rs); the output is the report. Each task has a
// number. A task that is done twice or never is an error.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// work is the described work.
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

// report has the results. Latencies are from the time when a task was due to its start or end.
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

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// processStart is the origin of all times. Times are measured with the monotonic clock.
var processStart = time.Now()

func now() int64 { return int64(time.Since(processStart)) }

const (
	kind       = "work"
	submitters = 64
	headBytes  = 16
)

// tally counts completed tasks. A second run of the same task is counted in twice.
type tally struct {
	sync.Mutex
	done       map[uint64]bool
	start, end int64
	ops, twice int64
	starts     []int64
	ends       []int64
}

func (t *tally) record(seq uint64, due, started, ended int64) {
	t.Lock()
	defer t.Unlock()
	if t.done[seq] {
		t.twice++
		return
	}
	t.done[seq] = true
	if ended >= t.start && ended < t.end {
		t.ops++
		t.starts = append(t.starts, started-due)
		t.ends = append(t.ends, ended-due)
	}
}

func (t *tally) completed() int64 {
	t.Lock()
	defer t.Unlock()
	return int64(len(t.done))
}

func run(todo work) report {
	redis := asynq.RedisClientOpt{Addr: todo.Endpoint, PoolSize: submitters + todo.Workers}
	waitForRedis(redis)
	begin := now() + todo.WarmupNs
	count := &tally{done: map[uint64]bool{}, start: begin, end: begin + todo.TimeNs}
	slots := make(chan struct{}, todo.Backlog)
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: todo.Workers,
		LogLevel:    asynq.ErrorLevel,
		// The default interval at which asynq checks an empty queue is a second, which is too long for latencies.
		TaskCheckInterval: time.Millisecond,
	})
	handle := func(_ context.Context, task *asynq.Task) error {
		started := now()
		if todo.TaskNs > 0 {
			time.Sleep(time.Duration(todo.TaskNs))
		}
		payload := task.Payload()
		seq, due := binary.LittleEndian.Uint64(payload), int64(binary.LittleEndian.Uint64(payload[8:]))
		count.record(seq, due, started, now())
		if todo.Rate == 0 {
			<-slots
		}
		return nil
	}
	check(server.Start(asynq.HandlerFunc(handle)))
	submitted := submit(todo, redis, slots, count.end)
	for deadline := time.Now().Add(timeout); count.completed() < submitted; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			check(fmt.Errorf("%d of %d tasks were completed", count.completed(), submitted))
		}
	}
	server.Shutdown()
	return count.report(todo, submitted)
}

// waitForRedis waits until Redis responds.
func waitForRedis(redis asynq.RedisClientOpt) {
	client := asynq.NewClient(redis)
	defer client.Close()
	var err error
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = client.Ping(); err == nil {
			return
		}
	}
	check(err)
}

// submit submits tasks until end, and returns their number.
func submit(todo work, redis asynq.RedisClientOpt, slots chan struct{}, end int64) int64 {
	type request struct {
		seq uint64
		due int64
	}
	requests := make(chan request, 1<<16)
	var wait sync.WaitGroup
	client := asynq.NewClient(redis)
	for range submitters {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for next := range requests {
				payload := make([]byte, max(headBytes, todo.Bytes))
				binary.LittleEndian.PutUint64(payload, next.seq)
				binary.LittleEndian.PutUint64(payload[8:], uint64(next.due))
				_, err := client.Enqueue(asynq.NewTask(kind, payload))
				check(err)
			}
		}()
	}
	seq, due := uint64(0), now()
	for ; now() < end; seq++ {
		if todo.Rate > 0 {
			due += int64(rand.ExpFloat64() / todo.Rate * 1e9)
			if delay := due - now(); delay > 0 {
				time.Sleep(time.Duration(delay))
			}
			requests <- request{seq, due}
		} else {
			slots <- struct{}{}
			requests <- request{seq, now()}
		}
	}
	close(requests)
	wait.Wait()
	return int64(seq)
}

func (t *tally) report(todo work, submitted int64) report {
	slices.Sort(t.starts)
	slices.Sort(t.ends)
	return report{
		Ops:         t.ops,
		Submitted:   submitted,
		Completed:   int64(len(t.done)),
		Twice:       t.twice,
		ElapsedNs:   todo.TimeNs,
		StartP50Ns:  quantile(t.starts, 0.50),
		StartP99Ns:  quantile(t.starts, 0.99),
		EndP50Ns:    quantile(t.ends, 0.50),
		EndP99Ns:    quantile(t.ends, 0.99),
		InOneWorker: todo.Workers,
	}
}

func quantile(sorted []int64, share float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result has the counts and latencies of the measured requests.
var result struct {
	Ops       int     `json:"ops"`
	Errors    int     `json:"errors"`
	ElapsedNs int64   `json:"elapsed_ns"`
	AvgNs     float64 `json:"avg_ns"`
	P50Ns     int64   `json:"p50_ns"`
	P95Ns     int64   `json:"p95_ns"`
	P99Ns     int64   `json:"p99_ns"`
}

// lane sends one request at a time. The keys that it writes are written by no other lane.
type lane struct {
	acked  *ackedValues
	store  store
	first  int
	step   int
	random *rand.Rand
}

// randomKey returns a random key that this lane may write.
func (l *lane) randomKey() int {
	count := (l.acked.todo.Keys - l.first + l.step - 1) / l.step
	return l.first + l.step*l.random.IntN(count)
}

func putOne(ctx context.Context, l *lane) error {
	nth := l.randomKey()
	err := l.store.put(ctx, keyOf(nth), l.acked.next(nth))
	if err == nil {
		l.acked.acknowledge(nth)
	}
	return err
}

func casOne(ctx context.Context, l *lane) error {
	nth := l.randomKey()
	k := l.acked
	revision, err := l.store.cas(ctx, keyOf(nth), k.next(nth), k.revisions[nth])
	if err == nil {
		k.acknowledge(nth)
		k.revisions[nth] = revision
	}
	return err
}

func putMany(ctx context.Context, l *lane) error {
	keys, values := []string{}, [][]byte{}
	for at := range l.acked.todo.Batch {
		nth := l.first + l.step*at
		keys, values = append(keys, keyOf(nth)), append(values, l.acked.next(nth))
	}
	err := l.store.putAll(ctx, keys, values)
	if err == nil {
		for at := range l.acked.todo.Batch {
			l.acked.acknowledge(l.first + l.step*at)
		}
	}
	return err
}

func getOne(ctx context.Context, l *lane) error {
	key := keyOf(l.random.IntN(l.acked.todo.Keys))
	value, err := l.store.get(ctx, key)
	if err == nil && !isValid(value, l.acked.todo.Bytes, 1) {
		check(fmt.Errorf("%s holds what was not written", key))
	}
	return err
}

func getMany(ctx context.Context, l *lane) error {
	todo := l.acked.todo
	values, err := l.store.scan(ctx, keyOf(l.random.IntN(todo.Keys-todo.Batch)), todo.Batch)
	if err != nil {
		return err
	}
	if len(values) != todo.Batch {
		check(fmt.Errorf("%d keys where %d are", len(values), todo.Batch))
	}
	for _, value := range values {
		if !isValid(value, todo.Bytes, 1) {
			check(fmt.Errorf("a range holds what was not written"))
		}
	}
	return nil
}

// run lets each lane send requests one after another, and measures those that are answered after the warm-up.
func run(ctx context.Context, todo work, stores []store, k *ackedValues, request func(context.Context, *lane) error) {
	start := time.Now().Add(time.Duration(todo.WarmupNs))
	end := start.Add(time.Duration(todo.TimeNs))
	latencies, errors := make([][]int64, todo.InFlight), make([]int, todo.InFlight)
	var responses, last atomic.Int64
	// If no response arrives before end, the measurement continues until the first response, at most for timeout.
	isRunning := func(now time.Time) bool {
		return now.Before(end) || responses.Load() == 0 && now.Before(end.Add(timeout))
	}
	var lanes sync.WaitGroup
	for nth := range todo.InFlight {
		l := &lane{k, stores[nth%len(stores)], nth, todo.InFlight, rand.New(rand.NewPCG(1, uint64(nth)))}
		lanes.Go(func() {
			for before := time.Now(); isRunning(before); {
				err := request(ctx, l)
				after := time.Now()
				if err != nil {
					errors[nth]++
				} else if after.After(start) && isRunning(after) {
					latencies[nth] = append(latencies[nth], after.Sub(before).Nanoseconds())
					responses.Add(1)
					last.Store(after.Sub(start).Nanoseconds())
				}
				before = after
			}
		})
	}
	lanes.Wait()
	summarize(slices.Concat(latencies...), errors, max(todo.TimeNs, last.Load()))
}

func summarize(latencies []int64, errors []int, elapsed int64) {
	if len(latencies) == 0 {
		check(fmt.Errorf("nothing was answered"))
	}
	slices.Sort(latencies)
	total := 0.0
	for _, ns := range latencies {
		total += float64(ns)
	}
	quantile := func(share float64) int64 { return latencies[int(float64(len(latencies)-1)*share)] }
	result.Ops, result.ElapsedNs, result.AvgNs = len(latencies), elapsed, total/float64(len(latencies))
	result.P50Ns, result.P95Ns, result.P99Ns = quantile(0.5), quantile(0.95), quantile(0.99)
	for _, count := range errors {
		result.Errors += count
	}
}

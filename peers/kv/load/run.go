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

// result has the counts and latencies of the work.
var result struct {
	Ops       int     `json:"ops"`
	Errors    int     `json:"errors"`
	ElapsedNs int64   `json:"elapsed_ns"`
	AvgNs     float64 `json:"avg_ns"`
	P50Ns     int64   `json:"p50_ns"`
	P95Ns     int64   `json:"p95_ns"`
	P99Ns     int64   `json:"p99_ns"`
}

// lane has one request in flight at a time, and its own keys.
type lane struct {
	keeper *keeper
	at     store
	first  int
	step   int
	random *rand.Rand
}

// own draws one of the lane's keys.
func (l *lane) own() int {
	count := (l.keeper.todo.Keys - l.first + l.step - 1) / l.step
	return l.first + l.step*l.random.IntN(count)
}

func putOne(ctx context.Context, l *lane) error {
	nth := l.own()
	l.keeper.written[nth]++
	return l.at.put(ctx, keyOf(nth), payload(l.keeper.todo.Bytes, l.keeper.written[nth]))
}

func casOne(ctx context.Context, l *lane) error {
	nth := l.own()
	k := l.keeper
	revision, err := l.at.cas(ctx, keyOf(nth), payload(k.todo.Bytes, k.written[nth]+1), k.revisions[nth])
	if err == nil {
		k.written[nth]++
		k.revisions[nth] = revision
	}
	return err
}

func putMany(ctx context.Context, l *lane) error {
	keys, values := []string{}, [][]byte{}
	for at := range l.keeper.todo.Batch {
		nth := l.first + l.step*at
		l.keeper.written[nth]++
		keys, values = append(keys, keyOf(nth)), append(values, payload(l.keeper.todo.Bytes, l.keeper.written[nth]))
	}
	return l.at.putAll(ctx, keys, values)
}

func getOne(ctx context.Context, l *lane) error {
	key := keyOf(l.random.IntN(l.keeper.todo.Keys))
	value, err := l.at.get(ctx, key)
	if err == nil && !carries(value, l.keeper.todo.Bytes, 1) {
		check(fmt.Errorf("%s holds what was not written", key))
	}
	return err
}

func getMany(ctx context.Context, l *lane) error {
	todo := l.keeper.todo
	values, err := l.at.scan(ctx, keyOf(l.random.IntN(todo.Keys-todo.Batch)), todo.Batch)
	if err != nil {
		return err
	}
	if len(values) != todo.Batch {
		check(fmt.Errorf("%d keys where %d are", len(values), todo.Batch))
	}
	for _, value := range values {
		if !carries(value, todo.Bytes, 1) {
			check(fmt.Errorf("a range holds what was not written"))
		}
	}
	return nil
}

// run lets every lane make requests one after another, and counts responses after the warm-up.
func run(ctx context.Context, todo work, stores []store, k *keeper, one func(context.Context, *lane) error) {
	start := time.Now().Add(time.Duration(todo.WarmupNs))
	end := start.Add(time.Duration(todo.TimeNs))
	took, errors := make([][]int64, todo.InFlight), make([]int, todo.InFlight)
	var answered, last atomic.Int64
	// Without a response within the time, the measurement continues until the first one.
	goesOn := func(now time.Time) bool {
		return now.Before(end) || answered.Load() == 0 && now.Before(end.Add(patience))
	}
	var running sync.WaitGroup
	for nth := range todo.InFlight {
		l := &lane{k, stores[nth%len(stores)], nth, todo.InFlight, rand.New(rand.NewPCG(1, uint64(nth)))}
		running.Go(func() {
			for before := time.Now(); goesOn(before); {
				err := one(ctx, l)
				after := time.Now()
				if err != nil {
					errors[nth]++
				} else if after.After(start) && goesOn(after) {
					took[nth] = append(took[nth], after.Sub(before).Nanoseconds())
					answered.Add(1)
					last.Store(after.Sub(start).Nanoseconds())
				}
				before = after
			}
		})
	}
	running.Wait()
	sum(slices.Concat(took...), errors, max(todo.TimeNs, last.Load()))
}

func sum(took []int64, errors []int, elapsed int64) {
	if len(took) == 0 {
		check(fmt.Errorf("nothing was answered"))
	}
	slices.Sort(took)
	total := 0.0
	for _, ns := range took {
		total += float64(ns)
	}
	at := func(share float64) int64 { return took[int(float64(len(took)-1)*share)] }
	result.Ops, result.ElapsedNs, result.AvgNs = len(took), elapsed, total/float64(len(took))
	result.P50Ns, result.P95Ns, result.P99Ns = at(0.5), at(0.95), at(0.99)
	for _, count := range errors {
		result.Errors += count
	}
}

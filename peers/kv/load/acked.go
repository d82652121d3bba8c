package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ackedValues stores the acknowledged values. Only one lane writes each key, so its last value is certain.
type ackedValues struct {
	todo work
	// written is the number of writes of each key, which its value contains.
	written []uint64
	// revisions are the last known revisions of the keys, for compare-and-swap.
	revisions []uint64
}

func newAckedValues(todo work) *ackedValues {
	return &ackedValues{todo, make([]uint64, todo.Keys), make([]uint64, todo.Keys)}
}

// load writes all keys once.
func (k *ackedValues) load(ctx context.Context, stores []store) error {
	batch := loadBatch
	if k.todo.Store == "jetstream" {
		batch = 1
	}
	return k.each(stores, batch, func(s store, from, to int) error {
		keys, values := []string{}, [][]byte{}
		for nth := from; nth < to; nth++ {
			keys, values = append(keys, keyOf(nth)), append(values, payload(k.todo.Bytes, 1))
			k.written[nth] = 1
		}
		return s.putAll(ctx, keys, values)
	})
}

// verify reads every key and compares its value with the acknowledged one. It repeats a read of a follower that
// lags.
func (k *ackedValues) verify(ctx context.Context, stores []store) error {
	deadline := time.Now().Add(timeout)
	return k.each(stores, 1, func(s store, nth, _ int) error {
		for {
			value, err := s.get(ctx, keyOf(nth))
			if err != nil {
				return err
			}
			if k.written[nth] == 0 && value == nil || k.written[nth] > 0 && isValid(value, k.todo.Bytes, k.written[nth]) {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s was written %d times and does not hold that", keyOf(nth), k.written[nth])
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// each calls do for all keys on several lanes, a limited number at a time.
func (k *ackedValues) each(stores []store, step int, do func(s store, from, to int) error) error {
	var lanes sync.WaitGroup
	failed, pieces := make(chan error, loadLanes), make(chan int, loadLanes)
	for lane := range loadLanes {
		lanes.Go(func() {
			var first error
			for from := range pieces {
				if first == nil {
					first = do(stores[lane%len(stores)], from, min(from+step, k.todo.Keys))
				}
			}
			failed <- first
		})
	}
	for from := 0; from < k.todo.Keys; from += step {
		pieces <- from
	}
	close(pieces)
	lanes.Wait()
	for range loadLanes {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

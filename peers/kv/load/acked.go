package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ackedValues counts the writes of each key, to verify the keys' values at the end. Only one lane writes a key, so the
// key's last value is certain.
type ackedValues struct {
	todo work
	// written is the number of writes of each key. The value of a key contains this number.
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

// verify reads every key and compares its value with the acknowledged value. If they differ, it repeats the read until
// the timeout, because a follower with an older value may have replied.
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

// each calls do for all keys, in ranges of at most step keys. Several lanes make the calls concurrently.
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

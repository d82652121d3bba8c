package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ackedValues numbers the writes of each key, to verify the keys' values at the end. The value of a key contains the
// number of its write. Only one lane writes a key, so the key has the value of its last acknowledged write, or of a
// later write whose request failed.
type ackedValues struct {
	todo work
	// sent is the number of each key's last write.
	sent []uint64
	// acked is the number of each key's last acknowledged write, 0 if there is none.
	acked []uint64
	// revisions are the last known revisions of the keys, for compare-and-swap.
	revisions []uint64
}

func newAckedValues(todo work) *ackedValues {
	return &ackedValues{todo, make([]uint64, todo.Keys), make([]uint64, todo.Keys), make([]uint64, todo.Keys)}
}

// next numbers the next write of a key, and returns its value.
func (k *ackedValues) next(nth int) []byte {
	k.sent[nth]++
	return payload(k.todo.Bytes, k.sent[nth])
}

// acknowledge notes that the store has acknowledged the last write of a key.
func (k *ackedValues) acknowledge(nth int) { k.acked[nth] = k.sent[nth] }

// isPossible reports whether a key may have this value.
func (k *ackedValues) isPossible(nth int, value []byte) bool {
	if value == nil {
		return k.acked[nth] == 0
	}
	for seq := max(k.acked[nth], 1); seq <= k.sent[nth]; seq++ {
		if isValid(value, k.todo.Bytes, seq) {
			return true
		}
	}
	return false
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
			keys, values = append(keys, keyOf(nth)), append(values, k.next(nth))
		}
		if err := s.putAll(ctx, keys, values); err != nil {
			return err
		}
		for nth := from; nth < to; nth++ {
			k.acknowledge(nth)
		}
		return nil
	})
}

// verify reads every key and checks that its value is possible. If it is not, it repeats the read until the timeout,
// because a follower with an older value may have replied.
func (k *ackedValues) verify(ctx context.Context, stores []store) error {
	deadline := time.Now().Add(timeout)
	return k.each(stores, 1, func(s store, nth, _ int) error {
		for {
			value, err := s.get(ctx, keyOf(nth))
			if err != nil {
				return err
			}
			if k.isPossible(nth, value) {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s has no value of its writes %d to %d", keyOf(nth), k.acked[nth], k.sent[nth])
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

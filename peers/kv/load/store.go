package main

import "context"

// store is one connection to a key-value store.
type store interface {
	put(ctx context.Context, key string, value []byte) error
	// get is linearizable if the store supports that; a missing key has no value.
	get(ctx context.Context, key string) ([]byte, error)
	// cas writes if revision last wrote the key, 0 for a missing key; it returns the new revision.
	cas(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	putAll(ctx context.Context, keys []string, values [][]byte) error
	// scan returns a number of values from a key on, in the order of the keys.
	scan(ctx context.Context, from string, count int) ([][]byte, error)
}

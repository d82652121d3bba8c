package main

import "context"

// store is one connection to a key-value store.
type store interface {
	put(ctx context.Context, key string, value []byte) error
	// get is linearizable where the store can do that; a key that is not there has no value.
	get(ctx context.Context, key string) ([]byte, error)
	// cas writes if the key was last written by revision, 0 for a key that is not there; the revision it has now.
	cas(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	putAll(ctx context.Context, keys []string, values [][]byte) error
	// scan gives so many values from a key on, in the order of the keys.
	scan(ctx context.Context, from string, count int) ([][]byte, error)
}

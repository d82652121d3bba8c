package main

import "context"

// store is one connection to a key-value store.
type store interface {
	put(ctx context.Context, key string, value []byte) error
	// get returns the value of a key, or nil if the key does not exist. The read is linearizable if the store supports
	// linearizable reads.
	get(ctx context.Context, key string) ([]byte, error)
	// cas writes the key if revision is the key's last revision (0 for a missing key), and returns the new revision.
	cas(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	putAll(ctx context.Context, keys []string, values [][]byte) error
	// scan returns the values of the first count keys that are not before from, in the order of the keys.
	scan(ctx context.Context, from string, count int) ([][]byte, error)
}

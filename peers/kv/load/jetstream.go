package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const bucket = "bench"

// jetStream is a key-value bucket of JetStream. Each server stores a replica of the bucket on disk.
type jetStream struct{ kv jetstream.KeyValue }

func newJetStream(ctx context.Context, todo work, nth int) (store, error) {
	reconnect := []nats.Option{nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}
	nc, err := nats.Connect(todo.Endpoints[nth%len(todo.Endpoints)], reconnect...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	config := jetstream.KeyValueConfig{Bucket: bucket, Replicas: len(todo.Endpoints), Storage: jetstream.FileStorage}
	// The servers refuse the call until they have elected a leader.
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		callCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		kv, err := js.CreateOrUpdateKeyValue(callCtx, config)
		cancel()
		if err == nil {
			return &jetStream{kv}, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("making the bucket: %w", err)
		}
	}
}

func (j *jetStream) put(ctx context.Context, key string, value []byte) error {
	_, err := j.kv.Put(ctx, key, value)
	return err
}

func (j *jetStream) get(ctx context.Context, key string) ([]byte, error) {
	entry, err := j.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return entry.Value(), nil
}

func (j *jetStream) cas(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return j.kv.Create(ctx, key, value)
	}
	return j.kv.Update(ctx, key, value, revision)
}

func (j *jetStream) putAll(ctx context.Context, keys []string, values [][]byte) error {
	for at, key := range keys {
		if err := j.put(ctx, key, values[at]); err != nil {
			return err
		}
	}
	return nil
}

func (j *jetStream) scan(context.Context, string, int) ([][]byte, error) {
	return nil, errors.New("a bucket has no order of keys")
}

package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcd is one client for all endpoints, as in a user's program. Reads are linearizable.
type etcd struct{ kv *clientv3.Client }

func newEtcd(todo work) (store, error) {
	kv, err := clientv3.New(clientv3.Config{Endpoints: todo.Endpoints, DialTimeout: timeout, Logger: zap.NewNop()})
	return &etcd{kv}, err
}

func (e *etcd) put(ctx context.Context, key string, value []byte) error {
	_, err := e.kv.Put(ctx, key, string(value))
	return err
}

func (e *etcd) get(ctx context.Context, key string) ([]byte, error) {
	response, err := e.kv.Get(ctx, key)
	if err != nil || len(response.Kvs) == 0 {
		return nil, err
	}
	return response.Kvs[0].Value, nil
}

func (e *etcd) cas(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", int64(revision))
	response, err := e.kv.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, string(value))).Commit()
	if err != nil {
		return 0, err
	}
	if !response.Succeeded {
		check(fmt.Errorf("%s was written by somebody else", key))
	}
	return uint64(response.Header.Revision), nil
}

func (e *etcd) putAll(ctx context.Context, keys []string, values [][]byte) error {
	puts := []clientv3.Op{}
	for at, key := range keys {
		puts = append(puts, clientv3.OpPut(key, string(values[at])))
	}
	_, err := e.kv.Txn(ctx).Then(puts...).Commit()
	return err
}

func (e *etcd) scan(ctx context.Context, from string, count int) ([][]byte, error) {
	response, err := e.kv.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithLimit(int64(count)))
	if err != nil {
		return nil, err
	}
	values := [][]byte{}
	for _, pair := range response.Kvs {
		values = append(values, pair.Value)
	}
	return values, nil
}

// leaderOf returns the index of the leader's endpoint, once all endpoints report the same leader and no node lags by
// more than 1,000 log entries.
func leaderOf(ctx context.Context, endpoints []string) int {
	kv, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	check(err)
	defer kv.Close()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if leader := agreedLeader(ctx, kv, endpoints); leader >= 0 {
			return leader
		}
	}
	check(fmt.Errorf("the nodes of etcd did not agree within %v", timeout))
	return -1
}

func agreedLeader(ctx context.Context, kv *clientv3.Client, endpoints []string) int {
	leader, least, most, at := uint64(0), ^uint64(0), uint64(0), -1
	for nth, endpoint := range endpoints {
		callCtx, cancel := context.WithTimeout(ctx, time.Second)
		status, err := kv.Status(callCtx, endpoint)
		cancel()
		if err != nil || status.Leader == 0 || leader != 0 && status.Leader != leader {
			return -1
		}
		leader = status.Leader
		if status.Header.MemberId == leader {
			at = nth
		}
		least, most = min(least, status.RaftAppliedIndex), max(most, status.RaftIndex)
	}
	if most-least > 1000 {
		return -1
	}
	return at
}

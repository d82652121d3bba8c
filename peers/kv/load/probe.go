package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// writeInterval is the interval between writes to each endpoint. A write begins even if earlier writes are pending.
const writeInterval = 7 * time.Millisecond

type probeRequest struct {
	// Leader requests the leader's index among the endpoints.
	Leader bool `json:"leader"`
	// AfterNs requests the time at which the first write that began after AfterNs was acknowledged.
	AfterNs int64 `json:"after_ns"`
}

func monotonic() int64 {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}

// probe writes to every endpoint continuously. It answers requests from standard input, for example about the time at
// which writes succeed again after a failure.
func probe(ctx context.Context, endpoints []string) {
	var lock sync.Mutex
	after, responses := int64(0), make(chan int64, 1)
	for nth, endpoint := range endpoints {
		go write(ctx, nth, endpoint, func(sentNs, answeredNs int64) {
			lock.Lock()
			defer lock.Unlock()
			if after != 0 && sentNs > after {
				after = 0
				responses <- answeredNs
			}
		})
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var request probeRequest
		check(json.Unmarshal(lines.Bytes(), &request))
		if request.Leader {
			printJSON(map[string]int{"leader": leaderOf(ctx, endpoints)})
			continue
		}
		lock.Lock()
		after = request.AfterNs
		lock.Unlock()
		select {
		case answeredNs := <-responses:
			printJSON(map[string]int64{"answered_ns": answeredNs})
		case <-time.After(timeout):
			check(fmt.Errorf("no write went through within %v", timeout))
		}
	}
}

func write(ctx context.Context, nth int, endpoint string, done func(sentNs, answeredNs int64)) {
	kv, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	check(err)
	for ; ; time.Sleep(writeInterval) {
		go func() {
			callCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			sentNs := monotonic()
			if _, err := kv.Put(callCtx, fmt.Sprintf("probe-%d", nth), "probe"); err == nil {
				done(sentNs, monotonic())
			}
		}()
	}
}

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

// pace is the interval between writes to each endpoint, which does not depend on earlier writes.
const pace = 7 * time.Millisecond

type order struct {
	// Leader requests the leader.
	Leader bool `json:"leader"`
	// AfterNs requests the first acknowledged write that began after this time.
	AfterNs int64 `json:"after_ns"`
}

func monotonic() int64 {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}

// probe writes to every endpoint all the time, and reports when writes succeed again.
func probe(ctx context.Context, endpoints []string) {
	var lock sync.Mutex
	after, heard := int64(0), make(chan int64, 1)
	for nth, endpoint := range endpoints {
		go write(ctx, nth, endpoint, func(asked, answered int64) {
			lock.Lock()
			defer lock.Unlock()
			if after != 0 && asked > after {
				after = 0
				heard <- answered
			}
		})
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked order
		check(json.Unmarshal(lines.Bytes(), &asked))
		if asked.Leader {
			say(map[string]int{"leader": leaderOf(ctx, endpoints)})
			continue
		}
		lock.Lock()
		after = asked.AfterNs
		lock.Unlock()
		select {
		case answered := <-heard:
			say(map[string]int64{"answered_ns": answered})
		case <-time.After(patience):
			check(fmt.Errorf("no write went through within %v", patience))
		}
	}
}

func write(ctx context.Context, nth int, endpoint string, done func(asked, answered int64)) {
	kv, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	check(err)
	for ; ; time.Sleep(pace) {
		go func() {
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			asked := monotonic()
			if _, err := kv.Put(within, fmt.Sprintf("probe-%d", nth), "probe"); err == nil {
				done(asked, monotonic())
			}
		}()
	}
}

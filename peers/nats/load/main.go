// Command nats_load measures a NATS server with nats.go: one publisher and several subscribers, each with its own
// connection.
//
//	nats_load URL SUBSCRIBERS BYTES COUNT
//
// The program checks the order, length and every word of each delivered payload. The payloads are those of dunlin-bench
// (crates/bench/src/payload.rs). The program prints one JSON line with the time from just before the first publish until
// the last delivery has been checked.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	subject = "b"
	filler  = uint64(0x5bd1e9959e3779b9)
	timeout = 60 * time.Second
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func parseInt(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

func connect(url string) *nats.Conn {
	nc, err := nats.Connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { check(err) }))
	check(err)
	return nc
}

func write(payload []byte, seq uint64) {
	binary.LittleEndian.PutUint64(payload, seq)
	binary.LittleEndian.PutUint64(payload[len(payload)-8:], seq)
}

func isValid(payload []byte, seq uint64, bytes int) bool {
	if len(payload) != bytes {
		return false
	}
	sum := uint64(0)
	for at := 0; at < len(payload); at += 8 {
		sum += binary.LittleEndian.Uint64(payload[at:])
	}
	fillerSum := filler * uint64(len(payload)/8-2)
	first, last := binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[len(payload)-8:])
	return first == seq && last == seq && sum == fillerSum+2*seq
}

func main() {
	url, subscribers, bytes, count := os.Args[1], parseInt(os.Args[2]), parseInt(os.Args[3]), uint64(parseInt(os.Args[4]))
	var pending sync.WaitGroup
	for range subscribers {
		nc, next := connect(url), uint64(0)
		pending.Add(1)
		sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if !isValid(m.Data, next, bytes) {
				check(fmt.Errorf("message %d was lost or damaged", next))
			}
			if next++; next == count {
				pending.Done()
			}
		})
		check(err)
		check(sub.SetPendingLimits(-1, -1))
		check(nc.Flush())
	}
	payload := make([]byte, bytes)
	for at := 0; at < bytes; at += 8 {
		binary.LittleEndian.PutUint64(payload[at:], filler)
	}
	time.AfterFunc(timeout, func() { check(fmt.Errorf("not all came within %v", timeout)) })
	publisher, start := connect(url), time.Now()
	for seq := range count {
		write(payload, seq)
		check(publisher.Publish(subject, payload))
	}
	check(publisher.Flush())
	pending.Wait()
	fmt.Printf("{\"elapsed_ns\":%d}\n", time.Since(start).Nanoseconds())
}

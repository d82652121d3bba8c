// Command nats_go runs every case with nats.go. For TLS, the second argument names the certificate authority's file.
// Cases that stop or restart the node do not run over TLS.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const patience = 60 * time.Second

var (
	url   = os.Args[1]
	input = bufio.NewReader(os.Stdin)
	byTLS []nats.Option
)

// must ends the program with an error unless the condition holds.
func must(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

func check(err error) { must(err == nil, err) }

// ask requests an action of the test, and waits until the action is done.
func ask(line string) {
	fmt.Println(line)
	_, err := input.ReadString('\n')
	check(err)
}

func subscribe(nc *nats.Conn, subject string) *nats.Subscription {
	sub, err := nc.SubscribeSync(subject)
	check(err)
	check(sub.SetPendingLimits(-1, -1))
	check(nc.Flush())
	return sub
}

func take(sub *nats.Subscription, count int) []*nats.Msg {
	var got []*nats.Msg
	for len(got) < count {
		m, err := sub.NextMsg(patience)
		check(err)
		got = append(got, m)
	}
	return got
}

func pubSub(nc *nats.Conn) {
	sub := subscribe(nc, "go.ticks")
	for n := range 1000 {
		check(nc.Publish("go.ticks", []byte(strconv.Itoa(n))))
	}
	for n, m := range take(sub, 1000) {
		must(string(m.Data) == strconv.Itoa(n), n, string(m.Data))
	}
}

func headers(nc *nats.Conn) {
	sub := subscribe(nc, "go.headers")
	sent := nats.Header{"Trace": {"a b", "c"}, "Nats-Msg-Id": {"7"}}
	check(nc.PublishMsg(&nats.Msg{Subject: "go.headers", Reply: "go.reply", Header: sent, Data: []byte("x")}))
	m := take(sub, 1)[0]
	must(reflect.DeepEqual(m.Header, sent) && m.Reply == "go.reply" && string(m.Data) == "x", m)
}

func wildcard(nc *nats.Conn) {
	star, rest := subscribe(nc, "go.w.*"), subscribe(nc, "go.w.>")
	for _, subject := range []string{"go.w.a", "go.w.b.c", "go.v.a"} {
		check(nc.Publish(subject, []byte(subject)))
	}
	must(take(star, 1)[0].Subject == "go.w.a")
	got := []string{}
	for _, m := range take(rest, 2) {
		got = append(got, m.Subject)
	}
	sort.Strings(got)
	must(reflect.DeepEqual(got, []string{"go.w.a", "go.w.b.c"}), got)
}

func queueGroup(nc *nats.Conn) {
	got := make(chan int, 200)
	for range 3 {
		sub, err := nc.QueueSubscribe("go.jobs", "crew", func(m *nats.Msg) {
			n, _ := strconv.Atoi(string(m.Data))
			got <- n
		})
		check(err)
		defer sub.Unsubscribe()
	}
	check(nc.Flush())
	for n := range 100 {
		check(nc.Publish("go.jobs", []byte(strconv.Itoa(n))))
	}
	seen := map[int]bool{}
	for range 100 {
		select {
		case n := <-got:
			must(!seen[n], n, " came twice")
			seen[n] = true
		case <-time.After(patience):
			panic("a job went astray")
		}
	}
	check(nc.Flush())
	must(len(got) == 0)
}

func requestReply(nc *nats.Conn) {
	service, err := nc.Subscribe("go.twice", func(m *nats.Msg) { check(m.Respond(append(m.Data, m.Data...))) })
	check(err)
	check(nc.Flush())
	for n := range 50 {
		text := strconv.Itoa(n)
		m, err := nc.Request("go.twice", []byte(text), patience)
		check(err)
		must(string(m.Data) == text+text)
	}
	// In the old request style, each request has a new inbox.
	inbox := nats.NewInbox()
	sub := subscribe(nc, inbox)
	check(nc.PublishRequest("go.twice", inbox, []byte("x")))
	must(string(take(sub, 1)[0].Data) == "xx")
	check(service.Unsubscribe())
}

func noResponders(nc *nats.Conn) {
	for _, subject := range []string{"go.nobody", "$JS.API.INFO"} {
		_, err := nc.Request(subject, nil, patience)
		must(errors.Is(err, nats.ErrNoResponders), subject, err)
	}
}

func unsubMax(nc *nats.Conn) {
	sub := subscribe(nc, "go.max")
	check(sub.AutoUnsubscribe(3))
	for n := range 5 {
		check(nc.Publish("go.max", []byte(strconv.Itoa(n))))
	}
	for n, m := range take(sub, 3) {
		must(string(m.Data) == strconv.Itoa(n))
	}
	_, err := sub.NextMsg(patience)
	must(errors.Is(err, nats.ErrMaxMessages), err)
}

func largePayload(nc *nats.Conn) {
	sub := subscribe(nc, "go.large")
	payload := make([]byte, 1_000_000)
	for n := range payload {
		payload[n] = byte(n % 251)
	}
	check(nc.Publish("go.large", payload))
	must(bytes.Equal(take(sub, 1)[0].Data, payload))
}

func drain(*nats.Conn) {
	closed := make(chan struct{})
	nc, err := nats.Connect(url, append(byTLS, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))...)
	check(err)
	var got atomic.Int64
	_, err = nc.Subscribe("go.drain", func(*nats.Msg) { time.Sleep(time.Millisecond); got.Add(1) })
	check(err)
	for range 100 {
		check(nc.Publish("go.drain", []byte("x")))
	}
	check(nc.Flush())
	check(nc.Drain())
	<-closed
	must(got.Load() == 100, got.Load())
}

func gaps(*nats.Conn) {
	nc, err := nats.Connect(url)
	check(err)
	sub := subscribe(nc, "$DUNLIN.seq.gaps")
	const count = 40_000
	following, lost := 1, 0
	ask(fmt.Sprint("stall ", count))
	for following <= count {
		m := take(sub, 1)[0]
		number := func(name string) int {
			n, err := strconv.Atoi(m.Header.Get(name))
			check(err)
			return n
		}
		switch status := m.Header.Get("Status"); status {
		case "410":
			must(m.Header.Get("Description") == "Gap" && number("Dunlin-First") == following, m.Header)
			following = number("Dunlin-Last") + 1
			lost++
		case "":
			must(number("Dunlin-Seq") == following && number("Dunlin-Epoch") > 0, m.Header)
			following++
		default:
			must(status == "429", m.Header)
		}
	}
	must(lost > 0, "nothing was lost")
	nc.Close()
}

func reconnect(*nats.Conn) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	check(err)
	sub := subscribe(nc, "go.again")
	ask("restart")
	for began := time.Now(); time.Since(began) < patience; {
		check(nc.Publish("go.again", []byte("back")))
		if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			must(string(m.Data) == "back")
			nc.Close()
			return
		}
	}
	panic("it did not come back")
}

func main() {
	if len(os.Args) > 2 {
		byTLS = []nats.Option{nats.RootCAs(os.Args[2])}
	}
	nc, err := nats.Connect(url, append(byTLS, nats.Name("go"))...)
	check(err)
	cases := []struct {
		name string
		run  func(*nats.Conn)
	}{
		{"pub_sub", pubSub}, {"headers", headers}, {"wildcard", wildcard}, {"queue_group", queueGroup},
		{"request_reply", requestReply}, {"no_responders", noResponders}, {"unsub_max", unsubMax},
		{"large_payload", largePayload}, {"drain", drain}, {"gaps", gaps}, {"reconnect", reconnect},
	}
	if byTLS != nil {
		cases = cases[:len(cases)-2]
	}
	for _, each := range cases {
		each.run(nc)
		fmt.Println("ok", each.name)
	}
}

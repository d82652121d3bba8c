package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Operation is a client's request and its response. Out is nil if the response was lost.
type Operation struct {
	Client int    `json:"client"`
	Group  string `json:"group"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
	// Kind is put, get, cas, delete, range or move.
	Kind  string `json:"kind"`
	Key   int    `json:"key"`
	Value string `json:"value"`
	// Expect is, for cas and move, the required revision of the key; 0 if the key must not exist.
	Expect uint64 `json:"expect"`
	// Other is, for move, the second key to which Value is written.
	Other int  `json:"other"`
	Out   *Out `json:"out"`
}

// Out is a response.
type Out struct {
	// Revision is the revision of a change; for a refused cas, the key's revision.
	Revision uint64 `json:"revision"`
	// Done is, for cas, move and delete, whether a key changed.
	Done bool `json:"done"`
	// Items are, for get, range and a refused move, the entries of the requested keys, in the order of the request.
	Items []Item `json:"items"`
}

// Item is the entry of a key. Revision is 0 if the key does not exist.
type Item struct {
	Value    string `json:"value"`
	Revision uint64 `json:"revision"`
}

const keysPerGroup = 3

// untold is the revision of a key that was written by a request whose response was lost. A client can expect only a
// revision that a response contained. Such a response would have replaced untold by the revision. Therefore, the
// revision of this key differs from every expected revision.
const untold = ^uint64(0)

// state is the entries of a group's keys.
type state struct {
	items [keysPerGroup]Item
	// newest is the newest known revision. Later changes must have higher revisions.
	newest uint64
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(now, input, output any) (bool, any) {
		next := now.(state)
		legal := next.step(input.(Operation), output.(*Out))
		return legal, next
	},
	DescribeOperation: describe,
	DescribeState:     func(now any) string { return fmt.Sprintf("%+v", now) },
}

func (s *state) step(op Operation, out *Out) bool {
	switch op.Kind {
	case "get":
		return out == nil || s.shows(out.Items, op.Key)
	case "range":
		return out == nil || s.shows(out.Items, 0, 1, 2)
	case "put":
		return s.write(op.Value, out, op.Key)
	case "delete":
		return s.delete(op.Key, out)
	case "cas":
		return s.cas(op, out)
	case "move":
		return s.move(op, out)
	}
	panic("no operation: " + op.Kind)
}

// shows reports whether a read that returned items agrees with the state. It stores a revision that was unknown before.
func (s *state) shows(items []Item, keys ...int) bool {
	if len(items) != len(keys) {
		return false
	}
	for at, key := range keys {
		seen, held := items[at], &s.items[key]
		if held.Revision == untold && seen.Revision > 0 {
			held.Revision = seen.Revision
		}
		if *held != seen {
			return false
		}
		s.newest = max(s.newest, seen.Revision)
	}
	return true
}

func (s *state) write(value string, out *Out, keys ...int) bool {
	revision := untold
	if out != nil {
		if !s.advance(out.Revision) {
			return false
		}
		revision = out.Revision
	}
	for _, key := range keys {
		s.items[key] = Item{value, revision}
	}
	return true
}

func (s *state) advance(revision uint64) bool {
	later := revision > s.newest
	s.newest = max(s.newest, revision)
	return later
}

func (s *state) delete(key int, out *Out) bool {
	was := s.items[key].Revision != 0
	s.items[key] = Item{}
	if out == nil {
		return true
	}
	return out.Done == was && (!was || s.advance(out.Revision))
}

func (s *state) cas(op Operation, out *Out) bool {
	matches := s.items[op.Key].Revision == op.Expect
	switch {
	case out == nil && !matches:
		return true
	case out == nil || out.Done:
		return matches && s.write(op.Value, out, op.Key)
	}
	// The request was refused. The response must have the key's revision, which must differ from the expected revision.
	held := &s.items[op.Key]
	if held.Revision == untold && out.Revision > 0 {
		held.Revision = out.Revision
	}
	return !matches && out.Revision != op.Expect && held.Revision == out.Revision
}

func (s *state) move(op Operation, out *Out) bool {
	matches := s.items[op.Key].Revision == op.Expect
	switch {
	case out == nil && !matches:
		return true
	case out == nil || out.Done:
		return matches && s.write(op.Value, out, op.Key, op.Other)
	}
	if len(out.Items) > 0 && out.Items[0].Revision == op.Expect {
		return false
	}
	return !matches && s.shows(out.Items, op.Key, op.Other)
}

func describe(input, output any) string {
	op, out := input.(Operation), output.(*Out)
	asked := fmt.Sprintf("%s %d %q expect %d", op.Kind, op.Key, op.Value, op.Expect)
	if out == nil {
		return asked + " -> ?"
	}
	return fmt.Sprintf("%s -> %+v", asked, *out)
}

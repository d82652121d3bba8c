package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// A client's request and its response, which is empty if it was lost.
type Operation struct {
	Client int    `json:"client"`
	Group  string `json:"group"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
	// put, get, cas, delete, range or move
	Kind  string `json:"kind"`
	Key   int    `json:"key"`
	Value string `json:"value"`
	// For cas and move: the revision that the key must have, 0 for a missing key.
	Expect uint64 `json:"expect"`
	// For move: the second key, which also becomes Value.
	Other int  `json:"other"`
	Out   *Out `json:"out"`
}

// A response.
type Out struct {
	// For a change: its revision. For a refused cas: the key's revision.
	Revision uint64 `json:"revision"`
	// For cas, move and delete: whether something changed.
	Done bool `json:"done"`
	// For get, range and a refused move: the entries of the requested keys, in their order.
	Items []Item `json:"items"`
}

// Revision 0: the key does not exist.
type Item struct {
	Value    string `json:"value"`
	Revision uint64 `json:"revision"`
}

const keysPerGroup = 3

// A key whose revision no client knows. A client that expects a revision knows it from a response about an earlier
// write, or from one that would have ended this state: so no expected revision is equal to it.
const untold = ^uint64(0)

// The keys of a group.
type state struct {
	items [keysPerGroup]Item
	// The newest known revision: later changes have later ones.
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

// A read must return the state; it also reveals an unknown revision.
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
	// Refused: the response has the key's revision, which is not the expected one.
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

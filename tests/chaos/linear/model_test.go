package main

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
)

const never = int64(math.MaxInt64)

func at(client int, call, end int64, op Operation, out *Out) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Input: op, Output: out, Call: call, Return: end}
}

func check(t *testing.T, legal bool, history ...porcupine.Operation) {
	t.Helper()
	if porcupine.CheckOperations(model, history) != legal {
		t.Errorf("expected legal = %v", legal)
	}
}

func told(revision uint64, done bool) *Out { return &Out{Revision: revision, Done: done} }
func seen(items ...Item) *Out              { return &Out{Items: items} }

var (
	putA = Operation{Kind: "put", Value: "a"}
	putB = Operation{Kind: "put", Value: "b"}
	get  = Operation{Kind: "get"}
)

func TestAReadSeesTheLastWrite(t *testing.T) {
	writes := []porcupine.Operation{at(1, 0, 1, putA, told(5, false)), at(1, 2, 3, putB, told(6, false))}
	check(t, true, append(writes, at(2, 4, 5, get, seen(Item{"b", 6})))...)
	check(t, false, append(writes, at(2, 4, 5, get, seen(Item{"a", 5})))...)
	check(t, false, append(writes, at(2, 4, 5, get, seen(Item{"b", 7})))...)
	check(t, false, append(writes, at(2, 4, 5, get, seen(Item{})))...)
}

func TestAnUnknownWriteMayTakeEffectLateOrNeverButOnce(t *testing.T) {
	lost := at(1, 0, never, putA, nil)
	check(t, true, lost, at(2, 4, 5, get, seen(Item{})))
	check(t, true, lost, at(2, 4, 5, get, seen(Item{})), at(2, 6, 7, get, seen(Item{"a", 9})))
	check(t, false, lost, at(2, 4, 5, get, seen(Item{"a", 9})), at(2, 6, 7, get, seen(Item{})))
	check(t, false, lost, at(2, 4, 5, get, seen(Item{"a", 9})), at(2, 6, 7, get, seen(Item{"a", 10})))
}

func TestRevisionsGrow(t *testing.T) {
	check(t, false, at(1, 0, 1, putA, told(5, false)), at(1, 2, 3, putB, told(5, false)))
	check(t, false, at(1, 0, 1, putA, told(5, false)), at(1, 2, 3, putB, told(4, false)))
}

func TestACompareAndSwapHappensAtItsRevisionOnly(t *testing.T) {
	put := at(1, 0, 1, putA, told(5, false))
	cas := func(expect uint64) Operation { return Operation{Kind: "cas", Value: "c", Expect: expect} }
	check(t, true, put, at(1, 2, 3, cas(5), told(6, true)))
	check(t, false, put, at(1, 2, 3, cas(4), told(6, true)))
	check(t, true, put, at(1, 2, 3, cas(4), told(5, false)))
	check(t, false, put, at(1, 2, 3, cas(5), told(5, false)))
	lost := at(1, 2, never, cas(5), nil)
	check(t, true, put, lost, at(2, 4, 5, get, seen(Item{"a", 5})), at(2, 6, 7, get, seen(Item{"c", 9})))
}

// The response to a write was lost, so no client knows the write's revision. The next refusal contains this revision,
// which must differ from the revision that the refused client expected.
func TestNobodyIsRefusedForTheRevisionThatWasExpected(t *testing.T) {
	lost := at(1, 0, never, putA, nil)
	cas := Operation{Kind: "cas", Value: "c", Expect: 7}
	check(t, true, lost, at(2, 2, 3, cas, told(8, false)))
	check(t, false, lost, at(2, 2, 3, cas, told(7, false)))
	move := Operation{Kind: "move", Key: 0, Other: 2, Value: "m", Expect: 7}
	refused := func(revision uint64) *Out { return seen(Item{"a", revision}, Item{}) }
	check(t, true, lost, at(2, 2, 3, move, refused(8)))
	check(t, false, lost, at(2, 2, 3, move, refused(7)))
}

func TestAMoveWritesBothKeysOrNeither(t *testing.T) {
	move := Operation{Kind: "move", Key: 0, Other: 2, Value: "m"}
	all := Operation{Kind: "range"}
	check(t, true, at(1, 0, 1, move, told(5, true)), at(1, 2, 3, all, seen(Item{"m", 5}, Item{}, Item{"m", 5})))
	check(t, false, at(1, 0, never, move, nil), at(1, 2, 3, all, seen(Item{"m", 5}, Item{}, Item{})))
	refused := &Out{Items: []Item{{"a", 5}, {}}}
	check(t, true, at(1, 0, 1, putA, told(5, false)), at(1, 2, 3, move, refused))
	check(t, false, at(1, 2, 3, move, refused))
}

func TestADeleteSaysWhetherSomethingWasThere(t *testing.T) {
	drop := Operation{Kind: "delete"}
	put := at(1, 0, 1, putA, told(5, false))
	check(t, true, put, at(1, 2, 3, drop, told(6, true)), at(1, 4, 5, get, seen(Item{})))
	check(t, false, put, at(1, 2, 3, drop, told(5, false)))
	check(t, false, put, at(1, 2, 3, drop, told(6, true)), at(1, 4, 5, get, seen(Item{"a", 5})))
}

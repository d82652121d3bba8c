package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
)

// failing is a store that refuses every write.
type failing struct{ store }

func (failing) put(context.Context, string, []byte) error { return errors.New("refused") }

func TestFailedWriteMayButNeedNotBeTheKeysValue(t *testing.T) {
	k := newAckedValues(work{Keys: 1, Bytes: 16})
	first := k.next(0)
	k.acknowledge(0)
	l := &lane{k, failing{}, 0, 1, rand.New(rand.NewPCG(1, 1))}
	if putOne(t.Context(), l) == nil {
		t.Fatal("the write was not refused")
	}
	if !k.isPossible(0, first) || !k.isPossible(0, payload(16, 2)) {
		t.Error("the acknowledged or the failed value is refused")
	}
	if k.isPossible(0, nil) || k.isPossible(0, payload(16, 3)) {
		t.Error("a lost or an unknown value is accepted")
	}
}

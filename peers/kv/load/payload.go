package main

import (
	"encoding/binary"
	"fmt"
)

// filler is the value of each word of a payload between the first and the last word (crates/bench/src/payload.rs).
const filler = uint64(0x5bd1e9959e3779b9)

func payload(bytes int, seq uint64) []byte {
	value := make([]byte, bytes)
	for at := 0; at < bytes; at += 8 {
		binary.LittleEndian.PutUint64(value[at:], filler)
	}
	binary.LittleEndian.PutUint64(value, seq)
	binary.LittleEndian.PutUint64(value[bytes-8:], seq)
	return value
}

// isValid reports whether value is the payload for seq: the length and all words must match.
func isValid(value []byte, bytes int, seq uint64) bool {
	if len(value) != bytes {
		return false
	}
	sum := uint64(0)
	for at := 0; at < len(value); at += 8 {
		sum += binary.LittleEndian.Uint64(value[at:])
	}
	first, last := binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[bytes-8:])
	return first == seq && last == seq && sum == filler*uint64(bytes/8-2)+2*seq
}

func keyOf(nth int) string { return fmt.Sprintf("key-%012d", nth) }

package main

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Rows that were transposed come back by transposing columns, with what lies behind the last row.
func TestTransposeTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows, columns := rapid.IntRange(0, 80).Draw(rt, "rows"), rapid.IntRange(1, 80).Draw(rt, "columns")
		src := rapid.SliceOfN(rapid.Byte(), rows*columns, rows*columns+9).Draw(rt, "bytes")
		there, back := make([]byte, len(src)), make([]byte, len(src))
		transpose(there, src, rows, columns)
		for r := range rows {
			for c := range columns {
				if there[c*rows+r] != src[r*columns+c] {
					rt.Fatalf("byte %d of row %d is elsewhere", c, r)
				}
			}
		}
		if transpose(back, there, columns, rows); !bytes.Equal(back, src) {
			rt.Fatal("what came back is something else")
		}
	})
}

// Each compressor gives back what it was given, or says that there is nothing to gain.
func TestCompressors(t *testing.T) {
	all, err := compressors()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		src := rapid.SliceOfN(rapid.ByteRange(0, 12), 1, 2000).Draw(rt, "bytes")
		for _, c := range all {
			stored := c.compress(src)
			if stored == nil {
				continue
			}
			got := make([]byte, len(src))
			if err := c.fill(got, stored); err != nil || !bytes.Equal(got, src) {
				rt.Fatalf("%s: %v", c.name, err)
			}
		}
	})
}

package main

import (
	"slices"
	"testing"
)

func TestNatural(t *testing.T) {
	for _, want := range [][]string{
		{"model-2", "model-10", "model-10a", "model-11"},
		{"turn 9", "turn 10", "turn 10 b"},
		{"Gemma 270M", "Gemma 1B", "Gemma 1.5B", "Gemma 12B", "Gemma 27b"},
		{"v1.9", "v1.10", "v2"},
		{"", "a", "a01", "a1", "a2", "b"},
		{"x1", "x99999999999999999998", "x99999999999999999999", "xy"},
		{"9 kilos", "8k", "16k", "1M"},
		{"100 B", "1 kB", "1 KiB", "512KiB", "2 MiB", "2.5 MiB", "1 GB", "1 GiB"},
		{"model 8", "model 8 Kinds", "model 8 kb"},
	} {
		for _, start := range []int{0, 1, 2} {
			got := slices.Clone(want)
			slices.Reverse(got[:len(got)-start%len(got)])
			slices.SortFunc(got, natural)
			if !slices.Equal(got, want) {
				t.Errorf("%q, expected %q", got, want)
			}
		}
		for i, a := range want {
			for j, b := range want {
				if c := natural(a, b); (c < 0) != (i < j) || (c > 0) != (i > j) {
					t.Errorf("%q and %q: %d", a, b, c)
				}
			}
		}
	}
}

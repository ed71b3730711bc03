//go:build (linux && !android) || (darwin && !ios)

package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// However a text is cut into pieces, what is shown is valid at any time, and in the end it is the text without what a terminal would obey.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.SampledFrom([]byte("a \n\x1b\x80\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xad\xff"))).Draw(t, "text")) + rapid.String().Draw(t, "more")
		var out strings.Builder
		s := stream{w: &out}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			s.add(rest[:n])
			if rest = rest[n:]; !utf8.ValidString(out.String()) || strings.Contains(out.String(), "\x1b") {
				t.Fatalf("%q shows %q", text, out.String())
			}
		}
		s.end()
		if got, want := squeeze(out.String()), squeeze(strings.TrimSpace(printable(text))); strings.TrimSpace(got) != want {
			t.Fatalf("%q shows %q, want %q", text, got, want)
		}
	})
}

// squeeze makes one of several signs for bytes that are no text: how many there are depends on the pieces.
func squeeze(s string) string {
	for strings.Contains(s, "\uFFFD\uFFFD") {
		s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
	}
	return s
}

func TestLikeliest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float32Range(-3, 3), 1, 50).Draw(t, "scores")
		scores = append(scores, scores[0]) // two are equal
		want := make([]kv.Token, len(scores))
		for i := range want {
			want[i] = kv.Token(i)
		}
		slices.SortStableFunc(want, func(a, b kv.Token) int { return cmp.Compare(scores[b], scores[a]) })
		n := rapid.IntRange(1, 60).Draw(t, "n")
		if got := likeliest(scores, n); !slices.Equal(got, want[:min(n, len(want))]) {
			t.Fatalf("%v of %v, want %v", got, scores, want[:min(n, len(want))])
		}
	})
}

// Draws follow the scores, and the same seeds draw the same.
func TestSampler(t *testing.T) {
	scores := make([]float32, 100)
	for i := range scores {
		scores[i] = rand.Float32() - 20
	}
	scores[7], scores[9] = 2, 1
	counts := map[kv.Token]int{}
	a, b, other := sampler(1, 5, 6), sampler(1, 5, 6), sampler(1, 5, 7)
	differ := false
	for range 10000 {
		x := a(scores)
		if y := b(scores); y != x {
			t.Fatalf("the same seeds draw %d and %d", x, y)
		}
		differ = differ || other(scores) != x
		counts[x]++
	}
	if share := float64(counts[7]) / 10000; share < 0.70 || share > 0.76 || !differ { // e/(1+e) = 0.731
		t.Errorf("token 7 is drawn in %.3f of all cases, expected 0.731; another turn draws others: %v", share, differ)
	}
	if got := sampler(0, 5, 6)(scores); got != 7 {
		t.Errorf("temperature 0 takes %d", got)
	}
}

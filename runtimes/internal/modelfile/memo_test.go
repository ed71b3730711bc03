package modelfile

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
)

// FuzzMemo: whatever the memo holds, it gives words, and what is remembered beside it is recalled.
func FuzzMemo(f *testing.F) {
	const id, hash = "1:2:3:4", "000102030405060708090a0b0c0d0e0f"
	line := weightsTag + " " + id + " " + hash + "\n"
	fuzzkit.Seeds(f,
		[]any{[]byte(line), id, hash}, []any{[]byte(strings.TrimSpace(line)), id, hash}, []any{[]byte{}, id, hash},
		[]any{[]byte("rubbish"), id, hash}, []any{[]byte(line + weightsTag + " " + id), id, hash},
		[]any{[]byte(line + line + headTag + " " + id + " llama " + hash + " " + hash + " 2"), "5:6", hash}, []any{[]byte("\x00\n\r\n \xff"), id, hash},
	)
	memo := filepath.Join(f.TempDir(), "memo")
	f.Fuzz(func(t *testing.T, b []byte, id, answer string) {
		if err := os.WriteFile(memo, b, 0o600); err != nil {
			t.Fatal(err)
		}
		fuzzkit.Bounded(t, 1<<20+uint64(64*(len(b)+len(id)+len(answer))), func() { remembers(t, memo, id, answer) })
	})
}

func remembers(t *testing.T, memo, id, answer string) {
	for n := range 4 {
		if got := recall(memo, headTag, id, n); got != nil && len(got) != n {
			t.Fatalf("%q, expected %d words", got, n)
		}
	}
	words := strings.Fields(answer)
	if one := strings.Fields(id); len(one) != 1 || one[0] != id || len(words) == 0 {
		return
	}
	before := recall(memo, weightsTag, id, len(words))
	if before == nil {
		remember(memo, weightsTag, id, words...)
		before = words
	}
	if got := recall(memo, weightsTag, id, len(words)); !slices.Equal(got, before) {
		t.Fatalf("%q was remembered, %q is recalled", before, got)
	}
	parseHash(before[0])
}

// One line that is far too long, or has no end, does not keep the memo from remembering.
func TestMemoBesideRubbish(t *testing.T) {
	memo := filepath.Join(t.TempDir(), "memo")
	for _, rubbish := range [][]byte{bytes.Repeat([]byte{'x'}, 100<<10), append(bytes.Repeat([]byte{'x'}, 100<<10), '\n'), bytes.Repeat([]byte{'x'}, 2*maxMemoBytes)} {
		if err := os.WriteFile(memo, rubbish, 0o600); err != nil {
			t.Fatal(err)
		}
		fuzzkit.Bounded(t, 32<<20, func() { remembers(t, memo, "1:2", "answer") })
	}
	if err := os.Truncate(memo, 1<<40); err != nil {
		t.Skipf("NO LARGE FILE CAN BE MADE: %v", err)
	}
	fuzzkit.Bounded(t, 32<<20, func() { remembers(t, memo, "1:2", "answer") })
}

package engine_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Where holes cannot be punched, space comes from rewriting what is half dead. A store that is used over and over, its
// warm blocks among cold ones, must not lose the warm ones for that.
func TestBudgetWithoutHoles(t *testing.T) {
	o := storetest.Options()
	disk := crashtest.NoHoles{FS: vfs.OS}
	o.Budget, o.SegmentBytes = 8<<20, 512<<10
	s := storetest.OpenOn(t, disk, t.TempDir(), o)
	m := storetest.Model(t, s, crashtest.Plain())
	warm := make([]kv.Prompt, 24)
	for i := range warm {
		warm[i] = kv.Prompt{Tokens: crashtest.Tokens(10_000+i, 64)}
	}
	for i := range 1200 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(i, 64)})
		if i < len(warm)*3 && i%3 == 0 {
			storetest.Put(t, m, warm[i/3])
		}
		x, err := m.Match(t.Context(), warm[i%len(warm)], db.MatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := 64; i >= len(warm)*3 && x.Tokens() != want {
			t.Fatalf("put %d: %d tokens of a warm prompt are left, want %d", i, x.Tokens(), want)
		}
		x.Close()
		if used := storetest.Stats(t, s).DiskBytes; used > o.Budget {
			t.Fatalf("put %d: %d bytes are used of a budget of %d", i, used, o.Budget)
		}
	}
	if storetest.Stats(t, s).WriteAmplification <= 1 {
		t.Error("nothing was rewritten: this test shows nothing")
	}
}

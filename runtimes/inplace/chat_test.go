package inplace

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

const chatEnv = "DORMOUSE_INPLACE_CHAT"

func message(n int) (m []kv.Token) {
	for i := range 9 + n%4 {
		m = append(m, kv.Token((7*n+3*i*i+i)%small.Vocabulary))
	}
	return m
}

// talk holds a conversation from its turn first on: facts, one of them superseded, views that leave turns out. In the turn number last, it stops
// after a few words and says what comes next.
func talk(t testing.TB, store *db.Store, r *Runtime, first, last int) (*chat.Turn, []float32) {
	h, err := chat.NewHost(store, r.Model(), r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.Open(ctx, "one", chat.Options{System: message(50)[:8], Facts: 64, Ring: 160, Reserve: 16, Policy: chat.Recent(3)})
	if err != nil {
		t.Fatal(err)
	}
	for n := first; ; n++ {
		if n%4 == 1 {
			if err := c.SetFact(ctx, fmt.Sprint("fact ", n%3), message(60+n)); err != nil {
				t.Fatal(err)
			}
		}
		turn, err := c.Begin(ctx, message(n), chat.BeginOptions{})
		if err != nil {
			t.Fatal(err)
		}
		words := 0
		for _, err := range turn.Generate(ctx, chat.Greedy, func(kv.Token) bool { words++; return words == 6 }) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if n == last {
			scores, err := turn.Logits(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return turn, slices.Clone(scores)
		}
		if err := turn.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A process is killed in the middle of a turn of a conversation. The next one finds the rows of the turns before in the ring, restores none
// from the store, and says what one says that was never killed.
func TestConversationGoesOn(t *testing.T) {
	if dir := os.Getenv(chatEnv); dir != "" {
		last, err := strconv.Atoi(os.Getenv(roundEnv))
		if err != nil {
			t.Fatal(err)
		}
		store := newStore(t, filepath.Join(dir, "store"))
		talk(t, store, newRuntime(t, store, Options{Cells: 900, Ring: filepath.Join(dir, "ring")}), 0, last)
		fmt.Print("!")
		select {}
	}
	t.Run("before turns are evicted", func(t *testing.T) { goesOn(t, 6, 0) })
	// The turn in which the process died had evicted one; it is not committed, so the evicted one is in view again, and in the store.
	t.Run("after", func(t *testing.T) { goesOn(t, 11, 17) })
}

func goesOn(t *testing.T, last, evicted int) {
	dir := killed(t, last)
	store := newStore(t, filepath.Join(dir, "store"))
	r := newRuntime(t, store, Options{Cells: 900, Ring: filepath.Join(dir, "ring")})
	found := r.Recovered()
	if found.Turns == 0 || found.Torn == 0 || len(found.Damaged) > 0 {
		t.Fatalf("%+v", found)
	}
	turn, scores := talk(t, store, r, last, last)
	t.Logf("found %+v, then %+v", found, r.Stats())
	if s := r.Stats(); s.Resident == 0 || s.Restored != evicted {
		t.Errorf("%d rows were in the ring, %d were restored, want %d", s.Resident, s.Restored, evicted)
	}
	other := newStore(t, memdir.Dir(t))
	same, want := talk(t, other, newRuntime(t, other, Options{Cells: 900}), 0, last)
	if !slices.Equal(turn.Answer(), same.Answer()) || !slices.Equal(scores, want) {
		t.Errorf("the answer is %v, that of a process that was not killed %v", turn.Answer(), same.Answer())
	}
}

// What a killed process left in the ring of a conversation, or of a turn, goes with it.
func TestDeleteClearsRing(t *testing.T) {
	for name, remove := range map[string]func(h *chat.Host) error{
		"delete": func(h *chat.Host) error { return h.Delete(ctx, "one") },
		"forget": func(h *chat.Host) error {
			c, err := h.Open(ctx, "one", chat.Options{Facts: 64, Ring: 160, Reserve: 16})
			if err != nil {
				return err
			}
			return c.Forget(ctx, 2)
		},
	} {
		dir := killed(t, 6)
		store := newStore(t, filepath.Join(dir, "store"))
		r := newRuntime(t, store, Options{Cells: 900, Ring: filepath.Join(dir, "ring")})
		if r.Recovered().Turns == 0 {
			t.Fatalf("%s: %+v", name, r.Recovered())
		}
		h, err := chat.NewHost(store, r.Model(), r)
		if err == nil {
			err = remove(h)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := r.Ring().Clear(); n > 0 {
			t.Errorf("%s: %d rows are left that nobody has", name, n)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		r.Clear() // of forget: what the rest of the conversation left there
		for l := range r.Ring().Shape().Layers {
			for _, plane := range [][]byte{r.Ring().K(l), r.Ring().V(l)} {
				if slices.ContainsFunc(plane, func(b byte) bool { return b != 0 }) {
					t.Fatalf("%s: bytes of rows stay in layer %d", name, l)
				}
			}
		}
	}
}

// killed is the folder of a process that was killed in the turn number last of its talk.
func killed(t *testing.T, last int) string {
	t.Helper()
	dir := memdir.Dir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestConversationGoesOn$")
	cmd.Env = append(os.Environ(), chatEnv+"="+dir, roundEnv+"="+strconv.Itoa(last))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(io.LimitReader(out, 1)); err != nil || string(said) != "!" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("%s%s, %v", said, rest, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return dir
}

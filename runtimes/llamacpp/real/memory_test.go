//go:build linux && !android

package real_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// What a restore takes beside the context's own memory, in a process of its own: a piece or two where pieces can be had. -v prints the
// figures, for several sizes of a piece and for the whole at once.
func TestRestoreMemory(t *testing.T) {
	if os.Getenv("DORMOUSE_RESTORE_CHILD") != "" {
		restoreChild(t)
		return
	}
	library(t)
	if testing.Short() {
		t.Skip("takes a state of 256 MiB")
	}
	dir, big := t.TempDir(), kit.WriteFile(t, "big.gguf", ggufgen.LLaMA(1, 16, 512))
	long, times := 4096, 2
	if testing.Verbose() { // figures of a state of 512 MiB, the best time of several
		long, times = 8192, 5
	}
	for _, x := range []struct {
		model   string
		tokens  int
		unified bool
		pieces  []int // MiB; 0: whole
	}{
		{os.Getenv("DORMOUSE_LLAMA_SMOL"), 1536, true, []int{1, 2, 4, 8, 16, 0}},
		{big, long, true, []int{1, 2, 4, 8, 16, 0}},
		{big, long, false, []int{4}},
	} {
		if x.model == "" {
			t.Log("SKIPPED: DORMOUSE_LLAMA_SMOL is not set")
			continue
		}
		store := filepath.Join(dir, fmt.Sprintf("store-%d", x.tokens))
		fill := []int{-1}
		if _, err := os.Stat(store); err == nil {
			fill = nil
		}
		for _, piece := range append(fill, x.pieces...) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestRestoreMemory$", "-test.v")
			cmd.Env = append(os.Environ(), fmt.Sprintf("DORMOUSE_RESTORE_CHILD=%s\n%s\n%d\n%t\n%d\n%d", x.model, store, x.tokens, x.unified, piece, times))
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, errs.Bytes())
			}
			if piece < 0 {
				continue
			}
			var f figures
			for line := range strings.Lines(string(out)) {
				if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "figures "); ok {
					if _, err := fmt.Sscan(rest, &f.stateMiB, &f.peakMiB, &f.afterMiB, &f.firstMillis, &f.nextMillis); err != nil {
						t.Fatal(err)
					}
				}
			}
			if f.stateMiB == 0 {
				t.Fatalf("no figures:\n%s", out)
			}
			t.Logf("state of %.0f MiB, one buffer %t, pieces of %d MiB (0: whole): at most %.1f MiB above the context's own, %.1f after; %.1f ms the first time, then %.1f",
				f.stateMiB, x.unified, piece, f.peakMiB, f.afterMiB, f.firstMillis, f.nextMillis)
			if piece > 0 && x.unified && f.peakMiB > float64(2*piece+12) {
				t.Errorf("in pieces of %d MiB it takes %.1f MiB", piece, f.peakMiB)
			}
			if f.afterMiB > 24 {
				t.Errorf("%.1f MiB are kept", f.afterMiB)
			}
		}
	}
}

type figures struct{ stateMiB, peakMiB, afterMiB, firstMillis, nextMillis float64 }

// restoreChild restores a prompt that it finds in a store, or puts it there.
func restoreChild(t *testing.T) {
	args := strings.Split(os.Getenv("DORMOUSE_RESTORE_CHILD"), "\n")
	tokens, _ := strconv.Atoi(args[2])
	piece, _ := strconv.Atoi(args[4])
	times, _ := strconv.Atoi(args[5])
	ctx := context.Background()
	lib, api := library(t)
	m := loadModel(t, lib, args[0], false)
	o := llama.ContextOptions{Tokens: tokens + 64, Threads: 1, Unified: args[3] == "true", FlashAttention: ref(true)}
	if o.Unified {
		o.Sequences = 2
	}
	c := newContext(t, m, o)
	store := kit.OpenStoreAt(t, args[1], db.Options{Budget: 4 << 30, Codec: quant.Q8_0})
	defer store.Close()
	own, most := 0.0, 0.0
	peek := func() { most = max(most, privateMiB(t)) }
	counted := *api
	counted.StateSet = func(c uintptr, src *byte, n uintptr, sequence int32, flags uint32) uintptr {
		defer peek()
		peek()
		return api.StateSet(c, src, n, sequence, flags)
	}
	s, err := llamacpp.Attach(ctx, store, &counted, c.Pointer(), llamacpp.Options{
		Identity: llamacpp.Identity{Path: m.Path(), Memo: args[1] + ".memo"}, Decode: c.Decode, Logger: kit.Quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	prompt := kv.Tokens(randomTokens(1, tokens+1)...)
	if piece < 0 {
		putRandom(t, s.Model(), prompt.Prefix(tokens))
		return
	}
	if piece == 0 {
		piece = 1 << 20
	}
	defer piecesize.Set(piece << 20)()
	debug.FreeOSMemory()
	own, most = privateMiB(t), 0
	var f figures
	for i := range times {
		start := time.Now()
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil || got.Tokens != tokens {
			t.Fatalf("restored %d tokens: %v %v", got.Tokens, got.Reason, err)
		}
		millis := float64(time.Since(start).Microseconds()) / 1000
		if f.stateMiB = float64(got.Bytes) / (1 << 20); i == 0 {
			f.firstMillis = millis
			f.peakMiB = max(most, privateMiB(t)) - own
		} else if f.nextMillis == 0 || millis < f.nextMillis {
			f.nextMillis = millis
		}
		api.SequenceRemove(api.GetMemory(c.Pointer()), 0, -1, -1)
	}
	s.Trim()
	if _, err := store.Pressure(ctx, db.Moderate); err != nil {
		t.Fatal(err)
	}
	f.afterMiB = privateMiB(t) - own
	fmt.Println("figures", f.stateMiB, f.peakMiB, f.afterMiB, f.firstMillis, f.nextMillis)
}

// putRandom stores made-up rows.
func putRandom(t *testing.T, m *db.Model, prompt kv.Prompt) {
	t.Helper()
	d := m.Descriptor()
	rng := rand.New(rand.NewPCG(1, 1))
	rows := make(kv.Rows, len(d.Tensors))
	const part = 1024
	for from := 0; from < len(prompt.Tokens); from += part {
		to := min(len(prompt.Tokens), from+part)
		for i, tensor := range d.Tensors {
			mem := make([]byte, (to-from)*tensor.RowBytes())
			for j := 0; j < len(mem); j += 8 { // f16 of a few powers of two
				binary.LittleEndian.PutUint64(mem[j:], rng.Uint64()&0x87ff87ff87ff87ff|0x3000300030003000)
			}
			rows[i] = kv.Packed(from, to-from, mem)
		}
		if _, err := m.Put(context.Background(), prompt.Prefix(to), rows, db.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// privateMiB is the memory of this process that no file is behind.
func privateMiB(t *testing.T) float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatal("no RssAnon")
	return 0
}

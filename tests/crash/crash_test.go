package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// A store that is killed again and again keeps what it promises. DORMOUSE_CRASH_SEED repeats modes and scripts.
func TestKills(t *testing.T) {
	p := &plan{loops: 50, lives: 6, lines: 1200, span: time.Second, seed: uint64(time.Now().UnixNano()), newCutter: newKilled, modes: newMode}
	if testing.Short() {
		p.loops, p.lives = 16, 2 // each mode once
	}
	fmt.Sscan(os.Getenv("DORMOUSE_CRASH_SEED"), &p.seed)
	t.Logf("DORMOUSE_CRASH_SEED=%d", p.seed)
	rep, err := p.inFolder() // not the test's: what is found stays
	if err != nil {
		t.Fatal(err)
	}
	if rep.bad() {
		t.Fatal(rep.explain())
	}
	if rep.Acks == 0 || rep.RestoresCompared == 0 || rep.Rebuilds == 0 && !testing.Short() {
		t.Errorf("nothing was tried: %+v", rep)
	}
	var table strings.Builder
	rep.writeTable(&table)
	t.Log("\n" + table.String())
}

// What the check compares with must itself be able to tell: each kind of loss, damage and resurrection that is made here is
// found.
func TestFindings(t *testing.T) {
	const seed = 3
	m := kinds[0].with(rand.New(rand.NewPCG(seed, 0)))
	w := newWorld(seed, m.BlockTokens)
	c := w.chats[0]
	n := len(c.p.Tokens)
	put := []string{fmt.Sprintf("b 1 put 0 %d", n), "e 1"}
	ref := []string{fmt.Sprintf("b 2 ref 0 %d a true 1 0 20", n), "e 2"}
	del := []string{"b 3 del 0 20", "e 3"}
	note, retire := []string{"b 5 note 0 20 a", "e 5"}, []string{"b 6 retire 0 1", "e 6"}
	setNote := func(value []byte) func(t *testing.T, s *db.Store, m *db.Model) {
		return func(t *testing.T, s *db.Store, m *db.Model) {
			if err := m.SetNote(ctx, "a", value); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		name    string
		journal [][]string
		act     func(t *testing.T, s *db.Store, m *db.Model)
		want    findingKind // empty: nothing is wrong
	}{
		{"as it should be", [][]string{put, ref}, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, n); name(t, m, c, n, 2) }, ""},
		{"a put is lost", [][]string{put}, func(*testing.T, *db.Store, *db.Model) {}, findLost},
		{"a part of a put is lost", [][]string{put}, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, n-1) }, findLost},
		{"a ref is lost", [][]string{put, ref}, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, n) }, findLost},
		{"a ref is another", [][]string{put, ref}, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, n); name(t, m, c, n, 9) }, findWrong},
		{"a deletion did nothing", [][]string{put, del}, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, n) }, findResurrected},
		{"a deletion left a ref", [][]string{put, ref, del, {"b 4 put 0 40", "e 4"}}, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, 40); name(t, m, c, 40, 2) }, findResurrected},
		{"a note as it should be", [][]string{note}, setNote(metaOf(5, 20)), ""},
		{"a note is lost", [][]string{note}, func(*testing.T, *db.Store, *db.Model) {}, findLost},
		{"a note is another", [][]string{note}, setNote(metaOf(4, 20)), findWrong},
		{"a retired model left a note", [][]string{note, retire}, setNote(metaOf(5, 20)), findResurrected},
		{"what nobody put", nil, func(t *testing.T, s *db.Store, m *db.Model) { store(t, m, c, n) }, findResurrected},
		{"rows of others", [][]string{put}, func(t *testing.T, s *db.Store, m *db.Model) {
			rows := c.rows(0, n)
			for i := range rows {
				mem := append([]byte(nil), rows[i].Pieces[0].Mem...)
				mem[len(mem)/2] ^= 1
				rows[i] = kv.Packed(0, n, mem)
			}
			if _, err := m.Put(ctx, c.p, rows, db.PutOptions{Codec: quant.Raw}); err != nil {
				t.Fatal(err)
			}
		}, findWrong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := memdir.Dir(t)
			s, err := db.Open(ctx, dir, m.options())
			if err != nil {
				t.Fatal(err)
			}
			model, err := s.Register(ctx, c.d)
			if err != nil {
				t.Fatal(err)
			}
			tc.act(t, s, model.Model)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			x := &subject{p: &plan{}, rep: &report{}, mode: m, worldSeed: seed, w: w}
			for _, lines := range tc.journal {
				if err := x.h.read(lines); err != nil {
					t.Fatal(err)
				}
			}
			got, err := x.check([]checkStep{{What: "test", Dir: dir, Verify: dir}}, false)
			if err != nil {
				t.Fatal(err)
			}
			found := findingKind("")
			if len(got.Findings) > 0 {
				found = got.Findings[0].Kind
			}
			if found != tc.want {
				t.Errorf("found %v, expected %q first", got.Findings, tc.want)
			}
		})
	}
}

func store(t *testing.T, m *db.Model, c *chat, n int) {
	t.Helper()
	if _, err := m.Put(ctx, c.p.Prefix(n), c.rows(0, n), db.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func name(t *testing.T, m *db.Model, c *chat, n, id int) {
	t.Helper()
	if err := m.SetRef(ctx, "a", c.p.Prefix(n), db.RefOptions{Pinned: true, Priority: 1, Meta: metaOf(id, 20)}); err != nil {
		t.Fatal(err)
	}
}

// A row survives every codec bit for bit, so that what is read back can be compared.
func TestRowsSurvive(t *testing.T) {
	for _, d := range models(16) {
		for i, tensor := range d.Tensors {
			if tensor.Width == 0 {
				continue
			}
			var mem []byte
			for pos := range 40 {
				mem = appendRow(mem, tensor, mix(uint64(pos), uint64(i)))
			}
			for codec := quant.Raw; codec <= quant.ByteSplit; codec++ {
				b, plane, err := quant.Encode(nil, codec, quant.Zstd, tensor, kv.Packed(0, 40, mem), 4)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(mem))
				if err := quant.Decode(kv.Packed(0, 40, got), tensor, plane, b, 0); err != nil {
					t.Fatal(err)
				}
				if string(got) != string(mem) || plane.MaxError != 0 {
					t.Errorf("%s, %s, codec %s: rows come back changed", d.Name, tensor, codec)
				}
			}
		}
	}
}

// A copy has the bytes of the original, and holes where that is zero.
func TestCopy(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	from, to := t.TempDir(), t.TempDir()
	for i := range 20 {
		b := make([]byte, r.IntN(900_000))
		for at := 0; at < len(b); at += 1 + r.IntN(200_000) {
			b[at] = 1
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%d", from, i), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyStore(from, to); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		a, _ := os.ReadFile(fmt.Sprintf("%s/%d", from, i))
		b, err := os.ReadFile(fmt.Sprintf("%s/%d", to, i))
		if err != nil || string(a) != string(b) {
			t.Fatalf("file %d of %d bytes differs: %v", i, len(a), err)
		}
	}
}

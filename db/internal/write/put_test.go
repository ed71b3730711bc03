package write_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// A put over records that are damaged stores them anew at once, and does not say that they were reused: whether a file was cut, or what
// lies in it is zeros or other bytes, and whatever the group.
func TestPutAgainOverDamage(t *testing.T) {
	long := crashtest.Plain()
	long.Name, long.BlockTokens = "long blocks", 128
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(20), crashtest.Opaque(), long} {
		tokensOf := 3*d.BlockTokens + 5
		for name, damage := range map[string]func(f *os.File, at int64) error{
			"cut":    func(f *os.File, at int64) error { return f.Truncate(at + 8) },
			"zeros":  func(f *os.File, at int64) error { _, err := f.WriteAt(make([]byte, 64), at); return err },
			"header": func(f *os.File, at int64) error { _, err := f.WriteAt([]byte{0xa5, 0x5a, 0xa5}, at+40); return err },
		} {
			for first := range 4 {
				for group := range max(1, len(d.Groups)) {
					t.Run(fmt.Sprintf("%s %s block %d group %d", d.Name, name, first, group), func(t *testing.T) {
						s, m := storetest.Fresh(t, storetest.Options(), d)
						dir := s.Dir()
						p := kv.Tokens(crashtest.Tokens(1, tokensOf)...)
						storetest.Put(t, m, p)
						x, ok := storetest.FindRecord(t, s, m, p, first, group)
						if !ok {
							t.Skip("SKIPPED: no record of this group")
						}
						storetest.OK(t, s.Close())
						f := storetest.Must(os.OpenFile(storetest.SegmentPath(dir, x.Segment), os.O_RDWR, 0))(t)
						storetest.OK(t, damage(f, x.Offset))
						f.Close()
						s = storetest.Open(t, dir, storetest.Options())
						m = storetest.Model(t, s, d)
						got, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, tokensOf), db.PutOptions{})
						if err != nil || got.Records == 0 || got.Tokens != tokensOf {
							t.Errorf("%+v, %v", got, err)
						}
						storetest.Expect(t, m, p, tokensOf)
						if name != "cut" { // the file is as it was found
							storetest.Sound(t, s)
						}
						if again, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, tokensOf), db.PutOptions{}); err != nil || again.Records > 0 {
							t.Errorf("once more: %+v, %v", again, err)
						}
					})
				}
			}
		}
	}
}

// Two puts at a time add different window rows to one block: those of both are stored afterwards, as if one had come after
// the other.
func TestPutsOfOneWindowBesideEachOther(t *testing.T) {
	d := crashtest.Windowed(8)
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}
	rows := func(from, to int) kv.Rows { // of the window alone
		out := storetest.Filled(d, &p, from, to)
		for i, tensor := range d.Tensors {
			if tensor.Group == 0 {
				out[i] = kv.TensorRows{}
			}
		}
		return out
	}
	base := storetest.Filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			base[i] = kv.TensorRows{}
		}
	}
	storetest.Must(m.Put(t.Context(), p, base, db.PutOptions{}))(t)
	slow := storetest.Engine(s).Inside().NewPut(storetest.Engine(s).Catalog.Model(m.Fingerprint()), rows(0, 8), nil, write.Options{Codec: storetest.Options().Codec})
	storetest.OK(t, slow.Plan(&p))
	storetest.OK(t, slow.Block(t.Context(), 0))
	storetest.Must(m.Put(t.Context(), p, rows(8, 16), db.PutOptions{}))(t)
	storetest.Expect(t, m, p, 16)
	err := slow.Publish(t.Context())
	slow.Release()
	if write.IsGone(err) { // put starts over
		_, err = m.Put(t.Context(), p, rows(0, 8), db.PutOptions{})
	}
	storetest.OK(t, err)
	storetest.Expect(t, m, p, 16)
}

// putFrom stores a prompt whose caller has rows from one position on, and those of windows from another.
func putFrom(t *testing.T, m *db.Model, p kv.Prompt, from, windowsFrom int) {
	t.Helper()
	d := m.Descriptor()
	rows := storetest.Filled(d, &p, from, len(p.Tokens))
	for i, r := range storetest.Filled(d, &p, windowsFrom, len(p.Tokens)) {
		if d.Groups[d.Tensors[i].Group].Kind == kv.Window {
			rows[i] = r
		}
	}
	if res, err := m.Put(t.Context(), p, rows, db.PutOptions{}); err != nil || res.Tokens != len(p.Tokens) {
		t.Fatalf("%d of %d tokens are stored: %v", res.Tokens, len(p.Tokens), err)
	}
}

// Rows that begin inside a block go on from a stored block that has the rows before them, also where a shorter tail has more window
// rows than that block.
func TestRowsGoOnFromTheLongerTail(t *testing.T) {
	d := crashtest.Windowed(10)
	d.BlockTokens = 64
	m := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
	p := kv.Tokens(crashtest.Tokens(1, 128)...)
	storetest.Put(t, m, p.Prefix(84))
	putFrom(t, m, p.Prefix(104), 0, 94) // its window rows leave the shorter tail where it is
	storetest.Expect(t, m, p.Prefix(84), 84)
	putFrom(t, m, p, 88, 88)
	storetest.Expect(t, m, p, 128)
}

// Of the blocks that have the rows before those of a put, one that has their window rows is taken, though another one has more tokens
// of the prompt.
func TestRowsGoOnFromTheTailWithWindowRows(t *testing.T) {
	d := crashtest.Windowed(10)
	d.BlockTokens = 64
	m := storetest.Model(t, storetest.Open(t, t.TempDir(), storetest.Options()), d)
	p := kv.Tokens(crashtest.Tokens(1, 128)...)
	other := kv.Tokens(crashtest.Concat(p.Tokens[:94], crashtest.Tokens(2, 15))...)
	storetest.Put(t, m, other)
	putFrom(t, m, p.Prefix(104), 0, 100)
	putFrom(t, m, p, 88, 88)
	storetest.Must(m.Delete(t.Context(), other))(t) // it has these rows, too
	for _, n := range []int{74, 88, 90, 128} {
		storetest.Expect(t, m, p.Prefix(n), n)
	}
}

// A put whose parent is being evicted at that moment stores the whole prompt all the same: it has all its rows.
func TestPutBesideEviction(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	short, long := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}, kv.Prompt{Tokens: crashtest.Tokens(1, 80)}
	storetest.Put(t, m, short)
	e := storetest.Engine(s)
	c := e.Hasher.Chain(m.Fingerprint(), 16, &short)
	last := c.Key(1)
	leaving := make(chan bool)
	go func() {
		e.Ledger.Lock() // as evictSome has it
		leaving <- e.Pins.Leave(last)
		time.Sleep(30 * time.Millisecond)
		e.Pins.End([]kv.Key{last})
		e.Ledger.Unlock()
	}()
	if !<-leaving {
		t.Fatal("the block is pinned")
	}
	if got := storetest.Put(t, m, long); got.Blocks != 3 || got.Reused != 2 {
		t.Errorf("%+v", got)
	}
	storetest.Expect(t, m, long, 80)
}

// continuations stores n different ways to go on from one system prompt, and returns the i-th.
func continuations(t testing.TB, n int) (*db.Store, *db.Model, func(i int) kv.Prompt) {
	o := storetest.Options()
	o.Budget = 16 << 30
	o.CheckpointBytes = 64 << 20
	s := storetest.Open(t, t.TempDir(), o)
	d := crashtest.Toy(kv.Descriptor{Name: "tiny", BlockTokens: 16, Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.Bytes, Width: 8}}})
	m := storetest.Model(t, s, d)
	system := crashtest.Tokens(1, 160)
	prompt := func(i int) kv.Prompt {
		// All begin alike within the block, too: they part at its third token.
		return kv.Prompt{Tokens: crashtest.Concat(system, []kv.Token{7, 7, kv.Token(i), kv.Token(i % 3)}, crashtest.Tokens(i, 8))}
	}
	for i := range n {
		p := prompt(i)
		storetest.Must(m.Put(t.Context(), p, storetest.Filled(d, &p, 0, len(p.Tokens)), db.PutOptions{}))(t)
	}
	return s, m, prompt
}

func TestRightContinuationAmongMany(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 300
	}
	s, m, prompt := continuations(t, n)
	r := rand.New(rand.NewPCG(1, 1))
	check := func() {
		for range 200 {
			i := r.IntN(n)
			p := prompt(i)
			storetest.Expect(t, m, p, len(p.Tokens))
			// Another ending: up to where it parts.
			p.Tokens[len(p.Tokens)-2]++
			storetest.Expect(t, m, p, len(p.Tokens)-2)
		}
	}
	check()
	storetest.OK(t, s.Checkpoint(t.Context()))
	check()
}

// A filter that is built anew from the index finds the prompts that the old one found, whatever their first tokens hash to:
// the smallest hash, too, which the index could not tell from the end of a row.
func TestRebuiltFilterKnowsEveryOpening(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	h := storetest.Hasher(t, s.Dir())
	m := storetest.Model(t, s, crashtest.Plain())
	var small []kv.Prompt
	for i := 0; len(small) < 3; i++ { // prompts with a token whose hash is the smallest
		p := kv.Prompt{Tokens: []kv.Token{kv.Token(i)}}
		if b := h.AppendTokenHashes(nil, &p, 0, 1); b[0] == 0 && b[1] <= 1 {
			small = append(small, kv.Prompt{Tokens: append([]kv.Token{kv.Token(i)}, crashtest.Tokens(i, 40)...)})
		}
	}
	for _, p := range small {
		storetest.Put(t, m, p)
	}
	storetest.OK(t, s.Close())
	storetest.Remove(t, s.Dir(), storetest.BloomFile)
	s = storetest.Open(t, s.Dir(), storetest.Options())
	storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
	m = storetest.Model(t, s, crashtest.Plain())
	for _, p := range small {
		storetest.Expect(t, m, p, 41)
	}
}

// With Q4R only values become denser, and only where it is asked for: keys, narrow rows and a runtime's own codes are as without
// it. The first tokens come back to the bit, all else within what the planes say; and what was stored is not encoded anew.
func TestDenseValues(t *testing.T) {
	const n, exact = 200, 4
	d := crashtest.Plain()
	d.Name, d.BlockTokens, d.Tensors = "dense", 64, []kv.Tensor{
		{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 128}, {Layer: 0, Role: kv.RoleV, DType: kv.F16, Width: 128},
		{Layer: 1, Role: kv.RoleK, DType: kv.BF16, Width: 64}, {Layer: 1, Role: kv.RoleV, DType: kv.BF16, Width: 96},
		{Layer: 2, Role: kv.RoleK, DType: kv.F32, Width: 64}, {Layer: 2, Role: kv.RoleV, DType: kv.F32, Width: 64},
		{Layer: 3, Role: kv.RoleK, DType: kv.Q8_0, Width: 64}, {Layer: 3, Role: kv.RoleV, DType: kv.Q8_0, Width: 64},
	}
	want := []quant.Codec{quant.Q8_0, quant.Q4R, quant.Q8_0, quant.Q8_0, quant.Q8_0, quant.Q4R, quant.Raw, quant.Raw}
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make(kv.Rows, len(d.Tensors))
	for i, x := range d.Tensors {
		mem := make([]byte, n*x.RowBytes())
		for at := 0; at < len(mem); at += x.DType.GroupBytes() {
			v := math.Float32bits(float32(rng.NormFloat64()))
			switch x.DType {
			case kv.F16: // 1 to 2, of both signs
				binary.LittleEndian.PutUint16(mem[at:], uint16(v>>16&0x8000|0x3c00|v>>13&0x3ff))
			case kv.BF16:
				binary.LittleEndian.PutUint16(mem[at:], uint16(v>>16))
			case kv.F32:
				binary.LittleEndian.PutUint32(mem[at:], v)
			default:
				for j := range x.DType.GroupBytes() {
					mem[at+j] = byte(rng.Uint32())
				}
			}
		}
		rows[i] = kv.Packed(0, n, mem)
	}
	o := storetest.Options()
	o.Codec = 0
	s, m := storetest.Fresh(t, o, d)
	dir := s.Dir()
	p := kv.Tokens(crashtest.Tokens(1, n)...)
	res, err := m.Put(t.Context(), p, rows, db.PutOptions{Codec: quant.Q4R})
	if err != nil || res.Tokens != n {
		t.Fatalf("%+v, %v", res, err)
	}
	if again, err := m.Put(t.Context(), p, rows, db.PutOptions{Codec: quant.Raw}); err != nil || again.Records > 0 {
		t.Fatalf("put again in another codec: %+v, %v", again, err)
	}
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, o)
	m = storetest.Model(t, s, d)
	x := storetest.Match(t, m, p)
	defer x.Close()
	seen := 0
	if err := x.View(t.Context(), func(v db.StoredPlane) error {
		if seen++; v.Codec != want[v.Tensor] {
			t.Errorf("tensor %d is stored as %s, want %s", v.Tensor, v.Codec, want[v.Tensor])
		}
		if (v.Codes != nil) != (v.Codec == quant.Q8_0) {
			t.Errorf("tensor %d, %s: %d bytes of codes", v.Tensor, v.Codec, len(v.Codes))
		}
		return nil
	}); err != nil || seen == 0 {
		t.Fatalf("%d planes, %v", seen, err)
	}
	back := make(kv.Rows, len(d.Tensors))
	for i, x := range d.Tensors {
		back[i] = kv.Packed(0, n, make([]byte, n*x.RowBytes()))
	}
	if got, err := x.Restore(t.Context(), back); err != nil || got.Tokens != n {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, x := range d.Tensors {
		in, out := rows[i].Pieces[0].Mem, back[i].Pieces[0].Mem
		first := exact * x.RowBytes()
		if !bytes.Equal(in[:first], out[:first]) {
			t.Errorf("tensor %d: the first %d tokens are not exact", i, exact)
		}
		if same := bytes.Equal(in, out); same != (want[i] == quant.Raw) {
			t.Errorf("tensor %d, %s: all the same is %t", i, want[i], same)
		}
	}
	storetest.Sound(t, s)
}

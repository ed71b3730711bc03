package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/tests/trace"
)

// Neither filter forgets a key, and every way to search finds exactly what is stored: of prompts of which nothing is stored, all, the
// beginning, and of prompts that lost their end when the filters had it already.
func TestWaysAgree(t *testing.T) {
	requests, err := trace.Load()
	if err != nil {
		t.Fatal(err)
	}
	chats, err := recorded("conversation", t.TempDir(), requests[:400])
	if err != nil {
		t.Fatal(err)
	}
	made, err := synthetic(t.TempDir(), 60*128)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*load{chats, made} {
		t.Cleanup(func() { l.ix.Close() })
		all := l.searchers()
		for _, s := range all {
			checkKeys(t, l, s)
			if want := all[0].bytes(); s != all[len(all)-1] && math.Abs(float64(s.bytes())/float64(want)-1) > 0.01 {
				t.Errorf("%s: %d bytes of filters, one level has %d", s.name, s.bytes(), want)
			}
		}
		for _, k := range l.kinds {
			if _, err := l.measure(all, k, 1, 30, nil); err != nil {
				t.Errorf("%s: %v", k.name, err)
			}
		}
	}
}

func checkKeys(t *testing.T, l *load, s *searcher) {
	t.Helper()
	for _, k := range l.keys.openings {
		if !s.coarse.MayContain(k) {
			t.Fatalf("%s, %s: an opening is missing", l.name, s.name)
		}
	}
	for _, k := range l.keys.ends {
		if !s.coarse.MayContain(k) {
			t.Fatalf("%s, %s: a chunk is missing", l.name, s.name)
		}
	}
	for _, k := range l.keys.blocks {
		if !s.fine.MayContain(k) {
			t.Fatalf("%s, %s: a block is missing", l.name, s.name)
		}
	}
}

// A filter that says yes where nothing is stored costs index reads and no wrong answer.
func TestFullFilter(t *testing.T) {
	l, err := synthetic(t.TempDir(), 20*128)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.ix.Close() })
	all := l.searchers()
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range all {
		for _, b := range s.levels() {
			for b.Fill() < 1 {
				b.Add(randomKey(r))
			}
		}
	}
	for _, k := range l.kinds {
		results, err := l.measure(all, k, 1, 20, nil)
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		for i, x := range results {
			if k.name != "all" && x.wrong == 0 {
				t.Errorf("%s, %s: a full filter spared every read", k.name, all[i].name)
			}
		}
	}
}

// The program runs to its end.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	z := sizes{blocks: 20 * 128, alone: 4096, rounds: 1, lookups: 4, coldRounds: 1, coldLookups: 1, conversations: 100, syntheticN: 100}
	if err := z.run(&out, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "filters alone") {
		t.Error(out.String())
	}
}

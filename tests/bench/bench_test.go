package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A figure is taken in another process of this program.
func TestMain(m *testing.M) {
	if isChild() {
		return
	}
	os.Exit(m.Run())
}

// toySize is everything, as small as it goes.
var toySize = sizes{
	rounds: 2, layers: 2, blocks: 16, gibBlocks: 16, putBlocks: 8, syncBlocks: 4, powerPuts: 2, restores: 10, busyRounds: 1, stalls: 300, budget: 32 << 20, deleted: 300, long: 16,
	small: 256, middle: 512, large: 1024, huge: 2048, matches: 32, opens: 2, killed: 1 << 12, models: 20, bloomKeys: 20_000,
	storyTokens: 64, storyAnswer: 16, storyPhrases: 3,
}

// A run gives a finite number for every figure, or says why it has none.
func TestEveryFigureIsThere(t *testing.T) {
	t.Setenv("DORMOUSE_LLAMA_LIB", "") // a real model takes its time
	r := &run{size: toySize, dir: t.TempDir(), log: t.Logf, long: true}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("SKIPPED: ttft_ratio builds an example with the go command: ", err)
	}
	if err := r.all(); err != nil {
		t.Fatal(err)
	}
	var lines, table strings.Builder
	if err := r.writeJSON(&lines); err != nil {
		t.Fatal(err)
	}
	if err := r.writeTable(&table, loadAverage(), loadAverage()); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	got := map[string]bool{}
	for scan := bufio.NewScanner(strings.NewReader(lines.String())); scan.Scan(); {
		var l struct {
			Name, Unit, Reference  string
			Value, Min, Max, Ratio *float64
		}
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatalf("%v: %s", err, scan.Text())
		}
		if got[l.Name] {
			t.Errorf("%s is there twice", l.Name)
		}
		got[l.Name] = true
		if l.Value == nil || l.Min == nil || l.Max == nil || l.Unit == "" || l.Reference == "" {
			t.Errorf("incomplete: %s", scan.Text())
			continue
		}
		// JSON has no infinities and no NaN: writing one would have failed.
		if *l.Min > *l.Value || *l.Max < *l.Value || l.Ratio != nil && *l.Ratio <= 0 {
			t.Errorf("no sound number: %s", scan.Text())
		}
		if !strings.Contains(table.String(), l.Name) {
			t.Errorf("the table lacks %s", l.Name)
		}
	}
	for _, name := range names() {
		skipped := slices.ContainsFunc(r.notes, func(n string) bool { return strings.HasPrefix(n, "SKIPPED "+name+":") })
		if got[name] == skipped {
			t.Errorf("%s: in the output %t, skipped %t", name, got[name], skipped)
		}
	}
}

// -only runs what it names, prints no other figure that came with it, and refuses what there is not.
func TestOnly(t *testing.T) {
	r := &run{size: toySize, dir: t.TempDir(), log: t.Logf, only: []string{"match_miss", "bloom_fpr"}}
	if err := r.all(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.wanted() {
		got = append(got, f.name)
	}
	if want := []string{"match_miss", "bloom_fpr"}; !slices.Equal(got, want) {
		t.Errorf("figures %v, expected %v", got, want)
	}
	r.only = []string{"open_1e7"}
	if err := r.all(); err == nil || !strings.Contains(err.Error(), "-long") {
		t.Errorf("a figure of a long run, without -long: %v", err)
	}
	r.only = []string{"match_mis"}
	if err := r.all(); err == nil || !strings.Contains(err.Error(), "match_mis") {
		t.Errorf("an unknown name: %v", err)
	}
}

// A store that an earlier run left is taken as it is; one that is not complete is built anew.
func TestKeptStore(t *testing.T) {
	dir := t.TempDir()
	built := 0
	log := func(format string, args ...any) {
		if strings.HasPrefix(args[0].(string), "building") {
			built++
		}
	}
	for i, want := range []int{1, 1, 2} {
		r := &run{size: toySize, dir: dir, log: log, stores: map[int]*blockStore{}}
		b, err := r.blockStore(256)
		if err != nil {
			t.Fatal(err)
		}
		if built != want {
			t.Errorf("run %d: built %d times, expected %d", i, built, want)
		}
		if i == 1 {
			s, err := b.open()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.model.Delete(ctx, b.prompt(0)); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

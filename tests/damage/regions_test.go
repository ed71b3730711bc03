package damage

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sort"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
)

// region is a stretch of a file that is used for one thing.
type region struct {
	what  string
	lo    int
	hi    int
	block kv.Key // of a record
	step  int    // of the log
	idle  bool   // nothing ever reads it
}

const pageBytes = 4096

// lookInto finds out what the bytes of every file are for.
func (x *base) lookInto(t *testing.T, s *db.Store, dir string) {
	x.regions = map[string][]region{}
	add := func(file string, r region) {
		if r.lo < r.hi {
			x.regions[file] = append(x.regions[file], r)
		}
	}
	for name, b := range x.files {
		switch {
		case name == "LOCK":
			add(name, region{what: "LOCK", hi: len(b), idle: true})
		case name == "wal/next.wal.tmp":
			add(name, region{what: "the spare log file", hi: len(b), idle: true})
		case name == "FORMAT" || name == "bloom":
			add(name, region{what: name, hi: len(b)})
		}
	}
	x.pages(t, dir, add)
	x.log(add)
	x.records(t, s, add)
	for name := range x.files {
		rs := x.regions[name]
		sort.Slice(rs, func(i, j int) bool { return rs[i].lo < rs[j].lo })
		at := 0
		for _, r := range rs {
			if r.lo < at {
				t.Fatalf("%s: regions overlap at %d: %v", name, at, fmt.Sprint(rs))
			}
			at = r.hi
		}
	}
}

// pages asks bbolt which pages of index.db are free.
func (x *base) pages(t *testing.T, dir string, add func(string, region)) {
	b, err := bolt.Open(filepath.Join(dir, "index.db"), 0o600, &bolt.Options{ReadOnly: true, PageSize: pageBytes, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.View(func(tx *bolt.Tx) error {
		n := 0
		for {
			p, err := tx.Page(n)
			if err != nil || p == nil {
				break
			}
			if p.Type == "leaf" && bytes.Contains(x.files["index.db"][n*pageBytes:][:pageBytes], []byte("dormouse")) {
				p.Type = "list of buckets"
			}
			r := region{what: "index.db: page, " + p.Type, lo: n * pageBytes, hi: (n + 1 + p.OverflowCount) * pageBytes}
			r.idle = p.Type == "free"
			if r.idle {
				r.hi = r.lo + pageBytes
			}
			add("index.db", r)
			n = r.hi / pageBytes
		}
		add("index.db", region{what: "index.db: behind the last page", lo: n * pageBytes, hi: len(x.files["index.db"]), idle: true})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (x *base) log(add func(string, region)) {
	ends := map[string]int{}
	for i, s := range x.steps {
		if _, ok := x.files[s.file]; !ok {
			continue
		}
		r := region{what: "log: frame", lo: s.from, hi: s.to, step: i}
		if s.head {
			r.what, r.step = "log: head", -1
		}
		add(s.file, r)
		ends[s.file] = max(ends[s.file], s.to)
	}
	for name, b := range x.files {
		if filepath.Ext(name) != ".wal" {
			continue
		}
		if ends[name] == 0 {
			ends[name] = (lastByte(b) + 8) &^ 7
			add(name, region{what: "log: head", hi: ends[name], step: -1})
		}
		add(name, region{what: "log: space behind the end", lo: ends[name], hi: len(b), step: -1})
	}
}

func (x *base) records(t *testing.T, s *db.Store, add func(string, region)) {
	file := func(id uint64) string { return fmt.Sprintf("segments/%016x.seg", id) }
	type stretch struct{ lo, hi int }
	taken := map[string][]stretch{}
	take := func(name string, r region) {
		add(name, r)
		taken[name] = append(taken[name], stretch{r.lo, r.hi})
	}
	live := map[string]bool{}
	for b, err := range s.Blocks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		live[file(b.Segment)] = true
		take(file(b.Segment), region{what: "segment: record", lo: int(b.Offset), hi: int(b.Offset + b.Bytes), block: b.Key})
	}
	dead, err := db.Collect(admin.Tombstones(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dead {
		take(file(d.Segment), region{what: "segment: record that waits to be destroyed", lo: int(d.Offset), hi: int(d.Offset + d.Bytes), idle: true})
	}
	segs, err := db.Collect(admin.Segments(ctx, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range segs {
		name := file(g.ID)
		b := x.files[name]
		if !live[name] {
			add(name, region{what: "segment that waits to be unlinked", hi: len(b), idle: true})
			continue
		}
		take(name, region{what: "segment: header", hi: min(len(b), pageBytes)})
		st := taken[name]
		sort.Slice(st, func(i, j int) bool { return st[i].lo < st[j].lo })
		at := 0
		for _, p := range append(st, stretch{len(b), len(b)}) {
			add(name, region{what: "segment: space that holds nothing", lo: at, hi: p.lo})
			at = p.hi
		}
	}
}

// at returns the region that holds a byte.
func (x *base) at(file string, off int) region {
	rs := x.regions[file]
	i := sort.Search(len(rs), func(i int) bool { return rs[i].hi > off })
	if i < len(rs) && rs[i].lo <= off {
		return rs[i]
	}
	return region{what: file + ": unknown", lo: off, hi: off + 1}
}

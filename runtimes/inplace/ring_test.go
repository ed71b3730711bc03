package inplace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
	"pgregory.net/rapid"
)

func shapeOf(cells, turns int) Shape {
	return Shape{Cells: cells, Turns: turns, Layers: 2, RowBytes: 16}
}

func openRing(t rapid.TB, name string, s Shape) (*Ring, Recovered) {
	t.Helper()
	r, got, err := Open(name, s)
	if err != nil {
		t.Fatal(err)
	}
	return r, got
}

// keyOf is the key of turns whose rows are a function of the number.
func keyOf(n int) (k Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(n))
	return k
}

// write fills the rows of a turn: each byte is a function of key, position, layer and plane.
func write(r *Ring, key Key, first int, cells []uint32) {
	visit(r, key, first, cells, func(row, want []byte) { copy(row, want) })
}

// written says where the rows of a turn are not those of write.
func written(r *Ring, t *Turn) (err error) {
	i := 0
	visit(r, t.Key, t.First, t.Cells, func(row, want []byte) {
		if i++; !bytes.Equal(row, want) && err == nil {
			err = fmt.Errorf("row %d of turn %d is %x, want %x", i, t.Generation, row, want)
		}
	})
	return err
}

func visit(r *Ring, key Key, first int, cells []uint32, do func(row, want []byte)) {
	for l := range r.Shape().Layers {
		for kind, plane := range [][]byte{r.K(l), r.V(l)} {
			for i, c := range cells {
				want := bytes.Repeat([]byte{key[0], key[1] + 1, byte(first+i) ^ 0x5a, byte(4*l + kind + 1)}, r.Shape().RowBytes/4)
				do(r.row(plane, c), want)
			}
		}
	}
}

// A ring against a list of turns: room is made by the oldest that nobody pins, whoever opens the file again finds what was whole, and nothing
// is lost of the cells.
func TestRingAgainstModel(t *testing.T) {
	dir := memdir.Dir(t)
	rings := 0
	rapid.Check(t, func(rt *rapid.T) {
		rings++
		name := filepath.Join(dir, fmt.Sprint("ring", rings))
		s := shapeOf(rapid.SampledFrom([]int{40, LockFree + 8}).Draw(rt, "cells"), rapid.SampledFrom([]int{3, 64}).Draw(rt, "turns"))
		r, got := openRing(rt, name, s)
		defer func() { r.Close() }()
		if !got.New {
			rt.Fatalf("%+v, want a new one", got)
		}
		type turn struct {
			*Turn
			pinned bool
		}
		var turns []turn
		var open [][]uint32
		next := 0
		count := func(f func(turn) bool) (n int) {
			for _, t := range turns {
				if f(t) {
					n += len(t.Cells)
				}
			}
			return n
		}
		free := func() int {
			n := s.Cells - count(func(turn) bool { return true })
			for _, cells := range open {
				n -= len(cells)
			}
			return n
		}
		pick := func(t *rapid.T, pinned bool) int {
			var at []int
			for i, x := range turns {
				if x.pinned == pinned {
					at = append(at, i)
				}
			}
			if len(at) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(at).Draw(t, "turn")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				n := rapid.IntRange(0, s.Cells/3).Draw(t, "rows")
				cells, err := r.Claim(n)
				if free()+count(func(x turn) bool { return !x.pinned }) < n {
					if !errors.Is(err, kv.ErrFull) {
						t.Fatalf("%d rows, %d free: %v", n, free(), err)
					}
					return
				}
				if err != nil || len(cells) != n {
					t.Fatalf("%d rows, %d free: %d, %v", n, free(), len(cells), err)
				}
				for free() < n {
					i := slices.IndexFunc(turns, func(x turn) bool { return !x.pinned })
					if r.Pin(turns[i].Turn) {
						t.Fatalf("turn %d is still there", turns[i].Generation)
					}
					turns = slices.Delete(turns, i, i+1)
				}
				for _, c := range cells {
					for l := range s.Layers {
						if !bytes.Equal(r.row(r.K(l), c), make([]byte, s.RowBytes)) || !bytes.Equal(r.row(r.V(l), c), make([]byte, s.RowBytes)) {
							t.Fatalf("cell %d has something in it", c)
						}
					}
				}
				open = append(open, cells)
			},
			"commit": func(t *rapid.T) {
				if len(open) == 0 || len(open[0]) == 0 {
					t.Skip("none")
				}
				next++
				first := rapid.IntRange(0, 5000).Draw(t, "first")
				write(r, keyOf(next), first, open[0])
				x := r.Commit(keyOf(next), first, open[0])
				if full := len(turns) == s.Turns; full != (x == nil) {
					t.Fatalf("%d of %d turns: %v", len(turns), s.Turns, x)
				} else if full {
					return
				}
				turns, open = append(turns, turn{x, true}), open[1:]
			},
			"release": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("none")
				}
				r.Release(open[0])
				open = open[1:]
			},
			"unpin": func(t *rapid.T) {
				i := pick(t, true)
				r.Unpin(turns[i].Turn)
				turns[i].pinned = false
			},
			"pin": func(t *rapid.T) {
				i := pick(t, false)
				if turns[i].pinned = r.Pin(turns[i].Turn); !turns[i].pinned {
					t.Fatal("it is gone")
				}
			},
			"dissolve": func(t *rapid.T) {
				i := pick(t, true)
				r.Dissolve(turns[i].Turn)
				open = append(open, turns[i].Cells)
				turns = slices.Delete(turns, i, i+1)
			},
			"clear": func(t *rapid.T) {
				if got, want := r.Clear(), count(func(x turn) bool { return !x.pinned }); got != want {
					t.Fatalf("%d rows, want %d", got, want)
				}
				turns = slices.DeleteFunc(turns, func(x turn) bool { return !x.pinned })
			},
			"open again": func(t *rapid.T) {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r, got = openRing(t, name, s)
				torn := 0
				for _, cells := range open {
					torn += len(cells)
				}
				if got.New || got.Turns != len(turns) || got.Torn != torn || len(got.Damaged) > 0 {
					t.Fatalf("%+v, want %d turns and %d torn rows", got, len(turns), torn)
				}
				open = nil
				i := 0
				for x := range r.Turns() {
					if x.Generation != turns[i].Generation || x.Key != turns[i].Key || !slices.Equal(x.Cells, turns[i].Cells) {
						t.Fatalf("turn %d is %+v, was %+v", i, x, turns[i].Turn)
					}
					turns[i] = turn{x, false}
					i++
				}
			},
			"": func(t *rapid.T) {
				if r.Free() != free() {
					t.Fatalf("%d cells are free, want %d", r.Free(), free())
				}
				i := 0
				for x := range r.Turns() {
					if i >= len(turns) || x.Generation != turns[i].Generation {
						t.Fatalf("turn %d of the list is generation %d", i, x.Generation)
					}
					if err := written(r, x); err != nil {
						t.Fatal(err)
					}
					i++
				}
				if i != len(turns) {
					t.Fatalf("%d turns, want %d", i, len(turns))
				}
			},
		})
	})
}

// Many goroutines claim, commit, read, dissolve and evict at once: whoever pins a turn reads its rows and no others, and no cell is lost.
// Memory of the process is what the race detector sees.
func TestManyAtOnce(t *testing.T) {
	for name, s := range map[string]Shape{"lock-free": shapeOf(200, 64), "few slots": shapeOf(200, 5), "shared lock": shapeOf(LockFree+1, 64)} {
		t.Run(name, func(t *testing.T) {
			r, err := NewMemory(s)
			if err != nil {
				t.Fatal(err)
			}
			always, err := r.Claim(3) // one turn that stays pinned
			if err != nil {
				t.Fatal(err)
			}
			write(r, keyOf(1<<20), 5, always)
			stays := r.Commit(keyOf(1<<20), 5, always)
			rounds := 800
			if testing.Short() {
				rounds = 100
			}
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 1))
					for i := range rounds {
						cells, err := r.Claim(1 + rng.IntN(s.Cells/8))
						if err != nil {
							if !errors.Is(err, kv.ErrFull) {
								t.Error(err)
							}
							continue
						}
						key, first := keyOf(g*rounds+i), rng.IntN(100)
						write(r, key, first, cells)
						x := r.Commit(key, first, cells)
						switch {
						case x == nil:
							r.Release(cells)
						case rng.IntN(3) == 0:
							r.Dissolve(x)
							r.Release(cells)
						default:
							r.Unpin(x)
						}
					}
				})
			}
			var read atomic.Int64
			for range 2 {
				wg.Go(func() {
					for range rounds {
						for x := range r.Turns() {
							if r.Pin(x) {
								if err := written(r, x); err != nil {
									t.Error(err)
								}
								read.Add(1)
								r.Unpin(x)
							}
						}
					}
				})
			}
			wg.Wait()
			r.Unpin(stays)
			r.Clear()
			if r.Free() != s.Cells {
				t.Errorf("%d of %d cells are free", r.Free(), s.Cells)
			}
			if read.Load() == 0 {
				t.Error("nobody read a turn")
			}
			for l := range s.Layers {
				if len(bytes.Trim(r.K(l), "\x00")) > 0 || len(bytes.Trim(r.V(l), "\x00")) > 0 {
					t.Error("rows are left in the planes")
				}
			}
		})
	}
}

// Whatever moment a copy of the file is of, and though parts of it are of different moments, a ring made of it has turns with the rows that
// they were written with, and no others.
func TestCopiesOfAnyMoment(t *testing.T) {
	dir := memdir.Dir(t)
	name, s := filepath.Join(dir, "ring"), Shape{Cells: 400, Turns: 32, Layers: 2, RowBytes: 256}
	r, _ := openRing(t, name, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(7, 7))
		var pinned []*Turn
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for len(pinned) > 4 {
				x := pinned[0]
				if pinned = pinned[1:]; rng.IntN(2) == 0 {
					r.Unpin(x)
					continue
				}
				r.Dissolve(x)
				r.Release(x.Cells)
			}
			cells, err := r.Claim(1 + rng.IntN(60))
			if err != nil {
				t.Error(err)
				return
			}
			first := rng.IntN(100)
			write(r, keyOf(i), first, cells)
			if x := r.Commit(keyOf(i), first, cells); x != nil {
				pinned = append(pinned, x)
			} else {
				r.Release(cells)
			}
		}
	})
	copies := 150
	if testing.Short() {
		copies = 40
	}
	turns, damaged := 0, 0
	for i := range copies {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "copy")
		if err := os.WriteFile(other, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, got := openRing(t, other, s)
		damaged += len(got.Damaged)
		for x := range c.Turns() {
			if err := written(c, x); err != nil {
				t.Errorf("copy %d: %v", i, err)
			}
			turns++
		}
		c.Clear()
		if c.Free() != s.Cells {
			t.Errorf("copy %d: %d of %d cells are free", i, c.Free(), s.Cells)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d copies: %d turns, %d that were not whole", copies, turns, damaged)
	if turns == 0 {
		t.Error("no copy had a turn")
	}
}

package index

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTreap compares a treap with a map, and every version that was published with the map as it was then.
func TestTreap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var root *node
		m := map[string]string{}
		edit := uint64(1)
		type version struct {
			root *node
			m    map[string]string
		}
		var old []version
		drawKey := func(t *rapid.T) string { return rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 6, -1).Draw(t, "key") }
		compare := func(root *node, m map[string]string) {
			keys := slices.Sorted(maps.Keys(m))
			var got []string
			root.walk(func(key, val []byte) bool {
				if (val == nil) != (m[string(key)] == "dead") || (val != nil && string(val) != m[string(key)]) {
					t.Fatalf("%q = %q, want %q", key, val, m[string(key)])
				}
				got = append(got, string(key))
				return true
			})
			if !slices.Equal(got, keys) || root.size() != len(keys) {
				t.Fatalf("keys %q, want %q", got, keys)
			}
			q := drawKey(t)
			i, exact := slices.BinarySearch(keys, q)
			at := func(n *node, i int) {
				if n == nil != (i < 0 || i >= len(keys)) || (n != nil && string(n.key) != keys[i]) {
					t.Fatalf("neighbour of %q is %v, want %d of %q", q, n, i, keys)
				}
			}
			at(root.ceil([]byte(q), true), i)
			at(root.below([]byte(q)), i-1)
			if exact {
				at(root.find([]byte(q)), i)
				i++
			} else if root.find([]byte(q)) != nil {
				t.Fatalf("found %q", q)
			}
			at(root.ceil([]byte(q), false), i)
			heap(t, root)
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k := drawKey(t)
				m[k] = rapid.SampledFrom([]string{"", "1", "2", "dead"}).Draw(t, "val")
				val := append(empty, m[k]...)
				if m[k] == "dead" {
					val = nil
				}
				root = root.set([]byte(k), val, edit)
			},
			"drop": func(t *rapid.T) {
				k := drawKey(t)
				delete(m, k)
				root = root.drop([]byte(k), edit)
			},
			"publish": func(t *rapid.T) {
				old = append(old, version{root, maps.Clone(m)})
				edit++
			},
			"abort": func(t *rapid.T) {
				if n := len(old); n > 0 {
					root, m = old[n-1].root, maps.Clone(old[n-1].m)
					edit++
				}
			},
			"": func(t *rapid.T) { compare(root, m) },
		})
		for _, v := range old {
			compare(v.root, v.m)
		}
	})
}

// heap checks the order of priorities, which keeps the tree shallow.
func heap(t *rapid.T, n *node) {
	if n == nil {
		return
	}
	for _, c := range []*node{n.left, n.right} {
		if c != nil && c.prio > n.prio {
			t.Fatalf("%q stands above %q", n.key, c.key)
		}
		heap(t, c)
	}
}

// TestTreapShape: the same rows make the same tree, whatever the order that they came in. Its depth is logarithmic.
func TestTreapShape(t *testing.T) {
	var up, down *node
	const n = 1 << 12
	for i := range n {
		up = up.set([]byte{byte(i >> 8), byte(i)}, empty, 1)
		down = down.set([]byte{byte((n - 1 - i) >> 8), byte(n - 1 - i)}, empty, 2)
	}
	var depth func(a, b *node) int
	depth = func(a, b *node) int {
		if (a == nil) != (b == nil) || (a != nil && !bytes.Equal(a.key, b.key)) {
			t.Fatal("different shapes")
		}
		if a == nil {
			return 0
		}
		return 1 + max(depth(a.left, b.left), depth(a.right, b.right))
	}
	if d := depth(up, down); d > 50 {
		t.Errorf("depth %d of %d nodes", d, n)
	}
}

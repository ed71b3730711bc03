package db

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// goldenPayload is one kind of log frame.
type goldenPayload struct {
	kind   uint8
	name   string
	op     any
	encode func() []byte
	decode func(f wal.Frame) (any, error)
}

func goldenOp[T any](kind uint8, name string, op T) goldenPayload {
	return goldenPayload{kind, name, op, func() []byte { return encodeOp(op) }, func(f wal.Frame) (any, error) { return decodeOp[T](f) }}
}

// goldenPayloads has every kind of frame. Every field of every payload has a value, and its own where that is possible.
func goldenPayloads() []goldenPayload {
	id := func(b byte) (x [16]byte) {
		for i := range x {
			x[i] = b<<4 | byte(i)
		}
		return x
	}
	loc := func(n uint64) opLoc {
		return opLoc{Segment: 0x0102030405060700 + n, Offset: 0x1112131415161700 + int64(n), Length: 0x2122232425262700 + int64(n), Tier: 0xf0 + uint8(n)}
	}
	record := opRecord{
		Key: id(1), Group: 3, Parent: id(2), Model: id(3), Scope: id(4), Loc: loc(1), First: 0x31323334, Tokens: 0x4142,
		RowFirst: 0x5152, RowCount: 0x6162, Flags: 0x71, Birth: 0x8182838485868788, Hashes: []byte{0xde, 0xad, 0xbe, 0xef},
	}
	dead := []opDead{{Key: id(5), Group: 1, Loc: loc(2)}, {Key: id(6), Group: 2, Loc: loc(3)}}
	descriptor := kv.Descriptor{
		Name: "gemma-3", Weights: id(7), Architecture: "gemma3", Tokenizer: id(8),
		RoPE:    kv.RoPE{Type: "neox", Dims: 256, Base: 1e6, Scale: 0.125, Scaling: "linear", FreqFactors: id(9)},
		Rotated: true, Shard: 1, Shards: 2, StateFormat: "v3", BlockTokens: 128,
		Groups: []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 512}, {Kind: kv.StateAt}},
		Tensors: []kv.Tensor{
			{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 256},
			{Layer: 1, Role: kv.RoleV, DType: kv.Q8_0, Width: 128, Group: 1},
			{Layer: 300, Role: kv.RoleState, DType: kv.Bytes, Width: 0, Group: 2},
		},
	}
	ref := Ref{
		Name: "system", Model: id(10), Block: id(11), Tokens: 70000, Pinned: true, Priority: 200,
		Expires: time.Unix(1900000000, 987654321), Set: time.Unix(1800000000, 0), Meta: []byte("meta"),
		Trail: kv.Trail("trail"),
	}
	small := newSmallState()
	small.addModel(newOpModel(&descriptor, 0xe1e2e3e4e5e6e7e8))
	small.setRef(ref)
	small.setRef(Ref{Name: "alone"})
	small.doomed[loc(4)] = struct{}{}
	small.doomedSegments[0x9192939495969798] = struct{}{}
	small.flagged[id(21)] = struct{}{}
	note := opNote{Model: id(15), Name: "canary", Value: []byte{0xca, 0xfe}}
	small.setNote(note)
	small.former = formerDeleted
	ends := map[uint64]int64{0xa1a2a3a4a5a6a7a8: 0x3132333435363738}
	next := index.Applied{NextBirth: 0xb1b2b3b4b5b6b7b8, NextSegment: 0xc1c2c3c4c5c6c7c8, Clock: 0xd1d2d3d4d5d6d7d8}
	const boot = "0a1b2c3d-boot"
	return []goldenPayload{
		{
			frameSnapshot, "snapshot",
			snapshot{
				Boot: boot, Ends: ends, Next: next, Models: opModels{newOpModel(&descriptor, 0xe1e2e3e4e5e6e7e8)},
				Refs: []Ref{{Name: "alone"}, ref}, Doomed: []opLoc{loc(4)}, Unlinked: []uint64{0x9192939495969798}, Flagged: []kv.Key{id(21)}, Notes: []opNote{note}, Former: formerDeleted,
			},
			func() []byte { return small.head(boot, ends, next)() },
			func(f wal.Frame) (any, error) {
				st, snap, err := decodeSnapshot(f.Payload)
				if err == nil && !reflect.DeepEqual(local(st), local(small)) {
					err = fmt.Errorf("the small state is %+v, expected %+v", st, small)
				}
				return snap, err
			},
		},
		goldenOp(framePut, "put", opPut{Records: []opRecord{record, {}}, Dead: dead}),
		goldenOp(frameRemove, "remove", opRemove{Deleted: true, Dead: dead, Refs: []string{"a ref", "another"}, Birth: 0x4142434445464748}),
		goldenOp(frameMove, "move", opMove{Key: id(12), Group: 4, From: loc(5), To: loc(6), Birth: 0x0102030405060708}),
		goldenOp(frameModel, "model", newOpModel(&descriptor, 0x1112131415161718)),
		goldenOp(frameRetire, "retire", opRetire{Model: id(13), Segments: []uint64{7, 0x2122232425262728}}),
		goldenOp(frameRef, "ref", ref),
		goldenOp(frameUnref, "unref", opUnref{Name: "system"}),
		goldenOp(frameFlag, "flag", opFlag{Key: id(14), Group: 5, Loc: loc(7), Flags: 0x81}),
		goldenOp(frameNote, "note", note),
		goldenOp(frameBarrier, "barrier", opBarrier{LSN: 0x5152535455565758}),
	}
}

// local has equal times in one form.
func local(v any) any {
	ref := func(r Ref) Ref {
		r.Expires, r.Set = r.Expires.UTC(), r.Set.UTC()
		return r
	}
	switch v := v.(type) {
	case Ref:
		return ref(v)
	case snapshot:
		v.Refs = slices.Clone(v.Refs)
		for i := range v.Refs {
			v.Refs[i] = ref(v.Refs[i])
		}
		return v
	case *smallState:
		refs := map[string]Ref{}
		for name, r := range v.refs {
			refs[name] = ref(r)
		}
		return []any{v.models, refs, v.doomed, v.doomedSegments, v.blocks, v.pins, v.classes, v.notes, v.noteBytes, v.former}
	}
	return v
}

// The numbers and the payloads of log frames do not change without a new version, and those of version 1 can be read
// for ever.
func TestGoldenPayloads(t *testing.T) {
	var got strings.Builder
	for _, p := range goldenPayloads() {
		fmt.Fprintf(&got, "kind %d %s\n%s\n", p.kind, p.name, hex.Dump(p.encode()))
	}
	old := golden(t, "payloads.golden", got.String())
	sections := strings.Split(strings.TrimSpace(old), "\n\n")
	payloads := goldenPayloads()
	if len(sections) != len(payloads) {
		t.Fatalf("%d kinds of frames in the file, %d in the test", len(sections), len(payloads))
	}
	for i, p := range payloads {
		head, dump, _ := strings.Cut(sections[i], "\n")
		if want := fmt.Sprintf("kind %d %s", p.kind, p.name); head != want {
			t.Fatalf("%q, expected %q", head, want)
		}
		op, err := p.decode(wal.Frame{Kind: p.kind, Payload: undump(t, dump)})
		if err != nil {
			t.Errorf("%s: %v", head, err)
		} else if !reflect.DeepEqual(local(op), local(p.op)) {
			t.Errorf("%s: decoded as\n%+v, expected\n%+v", head, op, p.op)
		}
	}
}

// The golden file has every kind of frame, and a value in every field: it misses no field that is added.
func TestGoldenPayloadsAreWhole(t *testing.T) {
	var kinds []uint8
	seen := map[string]bool{} // fields that have a value somewhere
	all := map[string]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if !f.IsExported() {
					continue
				}
				name := v.Type().String() + "." + f.Name
				all[name] = true
				seen[name] = seen[name] || !v.Field(i).IsZero()
				walk(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				walk(v.MapIndex(k))
			}
		}
	}
	for _, p := range goldenPayloads() {
		kinds = append(kinds, p.kind)
		walk(reflect.ValueOf(p.op))
	}
	unused := []string{"index.Applied.LSN", "index.Applied.WALFile", "index.Applied.Extra"} // docs/format/store.md says so
	for name := range all {
		if !seen[name] && !slices.Contains(unused, name) {
			t.Errorf("%s has no value", name)
		}
	}
	if want := []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, expected %v", kinds, want)
	}
	if len(all) < 60 {
		t.Errorf("only %d fields", len(all))
	}
}

// What is logged comes back from a log file: the head's snapshot, and a frame of every kind.
func TestPayloadsThroughTheLog(t *testing.T) {
	payloads := goldenPayloads()
	dir := filepath.Join(t.TempDir(), walDir)
	if err := vfs.OS.Mkdir(dir); err != nil {
		t.Fatal(err)
	}
	o := wal.Options{FS: vfs.OS, Dir: dir, UUID: goldenFormat().UUID}
	l, err := wal.Create(o, 1, 1, payloads[0].encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range payloads[1:] {
		if _, err := l.Append(p.kind, p.encode()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	i := 0
	rec, err := wal.Replay(o, func(f wal.Frame) error {
		p := payloads[i]
		i++
		op, err := p.decode(f)
		if f.Kind != p.kind || err != nil || !reflect.DeepEqual(local(op), local(p.op)) {
			t.Errorf("frame %d is of kind %d: %+v, %v; expected kind %d: %+v", f.LSN, f.Kind, op, err, p.kind, p.op)
		}
		return nil
	})
	if err != nil || i != len(payloads) || len(rec.Damage) > 0 || rec.Torn {
		t.Errorf("%d of %d frames: %+v, %v", i, len(payloads), rec, err)
	}
}

// What another release could have written: a map may have names that are unknown here, or lack some, which are then zero.
// An array of another length is refused.
func TestPayloadsOfOtherReleases(t *testing.T) {
	ref := goldenPayloads()[6].op.(Ref)
	more := struct {
		Later []string
		Ref   `msgpack:",inline"`
	}{[]string{"x"}, ref}
	for name, x := range map[string]struct{ payload, want any }{
		"more in a map": {more, ref},
		"less in a map": {map[string]any{"Name": "system"}, Ref{Name: "system"}},
	} {
		got, err := decodeOp[Ref](wal.Frame{Payload: encodeOp(x.payload)})
		if err != nil || !reflect.DeepEqual(local(got), local(x.want)) {
			t.Errorf("%s: %+v, %v; expected %+v", name, got, err, x.want)
		}
	}
	for name, payload := range map[string]any{"longer array": []any{kv.Descriptor{}, uint64(7), 7}, "shorter array": []any{kv.Descriptor{}}, "other type": []any{7, "system"}} {
		got, err := decodeOp[opModel](wal.Frame{File: "1.wal", Offset: 64, LSN: 5, Kind: frameModel, Payload: encodeOp(payload)})
		var bad *CorruptError
		if !errors.As(err, &bad) || bad.File != "1.wal" || bad.Offset != 64 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

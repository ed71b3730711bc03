package oplog

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/wal"
)

var update = flag.Bool("update", false, "write the golden file anew")

// The numbers and the payloads of log frames do not change without a new version of the store.
func TestGolden(t *testing.T) {
	var got strings.Builder
	for _, op := range samples() {
		name, _, _ := strings.Cut(op.String(), " ")
		fmt.Fprintf(&got, "kind %d %s\n%s\n", op.Kind(), name, hex.Dump(Encode(op)))
	}
	name := filepath.Join("testdata", "payloads.golden")
	if *update {
		if err := os.WriteFile(name, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(string(b), "\r\n", "\n"); got.String() != want {
		t.Errorf("%s differs from what is written now; the store's version must change with it\ngot\n%swant\n%s", name, &got, want)
	}
}

// A head that an earlier build wrote, which began with the name of a boot, says the same without it.
func TestHeadWithABoot(t *testing.T) {
	for _, op := range samples() {
		if _, ok := op.(Snapshot); !ok {
			continue
		}
		b := packed.AppendBytes(nil, "0a1b2c3d-boot")
		got, err := Decode(KindSnapshot, append(b, Encode(op)[4:]...))
		if err != nil || !reflect.DeepEqual(got, op) {
			t.Errorf("%#v became %#v: %v", op, got, err)
		}
	}
}

// The samples, and so the golden file, have every kind of frame, and a value in every field: they miss no field that is added.
func TestSamplesAreWhole(t *testing.T) {
	seen, all := map[string]bool{}, map[string]bool{} // fields; those that have a value somewhere
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range v.NumField() {
				name := v.Type().String() + "." + v.Type().Field(i).Name
				all[name] = true
				seen[name] = seen[name] || !v.Field(i).IsZero()
				walk(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		}
	}
	for i, op := range samples() {
		if int(op.Kind()) != i+1 {
			t.Errorf("%T is of kind %d, expected %d", op, op.Kind(), i+1)
		}
		walk(reflect.ValueOf(op))
	}
	seen["loc.Loc.Tier"] = true // always 0
	for _, not := range []string{"oplog.Dead.Unseen", "oplog.Remove.Behind", "index.Entry.Rank", "index.Entry.Hits", "index.Entry.Used"} {
		seen[not] = true // not logged
	}
	for name := range all {
		if !seen[name] {
			t.Errorf("%s has no value", name)
		}
	}
	if n := len(samples()); n != len(Kinds()) || len(all) < 60 {
		t.Errorf("%d kinds of %d, %d fields", n, len(Kinds()), len(all))
	}
}

// What is logged comes back from a log file: the head's snapshot, and a frame of every kind.
func TestThroughTheLog(t *testing.T) {
	ops := samples()
	dir := filepath.Join(t.TempDir(), "wal")
	if err := vfs.OS.Mkdir(dir); err != nil {
		t.Fatal(err)
	}
	o := wal.Options{Dir: dir, UUID: [16]byte{1}}
	l, err := wal.Create(o, 1, 1, Encode(ops[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops[1:] {
		if _, err := l.Append(op.Kind(), Encode(op)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	i := 0
	rec, err := wal.Replay(o, func(f wal.Frame) error {
		want := ops[i]
		i++
		if op, err := Decode(f.Kind, f.Payload); f.Kind != want.Kind() || err != nil || !reflect.DeepEqual(op, want) {
			t.Errorf("frame %d is of kind %d: %#v, %v; expected kind %d: %#v", f.LSN, f.Kind, op, err, want.Kind(), want)
		}
		return nil
	})
	if err != nil || i != len(ops) || len(rec.Damage) > 0 || rec.Torn {
		t.Errorf("%d of %d frames: %+v, %v", i, len(ops), rec, err)
	}
}

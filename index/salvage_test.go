package index

import (
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// stored reads all entries of a sound index, with the hashes that it keeps.
func stored(t *testing.T, o Options) map[kv.Key]Entry {
	ix := open(t, o)
	v := ix.View()
	defer v.Release()
	all := map[kv.Key]Entry{}
	if err := v.Blocks(kv.Key{}, 0, func(e Entry) bool { all[e.Key] = e; return true }); err != nil {
		t.Fatal(err)
	}
	return all
}

// A sound file is salvaged whole.
func TestSalvageSound(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 800)
	want := stored(t, o)
	got, err := Salvage(o)
	if err != nil || len(got.Damage) > 0 || !got.Known || !got.Complete || got.Older {
		t.Fatalf("%v, %+v", err, got.Damage)
	}
	if got.UUID != o.UUID || got.Applied.LSN != 3 || len(got.Applied.Extra) != 100 {
		t.Fatalf("store row %+v", got.Applied)
	}
	checkSalvaged(t, got, want)
	if len(got.Entries) != len(want) {
		t.Fatalf("%d entries, expected %d", len(got.Entries), len(want))
	}
	o.Path += "x"
	if _, err := Salvage(o); !errors.Is(err, ErrMissing) {
		t.Fatalf("no file: %v", err)
	}
}

// checkSalvaged: nothing comes back that the last checkpoint did not hold.
func checkSalvaged(t *testing.T, got Salvaged, want map[kv.Key]Entry) {
	t.Helper()
	seen := map[kv.Key]bool{}
	for _, e := range got.Entries {
		e.Hashes = nil
		if w, ok := want[e.Key]; !ok || !reflect.DeepEqual(e, w) || seen[e.Key] {
			t.Fatalf("salvaged %+v, stored was %+v (twice: %t)", e, w, seen[e.Key])
		}
		seen[e.Key] = true
	}
}

// Whatever is damaged, every row that comes back was stored, and one damaged page costs no rows but its own. Only with one of
// the two meta pages gone may the rows be those of the checkpoint before, which Older says.
func TestSalvageDamaged(t *testing.T) {
	o := testOptions(t.TempDir())
	build(t, o, 800)
	want := stored(t, o)
	whole := must(os.ReadFile(o.Path))(t)
	perPage := 4096 / (entryBytes + blockKeyBytes + sumBytes) // at most so many entries lie in one
	r := rand.New(rand.NewPCG(3, 4))
	rounds, worst := 500, 0
	if testing.Short() {
		rounds = 150
	}
	for round := range rounds {
		b := append([]byte(nil), whole...)
		places := 1 + r.IntN(2)
		for range places {
			at := r.IntN(len(b))
			switch r.IntN(4) {
			case 0: // a page of zeros
				clear(b[at/4096*4096 : at/4096*4096+4096])
			case 1: // another page in its place
				copy(b[at/4096*4096:][:4096], b[r.IntN(len(b)/4096)*4096:])
			default:
				b[at] ^= 1 << r.IntN(8)
			}
		}
		if round%10 == 0 {
			b = b[:r.IntN(len(b))]
			places = 1000
		}
		put(t, o.Path, b)
		got := must(Salvage(o))(t)
		if got.Older {
			continue
		}
		checkSalvaged(t, got, want)
		lost := len(want) - len(got.Entries)
		// The freelist and the list of buckets are what all others hang from.
		if places < 1000 && got.Known && lost > places*perPage && lost < len(want) {
			t.Fatalf("round %d: %d entries lost to %d damaged places: %v", round, lost, places, got.Damage)
		}
		if lost < len(want) {
			worst = max(worst, lost)
		}
	}
	t.Logf("of %d entries at most %d were lost to two damaged places", len(want), worst)
}

package llamacpp_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/gguf/ggufgen"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// The memo answers as long as the file is the same by inode, size and times; a broken memo costs time only.
func TestWeightsMemo(t *testing.T) {
	dir := t.TempDir()
	path, memo := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "memo")
	write := func(b []byte, when time.Time) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) // the inode stays
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	hash := func(memo string) kv.Hash {
		t.Helper()
		h, err := llamacpp.WeightsHash(path, memo)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	then := time.Now().Add(-time.Hour)
	write([]byte("one"), then)
	one := hash(memo)
	write([]byte("two"), then)
	two := hash("")
	if one == two {
		t.Fatal("two contents, one hash")
	}
	if runtime.GOOS == "windows" {
		t.Log("no time of change here: a file whose time of modification was set back is not told apart")
	} else if hash(memo) != two {
		t.Error("the memo was used for a changed file whose time of modification was set back")
	}
	write([]byte("two"), then.Add(time.Second))
	if hash(memo) != two {
		t.Error("the memo was used for a changed file")
	}
	b, err := os.ReadFile(memo)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(memo, bytes.ReplaceAll(b, []byte(two.String()), []byte(one.String())), 0o644); err != nil {
		t.Fatal(err)
	}
	if hash(memo) != one {
		t.Error("the memo was not used")
	}
	if err := os.WriteFile(memo, []byte("weights1 x\nrubbish\n\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	if hash(memo) != two || hash(filepath.Join(dir, "no", "such", "folder")) != two {
		t.Error("a memo that cannot be used changes the hash")
	}
	if _, err := llamacpp.WeightsHash(filepath.Join(dir, "none"), memo); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// All that changes K changes the fingerprint, and nothing else does.
func TestDescribe(t *testing.T) {
	id := llamacpp.Identity{Weights: kv.Hash{1}, Tokenizer: kv.Hash{1}}
	fingerprint := func(f *fake, id llamacpp.Identity) kv.Fingerprint {
		t.Helper()
		d, err := f.library().Describe(2, id)
		if err != nil {
			t.Fatal(err)
		}
		n, err := d.Normal()
		if err != nil {
			t.Fatal(err)
		}
		return n.Fingerprint()
	}
	base := fingerprint(kinds("plain"), id)
	with := func(change func(*llamacpp.Identity)) llamacpp.Identity {
		x := id
		change(&x)
		return x
	}
	for name, x := range map[string]struct {
		meta map[string]string
		id   llamacpp.Identity
		same bool
	}{
		"nothing":         {nil, id, true},
		"name":            {nil, with(func(x *llamacpp.Identity) { x.Name = "other" }), true},
		"digits":          {map[string]string{"fake.rope.freq_base": "10000"}, id, true},
		"weights":         {nil, with(func(x *llamacpp.Identity) { x.Weights[1] = 1 }), false},
		"tokenizer":       {nil, with(func(x *llamacpp.Identity) { x.Tokenizer[1] = 1 }), false},
		"base":            {map[string]string{"fake.rope.freq_base": "500000.000000"}, id, false},
		"base of context": {nil, with(func(x *llamacpp.Identity) { x.RopeBase = 500000 }), false},
		"scale":           {nil, with(func(x *llamacpp.Identity) { x.RopeScale = 0.5 }), false},
		"yarn of context": {nil, with(func(x *llamacpp.Identity) { x.RopeScaling = "yarn" }), false},
		"scaling":         {map[string]string{"fake.rope.scaling.type": "yarn"}, id, false},
		"unheard of":      {map[string]string{"fake.rope.new_thing": "1"}, id, false},
		"other metadata":  {map[string]string{"fake.something": "1", "general.name": "x"}, id, true},
	} {
		f := kinds("plain")
		f.meta = x.meta
		if got := fingerprint(f, x.id); (got == base) != x.same {
			t.Errorf("%s: same fingerprint is %v, want %v", name, got == base, x.same)
		}
	}
	for field, x := range map[string]llamacpp.Identity{
		"Identity.Weights":   with(func(x *llamacpp.Identity) { x.Weights = kv.Hash{} }),
		"Identity.Tokenizer": with(func(x *llamacpp.Identity) { x.Tokenizer = kv.Hash{} }),
	} {
		if _, err := kinds("plain").library().Describe(2, x); !errors.Is(err, llamacpp.ErrRefused) || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
	path := kit.WriteFile(t, "m.gguf", ggufgen.LLaMA(1, 1, 16))
	if _, err := kinds("plain").library().Describe(2, llamacpp.Identity{Path: path}); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Errorf("a file of another architecture: %v", err)
	}
}

// What llama.cpp would crash on, and a library that lacks functions, are refused before it is asked.
func TestDescribeOfNothing(t *testing.T) {
	id := llamacpp.Identity{Weights: kv.Hash{1}, Tokenizer: kv.Hash{1}}
	f := kinds("plain")
	whole := *f.library()
	whole.Meta = func(model uintptr, key string, buf *byte, size uintptr) int32 {
		if model == 0 {
			t.Error("llama.cpp is asked about model 0")
		}
		return -1
	}
	for name, describe := range map[string]func() (kv.Descriptor, error){
		"no model":   func() (kv.Descriptor, error) { return whole.Describe(0, id) },
		"no library": func() (kv.Descriptor, error) { return (*llamacpp.Library)(nil).Describe(2, id) },
		"no binding": func() (kv.Descriptor, error) { return new(llamacpp.Library).Describe(2, id) },
	} {
		if _, err := describe(); !errors.Is(err, llamacpp.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What keeps a memo from being written is a line of the log that names it.
func TestMemoThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	if err := os.WriteFile(path, ggufgen.LLaMA(1, 1, 16), 0o644); err != nil {
		t.Fatal(err)
	}
	store := kit.OpenStore(t)
	for memo, want := range map[string]string{
		"":                                      "",
		filepath.Join(dir, "memo"):              "",
		filepath.Join(dir, "no folder", "memo"): "no folder",
		dir:                                     "rename",
		path:                                    "is a model",
	} {
		f := kinds("plain")
		f.file, f.meta = path, map[string]string{"general.architecture": "llama"}
		var log bytes.Buffer
		attach(t, store, f, func(o *llamacpp.Options) {
			o.Identity = llamacpp.Identity{Path: path, Memo: memo, Tokenizer: kv.Hash{1}}
			o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		if got := log.String(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("memo %q: logged %q, expected %q", memo, got, want)
		}
	}
}

// What the memo remembers of a file's head is what the file says; a file that changed is read again, and rubbish in the memo
// costs time only.
func TestHeadMemo(t *testing.T) {
	dir := t.TempDir()
	path, memo := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "memo")
	describe := func(arch, memo string) (kv.Descriptor, error) {
		f := kinds("plain")
		f.file, f.meta = path, map[string]string{"general.architecture": arch}
		return f.library().Describe(2, llamacpp.Identity{Path: path, Memo: memo})
	}
	want := func(arch string) kv.Fingerprint {
		t.Helper()
		var seen []kv.Fingerprint
		for _, m := range []string{"", memo, memo} { // without, first with, then from it
			d, err := describe(arch, m)
			if err != nil {
				t.Fatal(err)
			}
			n, err := d.Normal()
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, n.Fingerprint())
		}
		if seen[0] != seen[1] || seen[0] != seen[2] {
			t.Errorf("%s: the memo changes the fingerprint: %v", arch, seen)
		}
		return seen[0]
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(ggufgen.LLaMA(1, 1, 16))
	first := want("llama")
	if _, err := describe("gemma3", memo); !errors.Is(err, llamacpp.ErrIdentity) {
		t.Errorf("another architecture than the remembered one: %v", err)
	}
	b, err := os.ReadFile(memo)
	if err != nil || bytes.Count(b, []byte("head4 ")) != 1 || bytes.Count(b, []byte("weights1 ")) != 1 {
		t.Errorf("the memo is %q, expected one line of each kind: %v", b, err)
	}
	write(ggufgen.Gemma3(1, 2, 64, 40))
	if want("gemma3") == first {
		t.Error("two files, one fingerprint")
	}
	for _, rubbish := range []string{"llama zz zz", "llama", "llama 00 00", ""} {
		spoilt := bytes.ReplaceAll(b, []byte("llama"), []byte(rubbish))
		if err := os.WriteFile(memo, spoilt, 0o644); err != nil {
			t.Fatal(err)
		}
		want("gemma3")
	}
}

// Where llama.cpp chooses RoPE factors by the size of the context, contexts of the two sides are two models. Else the size
// does not matter.
func TestFactorsByContext(t *testing.T) {
	const sequences = 3 // of the fake
	for name, x := range map[string]struct {
		meta map[string]string
		two  bool
	}{
		"none":                    {nil, false},
		"longrope":                {map[string]string{"fake.rope.scaling.type": "longrope", "fake.rope.scaling.original_context_length": "200"}, true},
		"longrope, no length":     {map[string]string{"fake.rope.scaling.type": "longrope", "fake.context_length": "200"}, true},
		"a length only, as Phi 3": {map[string]string{"fake.rope.scaling.original_context_length": "200"}, true},
		"yarn":                    {map[string]string{"fake.rope.scaling.type": "yarn", "fake.rope.scaling.original_context_length": "200"}, false},
	} {
		store := kit.OpenStore(t)
		fingerprint := func(each int) kv.Fingerprint {
			f := kinds("plain")
			f.meta, f.contextLen = x.meta, each*sequences
			return attach(t, store, f, nil).Model().Fingerprint()
		}
		short, long := fingerprint(200), fingerprint(201)
		if (short != long) != x.two || fingerprint(100) != short || fingerprint(1000) != long {
			t.Errorf("%s: contexts of 200 and 201 tokens are two models: %v, want %v", name, short != long, x.two)
		}
	}
}

// A file with two sets of factors that names neither a scaling nor an original length, as MiniCPM 3's, is one of those: the length
// that it was trained for is the limit.
func TestFactorsByContextOfTheFile(t *testing.T) {
	const sequences = 3 // of the fake
	for _, two := range []bool{false, true} {
		for _, scaling := range []string{"", "yarn"} {
			w := ggufgen.NewWriter("fake", 1)
			w.Uint("fake.context_length", 200)
			if scaling != "" {
				w.String("fake.rope.scaling.type", scaling)
			}
			w.Uint("tokenizer.of", 1)
			if two {
				w.Tensor("rope_factors_long.weight", func(i int) float32 { return float32(2 + i) }, 4)
				w.Tensor("rope_factors_short.weight", func(int) float32 { return 1 }, 4)
			}
			dir := t.TempDir()
			path, memo := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "memo")
			if err := os.WriteFile(path, w.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			store := kit.OpenStore(t)
			fingerprint := func(each int) kv.Fingerprint {
				f := kinds("plain")
				f.file, f.meta, f.contextLen = path, map[string]string{"fake.context_length": "200"}, each*sequences
				return attach(t, store, f, func(o *llamacpp.Options) { o.Identity = llamacpp.Identity{Path: path, Memo: memo} }).Model().Fingerprint()
			}
			short, long := fingerprint(200), fingerprint(201)
			if (short != long) != two || fingerprint(100) != short || fingerprint(1000) != long {
				t.Errorf("scaling %q: contexts of 200 and 201 tokens are two models: %v, want %v", scaling, short != long, two)
			}
		}
	}
}

// The variable that keeps llama.cpp from rotating quantized caches means here what it means there: a number, as atoi reads it.
func TestRotationDisabled(t *testing.T) {
	for value, disabled := range map[string]bool{
		"": false, "0": false, "00": false, "1": true, "2": true, "-1": true, "010": true, " 1": true, "1 ": true, "1x": true, "+1": true,
		"true": false, "x1": false, "0x1": false, "- 1": false,
	} {
		t.Setenv("LLAMA_ATTN_ROT_DISABLE", value)
		s := attach(t, kit.OpenStore(t), kinds("plain"), func(o *llamacpp.Options) { o.OpaqueOnly = true })
		if got := strings.HasSuffix(s.Model().Descriptor().StateFormat, " unrotated"); got != disabled {
			t.Errorf("%q: rotation is disabled: %v, want %v", value, got, disabled)
		}
	}
}

// A model that is named where a memo belongs stays as it is.
func TestMemoIsNotAModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	for _, size := range []int{0, 2 << 20} {
		b := append(ggufgen.LLaMA(1, 1, 16), make([]byte, size)...)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := llamacpp.WeightsHash(path, path); err != nil {
			t.Fatal(err)
		}
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(b, again) {
			t.Fatalf("of a model of %d bytes, %d are left (%v)", len(b), len(again), err)
		}
	}
}

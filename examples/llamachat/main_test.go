//go:build (linux && !android) || (darwin && !ios)

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/examples/command"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if err := child(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const stories = "../../runtimes/llamacpp/testdata/stories260K-f32.gguf"

// Every flag is checked before anything is started, and a refusal names the flag, or says what to run.
func TestFlagsAreChecked(t *testing.T) {
	t.Setenv("DORMOUSE_LLAMA_LIB", "")
	t.Setenv("DORMOUSE_LLAMA_MODEL", "")
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.txt")
	if err := os.WriteFile(empty, []byte(" \n"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := []string{"-lib", dir, "-model", stories, "-store", filepath.Join(dir, "store")}
	for _, x := range []struct {
		args []string
		want string
	}{
		{nil, "tests/llama/fetch.sh"},
		{[]string{"-lib", dir, "-store", dir}, "tests/llama/fetch.sh"},
		{[]string{"-lib", dir + "/none", "-model", stories, "-store", dir}, "tests/llama/fetch.sh"},
		{[]string{"-lib", dir, "-model", dir + "/none.gguf", "-store", dir}, "tests/llama/fetch.sh"},
		{[]string{"-lib", dir, "-model", stories}, "-store"},
		{append(good, "-batch", "0"), "-batch 0"},
		{append(good, "-batch", "-4"), "-batch -4"},
		{append(good, "-batch", "2000000000"), "-batch 2000000000"},
		{append(good, "-continue", "0"), "-continue 0"},
		{append(good, "-continue", "-4"), "-continue -4"},
		{append(good, "-continue", "2000000000"), "-continue 2000000000"},
		{append(good, "-threads", "-4"), "-threads -4"},
		{append(good, "-threads", "2000000000"), "-threads 2000000000"},
		{append(good, "-codec", "gzip"), "-codec"},
		{append(good, "-prompt-file", dir+"/none.txt"), "-prompt-file"},
		{append(good, "-prompt-file", empty), "no text"},
		{append(good, "rest"), "rest"},
		{append(good, "-nonsense"), "-nonsense"},
		{append(good, "-tokens", "-3"), "-3"},
		{append(good, "-tokens=-3"), "-tokens"},
	} {
		if _, err := parse(x.args, io.Discard); command.Code(err) != 2 || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, expected a word about %s", x.args, err, x.want)
		}
	}
	o, err := parse(good, io.Discard)
	if err != nil || o.Threads != min(runtime.GOMAXPROCS(0), maxThreads) {
		t.Fatalf("%d threads: %v", o.Threads, err)
	}
}

func libraries(t *testing.T) string {
	t.Helper()
	lib := os.Getenv("DORMOUSE_LLAMA_LIB")
	if lib == "" {
		t.Skip("SKIPPED, llama.cpp is not tried: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
	}
	return lib
}

func tell(t *testing.T, wantOK bool, args ...string) (r report) {
	t.Helper()
	var out strings.Builder
	ok, err := run(t.Context(), append(args, "-json"), nil, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if ok != wantOK || (r.Wrong == "") != wantOK {
		t.Errorf("ok is %v: %s", ok, r.Wrong)
	}
	return r
}

// The second run on a store finds what the first one left, and writes the same.
func TestRunsAgainOnItsStore(t *testing.T) {
	lib := libraries(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "prompt.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Once upon a time there was a dormouse. ", 12)), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-lib", lib, "-model", stories, "-store", filepath.Join(dir, "store") + "/", "-prompt-file", text, "-continue", "8", "-batch", "32", "-threads", "1", "-codec", "raw"}
	first := tell(t, true, args...)
	if n := first.PromptTokens - 1; first.FoundTokens != 0 || first.ReusedTokens != n || !first.Identical {
		t.Errorf("first run: found %d, reused %d of %d, identical %v", first.FoundTokens, first.ReusedTokens, n, first.Identical)
	}
	again := tell(t, true, args...)
	if n := again.PromptTokens - 1; again.FoundTokens != n || again.ReusedTokens != n || !again.Identical || again.Text != first.Text {
		t.Errorf("second run: found %d, reused %d of %d, identical %v", again.FoundTokens, again.ReusedTokens, n, again.Identical)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "store")); err != nil || len(entries) == 0 {
		t.Fatal(err)
	} else {
		for _, e := range entries {
			if strings.Contains(e.Name(), "memo") {
				t.Errorf("%s lies in the store's folder", e.Name())
			}
		}
	}
}

// What is printed of the store is what the store has: the codec is that in which the rows lie, not the one that was asked for, and
// another model's records do not count.
func TestTellsWhatIsStored(t *testing.T) {
	lib := libraries(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "prompt.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Once upon a time there was a dormouse. ", 12)), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-lib", lib, "-model", stories, "-store", filepath.Join(dir, "store"), "-prompt-file", text, "-continue", "8", "-batch", "32", "-threads", "1"}
	raw := tell(t, true, append(args, "-codec", "raw")...)
	again := tell(t, true, append(args, "-codec", "q8_0")...)
	if raw.Codec != "raw" || again.Codec != "raw" || again.RecordBytes != raw.RecordBytes {
		t.Errorf("codec %s, then %s; %d bytes, then %d", raw.Codec, again.Codec, raw.RecordBytes, again.RecordBytes)
	}
	other := filepath.Join(dir, "other.gguf") // the same model, but for the name: another file, other weights to the store
	b, err := os.ReadFile(stories)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(other, b, 0o600); err != nil {
		t.Fatal(err)
	}
	args[3] = other
	second := tell(t, true, append(args, "-codec", "q8_0")...)
	if second.FoundTokens != 0 || second.Codec != "q8_0" || second.RecordBytes >= raw.RecordBytes {
		t.Errorf("of another model: found %d, codec %s, %d bytes; raw has %d", second.FoundTokens, second.Codec, second.RecordBytes, raw.RecordBytes)
	}
}

// -tokens prints the ids of the prompt, as a list, and starts nothing else.
func TestTokens(t *testing.T) {
	lib := libraries(t)
	var out strings.Builder
	ok, err := run(t.Context(), []string{"-lib", lib, "-model", stories, "-tokens"}, nil, &out, io.Discard)
	var ids []int32
	if jsonErr := json.Unmarshal([]byte(out.String()), &ids); err != nil || !ok || jsonErr != nil || len(ids) < 1000 {
		t.Errorf("%d ids: %v %v", len(ids), err, jsonErr)
	}
}

// What cannot work says why: a short prompt, the folder of something else, a model that is none.
func TestSaysWhyNot(t *testing.T) {
	lib := libraries(t)
	dir := t.TempDir()
	short := filepath.Join(dir, "short.txt")
	if err := os.WriteFile(short, []byte("\x01"), 0o644); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(dir, "store")
	small := []string{"-continue", "4", "-threads", "1", "-batch", "32"}
	nothing := func(what string) {
		t.Helper()
		if found, err := filepath.Glob(store + "*"); err != nil || len(found) > 0 {
			t.Errorf("%s: %q is left behind", what, found)
		}
	}
	if _, err := run(t.Context(), append(small, "-lib", lib, "-model", stories, "-store", store, "-prompt-file", short), nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "give more text") {
		t.Errorf("a short prompt: %v", err)
	}
	nothing("a short prompt")
	r := report{PromptTokens: 20, Reason: "here is why"}
	if got := r.wrong(1); got != "nothing was reused: here is why" {
		t.Errorf("nothing reused: %q", got)
	}
	if _, err := run(t.Context(), append(small, "-lib", lib, "-model", stories, "-store", dir), nil, io.Discard, io.Discard); !errors.Is(err, db.ErrNotEmpty) || command.Code(err) != 2 {
		t.Errorf("a folder of something else: %v", err)
	}
	if _, err := run(t.Context(), append(small, "-lib", lib, "-model", short, "-store", store), nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), short) {
		t.Errorf("a model that is none: %v", err)
	}
	nothing("a model that is none")
	if _, err := run(t.Context(), append(small, "-lib", dir, "-model", stories, "-store", store), nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder without libraries: %v", err)
	}
}

// A run that stored nothing leaves no store and no memo behind, but what was there before, and a store with blocks, stays.
func TestLeavesNothing(t *testing.T) {
	ctx := context.Background()
	for _, x := range []string{"missing", "empty", "of an earlier run"} {
		dir := filepath.Join(t.TempDir(), "a", "store")
		if x != "missing" {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if x == "of an earlier run" {
			makeStore(t, dir)
		}
		f, err := look(ctx, dir)
		if err != nil || missing(dir) != (x == "missing") {
			t.Fatalf("%s: %v", x, err)
		}
		makeStore(t, dir)
		if err := os.WriteFile(memo(dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.leaveNothing(ctx); err != nil {
			t.Fatal(err)
		}
		entries, _ := os.ReadDir(dir)
		if missing(dir) != (x == "missing") || missing(memo(dir)) == (x == "of an earlier run") || (len(entries) > 0) != (x == "of an earlier run") {
			t.Errorf("%s: folder missing %v with %d entries, memo missing %v", x, missing(dir), len(entries), missing(memo(dir)))
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "store")} {
		if _, err := look(ctx, dir); err == nil || !strings.Contains(err.Error(), "-store") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func makeStore(t *testing.T, dir string) {
	t.Helper()
	s, err := db.Open(context.Background(), dir, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Where nobody sees a bar, lines say how much is done and how fast.
func TestProgress(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out)
	p.show(step{What: "load"})
	for done := 0; done <= 100; done += 10 {
		p.show(step{What: "read", Done: done, Total: 100})
	}
	p.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var rate float64
	if len(lines) != 3 || lines[0] != "load …" || lines[1] != "read …" {
		t.Fatalf("%q", lines)
	}
	if n, err := fmt.Sscanf(lines[2], "read: 100 of 100 tokens, %f a second", &rate); n != 1 || rate <= 0 {
		t.Errorf("%q: %v", lines[2], err)
	}
}

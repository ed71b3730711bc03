//go:build (linux && !android) || (darwin && !ios)

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
)

func TestMain(m *testing.M) {
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
	} {
		if _, err := parse(x.args, io.Discard); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, expected a word about %s", x.args, err, x.want)
		}
	}
	if _, err := parse([]string{"-nonsense"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("an unknown flag: %v", err)
	}
	o, err := parse(good, io.Discard)
	if err != nil || o.Threads < 1 {
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
	ok, err := run(append(args, "-json"), &out, io.Discard)
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

// -tokens prints the ids of the prompt, as a list, and starts nothing else.
func TestTokens(t *testing.T) {
	lib := libraries(t)
	var out strings.Builder
	ok, err := run([]string{"-lib", lib, "-model", stories, "-tokens"}, &out, io.Discard)
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
	if _, err := run(append(small, "-lib", lib, "-model", stories, "-store", store, "-prompt-file", short), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "give more text") {
		t.Errorf("a short prompt: %v", err)
	}
	r := report{PromptTokens: 20, Reason: "here is why"}
	if got := r.wrong(job{Batch: 1}); got != "nothing was reused: here is why" {
		t.Errorf("nothing reused: %q", got)
	}
	if _, err := run(append(small, "-lib", lib, "-model", stories, "-store", dir), io.Discard, io.Discard); !errors.Is(err, db.ErrNotEmpty) {
		t.Errorf("a folder of something else: %v", err)
	}
	if _, err := run(append(small, "-lib", lib, "-model", short, "-store", store), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), short) {
		t.Errorf("a model that is none: %v", err)
	}
	if _, err := run(append(small, "-lib", dir, "-model", stories, "-store", store), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder without libraries: %v", err)
	}
}

package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	mooncakePath = flag.String("mooncake", "", "the original conversation_trace.jsonl, to compare the compact copy with")
	update       = flag.Bool("update", false, "write the compact copy anew from -mooncake")
)

const compactPath = "testdata/mooncake-conversation.trace.zst"

// The compact copy holds the original, field by field. Needs the original, so it is skipped without -mooncake.
func TestCompactCopyEqualsOriginal(t *testing.T) {
	if *mooncakePath == "" {
		t.Skip("no -mooncake")
	}
	file, err := os.Open(*mooncakePath)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var original []Request
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line struct {
			Timestamp    int64    `json:"timestamp"`
			InputLength  int      `json:"input_length"`
			OutputLength int      `json:"output_length"`
			HashIDs      []uint32 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		original = append(original, Request{
			Arrived:      time.Duration(line.Timestamp) * time.Millisecond,
			PromptTokens: line.InputLength, OutputTokens: line.OutputLength, Blocks: line.HashIDs,
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if *update {
		plain, err := encode(original)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := pack(plain)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(compactPath, packed, 0o644); err != nil {
			t.Fatal(err)
		}
		mooncake = packed
	}
	loaded, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(loaded, original) {
		t.Fatal("the compact copy differs from the original")
	}
}

// What the publisher of the trace says about it, and what an unlimited cache would hit.
func TestMooncakeFacts(t *testing.T) {
	requests := mustLoad(t)
	blocks := 0
	for _, r := range requests {
		blocks += len(r.Blocks)
	}
	if len(requests) != 12031 || blocks != 288500 || Distinct(requests) != 182790 {
		t.Fatalf("%d requests, %d blocks, %d distinct", len(requests), blocks, Distinct(requests))
	}
	plain, err := encode(requests)
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := unpack(mooncake)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(plain, embedded) {
		t.Fatal("encoding what was decoded gives other bytes")
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := drawRequests(t)
		plain, err := encode(requests)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(plain)
		if err != nil {
			t.Fatal(err)
		}
		if len(requests) != len(got) {
			t.Fatalf("%d requests became %d", len(requests), len(got))
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], requests[i]) {
				t.Fatalf("request %d: %v became %v", i, requests[i], got[i])
			}
		}
	})
}

func TestWrongMagicAndWrongVersionDiffer(t *testing.T) {
	plain, err := unpack(mooncake)
	if err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int]error{0: errMagic, 4: errVersion, 6: errMalformed, 11: errMalformed} {
		bad := bytes.Clone(plain)
		bad[offset] ^= 0x40
		if _, err := decode(bad); !errors.Is(err, want) {
			t.Errorf("byte %d flipped: %v, expected %v", offset, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good, _ := encode([]Request{
		{PromptTokens: 600, Blocks: []uint32{0, 1}},
		{PromptTokens: 1500, OutputTokens: 3, Blocks: []uint32{0, 2, 3}},
	})
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, plain []byte) {
		requests, err := decode(plain)
		if err != nil {
			return
		}
		again, err := encode(requests)
		if err != nil {
			t.Fatal(err)
		}
		if reread, err := decode(again); err != nil || !reflect.DeepEqual(reread, requests) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

// drawRequests draws a small tree of prompts with ids in order of first appearance.
func drawRequests(t *rapid.T) []Request {
	var paths [][]uint32
	var now time.Duration
	next := uint32(0)
	requests := make([]Request, rapid.IntRange(0, 20).Draw(t, "requests"))
	for i := range requests {
		var blocks []uint32
		if len(paths) > 0 && rapid.Bool().Draw(t, "continue") {
			from := rapid.SampledFrom(paths).Draw(t, "from")
			blocks = append(blocks, from[:rapid.IntRange(0, len(from)).Draw(t, "shared")]...)
		}
		for range rapid.IntRange(0, 5).Draw(t, "new") {
			blocks = append(blocks, next)
			next++
		}
		if len(blocks) == 0 {
			blocks = append(blocks, next)
			next++
		}
		paths = append(paths, blocks)
		now += time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond
		requests[i] = Request{
			Arrived: now, Blocks: blocks,
			PromptTokens: len(blocks)*MooncakeBlockTokens - rapid.IntRange(0, MooncakeBlockTokens-1).Draw(t, "short"),
			OutputTokens: rapid.IntRange(0, 500).Draw(t, "output"),
		}
	}
	return requests
}

func mustLoad(t testing.TB) []Request {
	t.Helper()
	requests, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

package chat

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// inPlace are facts that are set, and a turn in the place of turn 4 of sample, before which one of them is placed and another one removed.
func inPlace() []db.SessionFrame {
	placed := []fact{{2, "gone", nil}, {5, "new", []kv.Token{11}}, {6, "name", nil}}
	o := aside{id: 4, placed: placed}
	turn := turnRecord{part: part{kind: turnPart, id: 5, view: []kv.Range{{Start: 0, End: 5}, {Start: 6, End: 7}},
		turn: turnNote{user: 1, at: time.UnixMilli(1_700_000_002_000).UTC()}}, tokens: []kv.Token{12, 13}}
	return []db.SessionFrame{{Kind: factFrame, Body: placed[1].encode()}, {Kind: factFrame, Body: placed[2].encode()}, {Kind: insteadFrame, Body: o.encode(turn.encode())}}
}

// sample is a file with a frame of each kind.
func sample() []db.SessionFrame {
	h := head{id: "a", user: "u", tokenizer: kv.HashOf("t"), fingerprint: kv.Fingerprint{1, 2}, lastTurn: 2, lastFact: 1, created: time.UnixMilli(1_700_000_000_000).UTC(), system: []kv.Token{1, 2, 3, 4, 5}}
	f := fact{1, "name", []kv.Token{7, 8}}
	g := fact{2, "gone", nil}
	old := part{kind: factPart, id: 3, name: "old", gone: true, view: []kv.Range{{Start: 0, End: 5}}}
	turn := turnRecord{
		part: part{kind: turnPart, id: 4, view: []kv.Range{{Start: 0, End: 6}}, turn: turnNote{
			user: 2, spans: []kv.Span{{Start: 0, Len: 2, Hash: kv.HashOf("image")}}, at: time.UnixMilli(1_700_000_001_000).UTC(), priority: -1,
			meta: []byte("meta"), embedding: []float32{1, -0.5}}},
		tokens: []kv.Token{10, 300, 70_000}, evicted: []TurnID{1},
	}
	return []db.SessionFrame{
		{Kind: headFrame, Body: h.encode()},
		{Kind: placedFrame, Body: encodePlaced(&old, []kv.Token{9})},
		{Kind: turnFrame, Body: turn.encode()},
		{Kind: factFrame, Body: f.encode()},
		{Kind: placeFrame, Body: []byte{1}},
		{Kind: factFrame, Body: g.encode()},
		{Kind: metaFrame, Body: []byte("title")},
	}
}

func TestFrames(t *testing.T) {
	frames := append(sample(), db.SessionFrame{Kind: rewindFrame, Body: []byte{4}})
	_, l, err := replay(Scope, frames[:7])
	if err != nil {
		t.Fatal(err)
	}
	again, m, err := replay(Scope, l.frames(must(decodeHead(frames[0].Body))(t), nil))
	if err != nil || again.id != "a" || !slices.Equal(m.tokens, l.tokens) {
		t.Errorf("written again: %v, %v, %v, want %v", again, m.tokens, err, l.tokens)
	}
	s, err := Inspect(frames)
	if err != nil || s.ID != "a" || s.User != "u" || s.Turns != 0 || !slices.Equal(s.Facts, []string{"name"}) || string(s.Meta) != "title" {
		t.Errorf("%+v, %v", s, err)
	}

	if s, err = Inspect(append(slices.Clone(frames[:7]), inPlace()...)); err != nil || s.Turns != 1 || !slices.Equal(s.Facts, []string{"new"}) {
		t.Errorf("a turn in the place of another one: %+v, %v", s, err)
	}
	frames = append(frames, inPlace()...)

	next := head{id: "a"}
	body := next.encode()
	body[0]++
	for _, x := range []struct {
		frames []db.SessionFrame
		want   error
	}{
		{nil, db.ErrCorrupt},
		{frames[1:], db.ErrCorrupt},
		{[]db.SessionFrame{frames[0], frames[0]}, db.ErrCorrupt},
		{[]db.SessionFrame{{Kind: headFrame, Body: body}}, db.ErrVersion},
		{[]db.SessionFrame{frames[0], {Kind: 99}}, db.ErrVersion},
		{[]db.SessionFrame{frames[0], {Kind: rewindFrame, Body: []byte{9}}}, db.ErrCorrupt},
		{frames, db.ErrCorrupt}, // in the place of a turn that was taken back
		{append(slices.Clone(frames[:7]), db.SessionFrame{Kind: insteadFrame, Body: []byte{4, 9}}), db.ErrCorrupt},
		{append(slices.Clone(frames[:7]), db.SessionFrame{Kind: insteadFrame, Body: append(inPlace()[2].Body, 0)}), db.ErrCorrupt},
		{[]db.SessionFrame{frames[0], {Kind: placeFrame, Body: []byte{1}}}, db.ErrCorrupt},
		{[]db.SessionFrame{frames[0], frames[2]}, db.ErrCorrupt}, // its view has a fact that is not there
		{append(slices.Clone(frames[:3]), frames[2]), db.ErrCorrupt},
		{[]db.SessionFrame{{Kind: headFrame, Body: frames[0].Body[:20]}}, db.ErrCorrupt},
		{[]db.SessionFrame{{Kind: headFrame, Body: append(slices.Clone(frames[0].Body), 0)}}, db.ErrCorrupt},
	} {
		if _, err := Inspect(x.frames); !errors.Is(err, x.want) {
			t.Errorf("%v: %v, want %v", x.frames, err, x.want)
		}
	}

	// The bytes are a format: they do not change.
	var got strings.Builder
	for _, f := range frames {
		got.WriteString(hex.EncodeToString(append([]byte{f.Kind}, f.Body...)) + "\n")
	}
	const golden = "testdata/frames.hex"
	if os.Getenv("DORMOUSE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v; frames are\n%swant\n%s", err, got.String(), want)
	}
}

func must[T any](x T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// Whatever stands in a file: an error, or a log that is written and read again the same.
func FuzzFrames(f *testing.F) {
	pack := func(frames []db.SessionFrame) (b []byte) {
		for _, x := range frames {
			b = append(b, x.Kind, byte(len(x.Body)>>8), byte(len(x.Body)))
			b = append(b, x.Body...)
		}
		return b
	}
	f.Add(pack(sample()))
	f.Add(pack(sample()[:3]))
	f.Add(pack(append(sample(), inPlace()...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var frames []db.SessionFrame
		for len(b) >= 3 {
			n := min(int(b[1])<<8|int(b[2]), len(b)-3)
			frames = append(frames, db.SessionFrame{Kind: b[0], Body: b[3 : 3+n]})
			b = b[3+n:]
		}
		h, l, err := replay(Scope, frames)
		if err != nil {
			return
		}
		p := l.prompt()
		if err := p.Validate(); err != nil {
			t.Fatalf("the log is no prompt: %v", err)
		}
		n := l.compact(h.system)
		if _, m, err := replay(Scope, n.frames(h, nil)); err != nil || !slices.Equal(m.tokens, n.tokens) || !slices.Equal(m.spans, n.spans) {
			t.Fatalf("rewritten and read again: %v", err)
		}
		if again, err := decodeHead(h.encode()); err != nil || !bytes.Equal(again.encode(), h.encode()) {
			t.Fatalf("head: %v", err)
		}
	})
}

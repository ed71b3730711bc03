package llamacpp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

// wide is a fake whose rows a matrix of 64 fits into.
func wide(rotation *[2]int) *fake {
	return &fake{layers: []fakeLayer{{width: 128}, {width: 128, windowed: true}}, window: 24, streams: 1, contextLen: 512, rotation: rotation}
}

// What a blob says of the cache's rotation decides, and not what this package would have guessed: rows that are rotated in
// different ways are of different models, and a cache that says that it is not rotated shares with one that says nothing.
func TestRotationIsWhatTheBlobSays(t *testing.T) {
	ctx := context.Background()
	store := kit.OpenStore(t)
	prompt := kv.Prompt{Tokens: make([]kv.Token, 100)}
	silent := attach(t, store, wide(nil), nil)
	kit.EvaluateAndSave(t, silent, prompt, 0, 0)
	seen := map[kv.Fingerprint]string{}
	for _, x := range []struct {
		name     string
		rotation *[2]int
		rotated  bool
	}{
		{"silent", nil, false},
		{"K 64", &[2]int{64, 0}, true},
		{"V 64", &[2]int{0, 64}, true},
		{"both 64", &[2]int{64, 64}, true},
		{"K 128", &[2]int{128, 64}, true},
	} {
		s := attach(t, store, wide(x.rotation), nil)
		if d := s.Model().Descriptor(); d.Rotated != x.rotated {
			t.Errorf("%s: rotated is %v", x.name, d.Rotated)
		}
		if other, ok := seen[s.Model().Fingerprint()]; ok {
			t.Errorf("%s and %s are one model", x.name, other)
		}
		seen[s.Model().Fingerprint()] = x.name
		got, err := s.Restore(ctx, prompt, 0)
		if err != nil || (got.Tokens > 0) != (x.rotation == nil) {
			t.Errorf("%s: restored %d tokens of another cache's: %v", x.name, got.Tokens, err)
		}
	}
	says := attach(t, store, wide(new([2]int)), nil)
	if says.Model().Fingerprint() != silent.Model().Fingerprint() {
		t.Error("a cache that says that it is not rotated is another model than one that says nothing")
	}
	if got, err := says.Restore(ctx, prompt, 0); err != nil || got.Tokens != 99 {
		t.Errorf("restored %d tokens of 99: %v", got.Tokens, err)
	}
}

// An option that contradicts the blob is refused.
func TestRotationThatContradictsTheBlob(t *testing.T) {
	for _, rotation := range []*[2]int{{0, 0}, {64, 64}} {
		for _, option := range []bool{false, true} {
			f := wide(rotation)
			o := options(f.Decode)
			o.Rotated = &option
			_, err := llamacpp.Attach(context.Background(), kit.OpenStore(t), f.library(), f.address(), o)
			if want := rotation[0] > 0 != option; want != (errors.Is(err, llamacpp.ErrRefused) && strings.Contains(err.Error(), "Options.Rotated")) {
				t.Errorf("rotation %v, Options.Rotated %v: %v", *rotation, option, err)
			}
		}
	}
}

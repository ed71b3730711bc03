package topic

import (
	"errors"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/chat"
)

// Neither case nor endings nor common words make another subject, and a message without a subject has no embedding.
func TestWords(t *testing.T) {
	a := Words("How do I bake a cake?")
	if b := Words("Baking cakes: what should I do now?"); chat.Cosine(a, b) < 0.99 || len(b) != dims {
		t.Errorf("two messages about baking cakes: %v", chat.Cosine(a, b))
	}
	if c := chat.Cosine(a, Words("My printer prints blank pages.")); c > WordsThreshold {
		t.Errorf("cakes and printers: %v", c)
	}
	for _, text := range []string{"", "   ", "?!", "And what about that?", "\xff\xfe"} {
		if v := Words(text); v != nil {
			t.Errorf("%q has the embedding %v", text, v)
		}
	}
}

func TestFollowUp(t *testing.T) {
	for text, want := range map[string]bool{
		"How long does it take?": true, "And on the server?": true, "Can they be frozen?": true, "": true,
		"How do I bake a cake?": false, "Is it dangerous to eat raw eggs?": false, "My cat has stopped eating dry food.": false,
	} {
		if got := FollowUp(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A follow-up goes on with the subject of the last turn, whatever that is; all else, and the first message, is about itself.
func TestOf(t *testing.T) {
	broken := errors.New("told to fail")
	embed := func(text string) ([]float32, error) {
		if text == "" {
			return nil, broken
		}
		return []float32{float32(len(text))}, nil
	}
	turns := []chat.TurnInfo{{Embedding: []float32{1}}, {Embedding: []float32{2}}}
	for _, x := range []struct {
		text  string
		turns []chat.TurnInfo
		want  []float32
	}{
		{"How long does it take?", turns, []float32{2}},
		{"How long does it take?", turns[:1], []float32{1}},
		{"How long does it take?", nil, []float32{22}},
		{"How long does it take?", []chat.TurnInfo{{}}, nil},
		{"My cat has stopped eating dry food.", turns, []float32{35}},
	} {
		if got, err := Of(x.text, x.turns, embed); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%q after %d turns: %v, %v, want %v", x.text, len(x.turns), got, err, x.want)
		}
	}
	if _, err := Of("", nil, embed); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

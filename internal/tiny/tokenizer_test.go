package tiny

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDecodeIsTheInverseOfEncode(t *testing.T) {
	tok := NewTokenizer()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.OneOf(
			rapid.String(),
			rapid.StringOfN(rapid.RuneFrom([]rune("the coatTHE .,\n")), -1, -1, 40),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		)).Draw(t, "text")
		text := ""
		for _, p := range parts {
			text += p
		}
		ids := tok.Encode(text)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Len() {
				t.Fatalf("id %d of %d", id, tok.Len())
			}
		}
		if got := tok.Decode(ids); got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
	})
}

// What the model writes reads as words.
func TestWordsComeFirst(t *testing.T) {
	tok := NewTokenizer()
	if tok.Words() < 1000 || tok.Words() >= tok.Len() {
		t.Fatalf("%d words of %d ids", tok.Words(), tok.Len())
	}
	for id := range int32(tok.Words()) {
		text := tok.Decode([]int32{id})
		if len(text) > 1 && text[0] != ' ' {
			t.Errorf("id %d is %q", id, text)
		}
	}
	if n := len(tok.Encode(" The kettle is on the shelf.")); n != 7 {
		t.Errorf("six words and a full stop are %d tokens", n)
	}
}

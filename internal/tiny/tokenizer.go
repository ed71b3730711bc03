package tiny

import (
	"crypto/sha256"
	_ "embed"
	"strings"
)

//go:embed words.txt
var wordList string

// Tokenizer turns text into token ids and back. Its vocabulary is, in this order:
//
//	words   " about"      what the model can write: each word with the space before it, and some punctuation
//	pieces  "about" "A"   what it can read besides: words without the space, words with a capital,
//	bytes                 and every single byte, so that any text can be read
type Tokenizer struct {
	text    []string         // by id
	id      map[string]int32 // by text
	words   int
	longest int // bytes of the longest piece
}

// NewTokenizer makes the tokenizer of the word list that comes with this package.
func NewTokenizer() *Tokenizer {
	t := &Tokenizer{id: map[string]int32{}}
	words := strings.Fields(wordList)
	for _, w := range words {
		t.add(" " + w)
	}
	for _, p := range []string{".", ",", "?", ":", ";", "\n"} {
		t.add(p)
	}
	t.words = len(t.text)
	for _, w := range words {
		capital := strings.ToUpper(w[:1]) + w[1:]
		t.add(w)
		t.add(capital)
		t.add(" " + capital)
	}
	for b := range 256 {
		t.add(string([]byte{byte(b)}))
	}
	return t
}

func (t *Tokenizer) add(text string) {
	if _, known := t.id[text]; known {
		return
	}
	t.id[text] = int32(len(t.text))
	t.text = append(t.text, text)
	t.longest = max(t.longest, len(text))
}

// Len is the number of token ids.
func (t *Tokenizer) Len() int { return len(t.text) }

// Hash is the SHA-256 of the vocabulary, by which token ids get their meaning.
func (t *Tokenizer) Hash() [32]byte { return sha256.Sum256([]byte(strings.Join(t.text, "\x00"))) }

// Words is the number of token ids that a model writes; they come first.
func (t *Tokenizer) Words() int { return t.words }

// Encode cuts the text into the longest pieces that the vocabulary has, from left to right.
func (t *Tokenizer) Encode(text string) []int32 {
	var ids []int32
	for len(text) > 0 {
		n := min(t.longest, len(text))
		for ; ; n-- { // ends at the latest with a single byte
			if id, ok := t.id[text[:n]]; ok {
				ids = append(ids, id)
				break
			}
		}
		text = text[n:]
	}
	return ids
}

// Decode is the text that the ids stand for.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(t.text[id])
	}
	return b.String()
}

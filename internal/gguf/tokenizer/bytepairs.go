package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// bytePairs cuts the text into words, writes their bytes as the characters that GPT-2 chose for them, and joins neighbours by the
// rank of their merge, the lowest first, of equals the leftmost.
func (t *Tokenizer) bytePairs(out []int32, text string, _ bool) ([]int32, error) {
	for _, w := range words([]rune(text)) {
		var parts []string
		for _, b := range []byte(w) {
			parts = append(parts, byteText[b])
		}
		for len(parts) > 1 {
			best, at := len(t.ranks), -1
			for i := range len(parts) - 1 {
				if rank, ok := t.ranks[[2]string{parts[i], parts[i+1]}]; ok && rank < best {
					best, at = rank, i
				}
			}
			if at < 0 {
				break
			}
			parts[at] += parts[at+1]
			parts = slices.Delete(parts, at+1, at+2)
		}
		for _, p := range parts {
			if id, ok := t.ids[p]; ok {
				out = append(out, id)
				continue
			}
			for _, r := range p { // what merged to no token is written as its bytes
				if id, ok := t.ids[string(r)]; ok {
					out = append(out, id)
				} else {
					return nil, fmt.Errorf("the vocabulary has no token for %q", r)
				}
			}
		}
	}
	return out, nil
}

// byteText is the character of each byte: itself where it can be printed, else one from U+0100 on.
var byteText = func() (text [256]string) {
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		text[b] = string(r)
	}
	return text
}()

// words is the pre-tokenizer "smollm" of llama.cpp: \p{N} alone, and what is between by GPT-2's
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func words(text []rune) (out []string) {
	from := 0
	for i, r := range text {
		if unicode.IsNumber(r) {
			out = append(between(out, text[from:i]), string(r))
			from = i + 1
		}
	}
	return between(out, text[from:])
}

// between cuts text without numbers.
func between(out []string, text []rune) []string {
	kind := func(i int) int {
		switch {
		case i >= len(text):
			return 0
		case unicode.IsSpace(text[i]):
			return 1
		case unicode.IsLetter(text[i]):
			return 2
		}
		return 3
	}
	for at := 0; at < len(text); {
		end := at
		if text[at] == '\'' {
			end = at + contraction(string(text[at+1:min(at+3, len(text))]))
		}
		if end == at {
			first := at
			if text[at] == ' ' {
				first++
			}
			if k := kind(first); k > 1 {
				for end = first; kind(end) == k; end++ {
				}
			} else {
				for end = at; kind(end) == 1; end++ {
				}
				if end-at > 1 && end < len(text) { // the last space goes to the word behind it
					end--
				}
			}
		}
		out = append(out, string(text[at:end]))
		at = end
	}
	return out
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd, given what follows the apostrophe; 0 if it is none.
func contraction(s string) int {
	for _, c := range []string{"s", "t", "m", "d", "re", "ve", "ll"} {
		if strings.HasPrefix(s, c) {
			return 1 + len(c)
		}
	}
	return 0
}

package topic

import (
	"hash/fnv"
	"strings"
	"unicode"
)

// dims is the length of an embedding by words. Two words of ten fall on one number once in six messages.
const dims = 256

// WordsThreshold is for chat.Topic with [Words]: the one that tells most of the labelled pairs apart, of the half that was not held out.
const WordsThreshold = 0.447

// Words is an embedding by the words of a message: how often each stands there, without those that stand in any message and without their
// endings, hashed to 256 numbers. It is nil if no word is left.
func Words(text string) []float32 {
	var v []float32
	for _, w := range split(text) {
		if common[w] {
			continue
		}
		if v == nil {
			v = make([]float32, dims)
		}
		h := fnv.New64a()
		h.Write([]byte(stem(w)))
		x := h.Sum64()
		if x>>63 == 0 { // so that two words that fall on one number are no more alike than others, in the mean
			v[x%dims]++
		} else {
			v[x%dims]--
		}
	}
	return v
}

func split(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// stem cuts off what makes "bakes", "baked" and "baking" of "bake".
func stem(w string) string {
	for _, s := range []string{"ing", "ed", "es", "s"} {
		if rest, ok := strings.CutSuffix(w, s); ok && len(rest) >= 3 {
			w = rest
			break
		}
	}
	return strings.TrimSuffix(w, "e")
}

// common are words that say nothing about the subject.
var common = set(`a about after again all also am an and any are as at back be because been before being best but by can cannot could d did do does done don down each else
	even ever every few for from further get give go good got had has have having he help her here hers him his how i if in into is it its just kind least let like ll long made
	make many may me mean more most much must my myself need no nor not now of off ok old on once one only or other our ours out over own please re really s same say see shall
	she should show so some something still such sure t take tell than thank that the their theirs them then there these they thing things think this those through to too under
	until up us use ve very want was way we well were what when where which while who whom whose why will with without would yes yet you your yours`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

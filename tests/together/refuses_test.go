package together

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/dormousekv/dormouse/tests/together/truth"
)

// The law refuses what must not happen: a put that is not found, a deletion that does not last, a ref on what is gone.
func TestLawRefuses(t *testing.T) {
	u := newUniverse(rand.New(rand.NewPCG(1, 2)), truth.Plain("law", 32))
	p := u.prompts[0]
	put, gone := call{what: "put", p: p}, call{what: "delete", p: p.Prefix(1)}
	look := call{what: "match", p: p, limit: len(p.Tokens)}
	n, blocks := len(p.Tokens), len(u.paths[0])
	ref := answer{all: [refNames]refAt{{tokens: n, meta: 1}}}
	type step struct {
		call
		answer
	}
	for i, steps := range [][]step{ // of each, only the last step is wrong
		{{put, answer{n: n}}, {look, answer{}}},
		{{look, answer{n: n}}},
		{{put, answer{n: n}}, {gone, answer{n: blocks}}, {look, answer{n: n}}},
		{{put, answer{n: n}}, {gone, answer{n: blocks - 1}}},
		{{put, answer{n: n}}, {gone, answer{n: blocks}}, {call{what: "put", p: p, from: 1}, answer{n: n}}},
		{{call{what: "set ref", p: p, meta: 1}, answer{}}},
		{{put, answer{n: n}}, {call{what: "set ref", p: p, meta: 1}, answer{}}, {gone, answer{n: blocks}}},
		{{put, answer{n: n}}, {call{what: "set ref", p: p, meta: 1}, answer{}}, {gone, answer{n: blocks, refs: 1}}, {call{what: "ref"}, ref}},
		{{call{what: "retire"}, answer{}}, {put, answer{n: n}}},
	} {
		for last := range steps {
			var ops []porcupine.Operation
			for j, s := range steps[:last+1] {
				ops = append(ops, porcupine.Operation{Input: s.call, Output: s.answer, Call: int64(10 * j), Return: int64(10*j + 5)})
			}
			if got := porcupine.CheckOperations(u.spec(), ops); got != (last < len(steps)-1) {
				t.Errorf("case %d, %d steps: the law allows it: %t", i, last+1, got)
			}
		}
	}
}

package llamacpp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/dormousekv/dormouse/kv"
)

// inOneOrder returns adapters in an order of their own, without those of scale 0: llama.cpp keeps neither the caller's order nor these.
func inOneOrder(adapters []kv.Adapter) []kv.Adapter {
	out := slices.DeleteFunc(slices.Clone(adapters), func(a kv.Adapter) bool { return a.Scale == 0 })
	slices.SortStableFunc(out, func(a, b kv.Adapter) int {
		if c := bytes.Compare(a.Hash[:], b.Hash[:]); c != 0 {
			return c
		}
		return cmp.Compare(a.Scale, b.Scale)
	})
	return out
}

// ordered is a prompt with its adapters in one order.
func ordered(prompt kv.Prompt) kv.Prompt {
	if len(prompt.Adapters) > 0 {
		prompt.Adapters = inOneOrder(prompt.Adapters)
	}
	return prompt
}

// adaptersKey names a set of adapters.
func adaptersKey(adapters []kv.Adapter) string {
	if len(adapters) == 0 {
		return ""
	}
	var all []string
	for _, a := range adapters {
		all = append(all, fmt.Sprintf("%x %08x", a.Hash, math.Float32bits(a.Scale)))
	}
	sort.Strings(all)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(all, "\n"))))[:32]
}

// until is the prompt up to position n, with the span that n may lie in.
func until(p kv.Prompt, n int) kv.Prompt {
	p.Tokens = p.Tokens[:n]
	for i, s := range p.Spans {
		if s.Start >= n {
			p.Spans = p.Spans[:i]
			break
		}
	}
	return p
}

// parting is the first position, before n, at which two prompts part; -1 if they do not. What adapters, spans and tokens
// say goes into rows, whose data it is does not.
func parting(a, b kv.Prompt, n int) int {
	if n == 0 {
		return -1
	}
	if !slices.Equal(a.Adapters, b.Adapters) {
		return 0
	}
	at := n
	for i := range n {
		if a.Tokens[i] != b.Tokens[i] {
			at = i
			break
		}
	}
	for i := range max(len(a.Spans), len(b.Spans)) {
		switch {
		case i >= len(a.Spans):
			at = min(at, b.Spans[i].Start)
		case i >= len(b.Spans):
			at = min(at, a.Spans[i].Start)
		case a.Spans[i] == b.Spans[i]:
			continue
		default:
			at = min(at, a.Spans[i].Start, b.Spans[i].Start)
		}
	}
	if at == n {
		return -1
	}
	return at
}

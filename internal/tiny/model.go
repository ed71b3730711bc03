package tiny

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"math/rand/v2"
)

// Config is the shape of a model. All widths are multiples of 8.
type Config struct {
	Vocabulary int // token ids that it reads
	Words      int // token ids that it writes: the first ones
	Layers     int
	Width      int // of the residual stream
	Heads      int // query heads
	KVHeads    int // K and V heads, each shared by Heads/KVHeads query heads
	HeadDim    int
	Hidden     int // inner width of the feed-forward network
	RoPEBase   float32
}

// Default is a model of 9.3 million weights: a thousand tokens keep two processors busy for seconds.
func Default(t *Tokenizer) Config {
	return Config{
		Vocabulary: t.Len(), Words: t.Words(), Layers: 8, Width: 256,
		Heads: 8, KVHeads: 4, HeadDim: 64, Hidden: 768, RoPEBase: 10000,
	}
}

// KVWidth is the number of values in a row of K or V.
func (c Config) KVWidth() int { return c.KVHeads * c.HeadDim }

// Validate says which field is wrong.
func (c Config) Validate() error {
	for _, f := range []struct {
		name     string
		n, least int
	}{
		{"Vocabulary", c.Vocabulary, 1}, {"Words", c.Words, 1}, {"Layers", c.Layers, 1}, {"Width", c.Width, 8},
		{"Heads", c.Heads, 1}, {"KVHeads", c.KVHeads, 1}, {"HeadDim", c.HeadDim, 8}, {"Hidden", c.Hidden, 8},
	} {
		if f.n < f.least || f.least == 8 && f.n%8 != 0 {
			return fmt.Errorf("tiny: %s is %d, want a multiple of %d", f.name, f.n, f.least)
		}
	}
	if c.Words > c.Vocabulary {
		return fmt.Errorf("tiny: %d words of a vocabulary of %d", c.Words, c.Vocabulary)
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("tiny: %d heads cannot share %d KV heads", c.Heads, c.KVHeads)
	}
	return nil
}

// matrix is [out][in], row after row: y[o] = sum of w[o][i] * x[i].
type matrix struct {
	out, in int
	w       []float32
}

func (m matrix) row(o int) []float32 { return m.w[o*m.in : (o+1)*m.in] }

type layer struct {
	q, k, v, o     matrix
	gate, up, down matrix
}

// Model is a transformer with its weights. It is read-only once made, and safe for several goroutines.
type Model struct {
	Config
	embedding matrix
	layers    []layer
	head      matrix
	hash      [32]byte
	frequency []float64 // of the rotation of each pair of a head's dimensions
}

// New makes the model that belongs to a seed; the same seed gives the same weights everywhere.
func New(c Config, seed uint64) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := generator{rng: rand.New(rand.NewPCG(seed, 0x7469_6e79)), sum: sha256.New()}
	m := &Model{Config: c, embedding: g.matrix(c.Vocabulary, c.Width, embeddingGain*math.Sqrt(float64(c.Width)))}
	for range c.Layers {
		m.layers = append(m.layers, layer{
			q:    g.matrix(c.Heads*c.HeadDim, c.Width, queryGain),
			k:    g.matrix(c.KVWidth(), c.Width, 1),
			v:    g.matrix(c.KVWidth(), c.Width, 1),
			o:    g.matrix(c.Width, c.Heads*c.HeadDim, attentionGain),
			gate: g.matrix(c.Hidden, c.Width, 1),
			up:   g.matrix(c.Hidden, c.Width, 1),
			down: g.matrix(c.Width, c.Hidden, feedForwardGain),
		})
	}
	m.head = g.matrix(c.Words, c.Width, 1)
	g.sum.Sum(m.hash[:0])
	for i := range c.HeadDim / 2 {
		m.frequency = append(m.frequency, math.Pow(float64(c.RoPEBase), -2*float64(i)/float64(c.HeadDim)))
	}
	return m, nil
}

// Hash is the SHA-256 of all weights: what a KV cache of this model must be filed under.
func (m *Model) Hash() [32]byte { return m.hash }

// Gains say how strong each part of a random network is. With these a query looks at a handful of positions rather than
// at all of them alike, and what the layers add outweighs the token that went in. So the next word depends on the rows
// in the cache, and the text does not fall into a loop, though always the likeliest word is taken.
const (
	embeddingGain   = 1
	queryGain       = 2
	attentionGain   = 1
	feedForwardGain = 1
)

// generator draws weights and hashes them as it goes.
type generator struct {
	rng *rand.Rand
	sum hash.Hash
	buf []byte
}

// matrix draws weights of variance gain^2/in, so that an output is as large as gain times an input. They are uniform
// rather than normal: drawn from bits alone, they are the same on every processor.
func (g *generator) matrix(out, in int, gain float64) matrix {
	m := matrix{out, in, make([]float32, out*in)}
	scale := float32(gain * math.Sqrt(3/float64(in)) / (1 << 23))
	for i := 0; i < len(m.w); i += 2 { // in is even
		bits := g.rng.Uint64()
		m.w[i] = float32(int32(bits)>>8) * scale
		m.w[i+1] = float32(int32(bits>>32)>>8) * scale
	}
	for rows := m.w; len(rows) > 0; rows = rows[in:] {
		g.buf = g.buf[:0]
		for _, w := range rows[:in] {
			g.buf = binary.LittleEndian.AppendUint32(g.buf, math.Float32bits(w))
		}
		g.sum.Write(g.buf)
	}
	return m
}

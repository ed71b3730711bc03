package tiny

import "math"

// batchTokens is how many tokens go through the layers together. Any number gives the same rows.
const batchTokens = 64

// Forward computes the tokens at the positions from, from+1, …: it writes their rows into c and returns the logits of
// the last one, the score of every word to come next. The rows of the positions before from must be in c.
func (m *Model) Forward(c *Cache, from int, tokens []int32) []float32 {
	var last []float32
	for len(tokens) > 0 {
		n := min(batchTokens, len(tokens))
		x := m.embed(tokens[:n])
		for i := range m.layers {
			m.attend(&m.layers[i], x, c, i, from)
			m.feedForward(&m.layers[i], x)
		}
		last = x.row(n - 1)
		from, tokens = from+n, tokens[n:]
	}
	x := batch{1, m.Width, last}
	normalize(x, x)
	logits := newBatch(1, m.Words)
	multiply(logits, x, m.head)
	return logits.v
}

func (m *Model) embed(tokens []int32) batch {
	x := newBatch(len(tokens), m.Width)
	for i, t := range tokens {
		copy(x.row(i), m.embedding.row(int(t)))
	}
	return x
}

// attend adds to x what each token finds at its own position and at those before it.
func (m *Model) attend(l *layer, x batch, c *Cache, layer, from int) {
	in := newBatch(x.rows, m.Width)
	normalize(in, x)
	q := newBatch(x.rows, m.Heads*m.HeadDim)
	k, v := newBatch(x.rows, m.KVWidth()), newBatch(x.rows, m.KVWidth())
	multiply(q, in, l.q)
	multiply(k, in, l.k)
	multiply(v, in, l.v)
	m.rotate(q, from)
	m.rotate(k, from)
	for i := range x.rows {
		c.store(c.K[layer], from+i, k.row(i))
		c.store(c.V[layer], from+i, v.row(i))
	}

	found := newBatch(x.rows, m.Heads*m.HeadDim)
	parallel(m.KVHeads, func(kvHead int) {
		d := m.HeadDim
		keys := make([]float32, (from+x.rows)*d)
		values := make([]float32, (from+x.rows)*d)
		c.load(keys, c.K[layer], from+x.rows, kvHead, d)
		c.load(values, c.V[layer], from+x.rows, kvHead, d)
		scores := make([]float32, from+x.rows)
		group := m.Heads / m.KVHeads
		for i := range x.rows {
			for h := kvHead * group; h < (kvHead+1)*group; h++ {
				query, s := q.row(i)[h*d:(h+1)*d], scores[:from+i+1]
				for p := range s {
					s[p] = dot(query, keys[p*d:(p+1)*d]) / float32(math.Sqrt(float64(d)))
				}
				softmax(s)
				sum := found.row(i)[h*d : (h+1)*d]
				for p, weight := range s {
					addScaled(sum, values[p*d:(p+1)*d], weight)
				}
			}
		}
	})
	add(x, found, l.o)
}

// feedForward adds to x the SwiGLU network: down(silu(gate(x)) * up(x)).
func (m *Model) feedForward(l *layer, x batch) {
	in := newBatch(x.rows, m.Width)
	normalize(in, x)
	gate, up := newBatch(x.rows, m.Hidden), newBatch(x.rows, m.Hidden)
	multiply(gate, in, l.gate)
	multiply(up, in, l.up)
	for i, g := range gate.v {
		up.v[i] *= g / float32(1+math.Exp(-float64(g)))
	}
	add(x, up, l.down)
}

// add adds y W^T to x.
func add(x, y batch, w matrix) {
	out := newBatch(x.rows, x.width)
	multiply(out, y, w)
	for i, v := range out.v {
		x.v[i] += v
	}
}

// rotate applies RoPE: dimensions i and i + d/2 of each head turn by position x frequency[i] (the "neox" pairing).
func (m *Model) rotate(b batch, from int) {
	half := m.HeadDim / 2
	for i := range b.rows {
		for f, frequency := range m.frequency {
			sin64, cos64 := math.Sincos(float64(from+i) * frequency)
			sin, cos := float32(sin64), float32(cos64)
			for h := 0; h < b.width; h += m.HeadDim {
				head := b.row(i)[h : h+m.HeadDim]
				re, im := head[f], head[f+half]
				head[f] = float32(re*cos) - float32(im*sin)
				head[f+half] = float32(re*sin) + float32(im*cos)
			}
		}
	}
}

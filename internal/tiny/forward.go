package tiny

import "math"

// batchTokens is how many tokens go through the layers together. Any number gives the same rows.
const batchTokens = 64

// Forward computes the tokens at the positions from, from+1, …: it writes their rows into c and returns the logits of
// the last one, the score of every word to come next. The rows of the positions before from must be in c.
func (m *Model) Forward(c *Cache, from int, tokens []int32) []float32 {
	all := NewVisible(from + len(tokens))
	for pos := range from + len(tokens) {
		all.Set(pos, pos)
	}
	steps := make([]Step, len(tokens))
	for i, t := range tokens {
		steps[i] = Step{Token: t, Pos: from + i, Row: from + i, Sees: all, Logits: i == len(tokens)-1}
	}
	return m.Decode(c, steps)[len(tokens)-1]
}

// Step is one token to compute.
type Step struct {
	Token  int32
	Pos    int      // which RoPE turns it by
	Row    int      // of the cache, where its K and V go
	Sees   *Visible // what it attends to: the positions up to its own, which is one of them
	Logits bool     // they are wanted
}

// Decode computes steps, of any number of sequences: it writes their rows into c and returns, of each step that wants them, the logits. Steps
// that share a Visible are in order of position.
func (m *Model) Decode(c *Cache, steps []Step) [][]float32 {
	logits := make([][]float32, 0, len(steps))
	for len(steps) > 0 {
		n := min(batchTokens, len(steps))
		now := steps[:n]
		x := m.embed(now)
		for i := range m.layers {
			m.attend(&m.layers[i], x, c, i, now)
			m.feedForward(&m.layers[i], x)
		}
		for i, s := range now {
			if !s.Logits {
				logits = append(logits, nil)
				continue
			}
			last := batch{1, m.Width, x.row(i)}
			normalize(last, last)
			scores := newBatch(1, m.Words)
			multiply(scores, last, m.head)
			logits = append(logits, scores.v)
		}
		steps = steps[n:]
	}
	return logits
}

func (m *Model) embed(steps []Step) batch {
	x := newBatch(len(steps), m.Width)
	for i, s := range steps {
		copy(x.row(i), m.embedding.row(int(s.Token)))
	}
	return x
}

// attend adds to x what each token finds at its own position and at those before it.
func (m *Model) attend(l *layer, x batch, c *Cache, layer int, steps []Step) {
	in := newBatch(x.rows, m.Width)
	normalize(in, x)
	q := newBatch(x.rows, m.Heads*m.HeadDim)
	k, v := newBatch(x.rows, m.KVWidth()), newBatch(x.rows, m.KVWidth())
	multiply(q, in, l.q)
	multiply(k, in, l.k)
	multiply(v, in, l.v)
	m.rotate(q, steps)
	m.rotate(k, steps)
	for i, s := range steps {
		c.store(c.K[layer], s.Row, k.row(i))
		c.store(c.V[layer], s.Row, v.row(i))
	}
	found := newBatch(x.rows, m.Heads*m.HeadDim)
	sequences := together(steps)
	parallel(m.KVHeads, func(kvHead int) {
		for _, of := range sequences {
			m.look(c, layer, kvHead, steps, of, q, found)
		}
	})
	add(x, found, l.o)
}

// together are the indexes of the steps that see the same rows.
func together(steps []Step) [][]int {
	var out [][]int
	at := map[*Visible]int{}
	for i, s := range steps {
		j, known := at[s.Sees]
		if !known {
			j = len(out)
			at[s.Sees], out = j, append(out, nil)
		}
		out[j] = append(out[j], i)
	}
	return out
}

// look is the attention of one KV head, for steps of one sequence. Each row is read once, where it lies. The order of the sums is that of
// the positions, wherever the rows are.
func (m *Model) look(c *Cache, layer, kvHead int, steps []Step, of []int, q, found batch) {
	d, group := m.HeadDim, m.Heads/m.KVHeads
	last := steps[of[len(of)-1]]
	sees := last.Sees
	rows, until := sees.before(last.Pos+1), make([]int, len(of)) // how many of them each step sees
	for i, step := range of {
		until[i] = sees.count(steps[step].Pos + 1)
	}
	scores := make([]float32, len(of)*group*len(rows))
	score := func(i, h int) []float32 { return scores[(i*group+h)*len(rows):][:until[i]] }
	width := float32(math.Sqrt(float64(d)))
	values := make([]float32, d)
	first := 0 // steps before this one do not see the row
	for p, row := range rows {
		c.load(values, c.K[layer], int(row), kvHead)
		for ; until[first] <= p; first++ {
		}
		for i := first; i < len(of); i++ {
			for h := range group {
				query := q.row(of[i])[(kvHead*group+h)*d:][:d]
				score(i, h)[p] = dot(query, values) / width
			}
		}
	}
	for i := range of {
		for h := range group {
			softmax(score(i, h))
		}
	}
	first = 0
	for p, row := range rows {
		c.load(values, c.V[layer], int(row), kvHead)
		for ; until[first] <= p; first++ {
		}
		for i := first; i < len(of); i++ {
			for h := range group {
				addScaled(found.row(of[i])[(kvHead*group+h)*d:][:d], values, score(i, h)[p])
			}
		}
	}
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
func (m *Model) rotate(b batch, steps []Step) {
	half := m.HeadDim / 2
	for i, s := range steps {
		for f, frequency := range m.frequency {
			sin64, cos64 := math.Sincos(float64(s.Pos) * frequency)
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

package logits

import (
	"fmt"
	"math"
)

// Likeness is how close the predictions of one run are to those of another, over the same tokens.
type Likeness struct {
	Tokens   int
	SameTop  int     // tokens after which both find the same one likeliest
	SameBits int     // tokens after which all logits are the same to the last bit
	MeanKL   float64 // nats, over the whole vocabulary
	WorstKL  float64
	Spread   float64 // largest difference of two logits, of the distance between the largest and the smallest
}

// Agreement is the share of tokens after which both find the same one likeliest.
func (l Likeness) Agreement() float64 { return float64(l.SameTop) / float64(l.Tokens) }

func (l Likeness) String() string {
	return fmt.Sprintf("top-1 agreement %.2f %% (%d of %d), KL mean %.6f, worst %.6f nats, logits differ by at most %.2g of their spread, %d of %d the same to the last bit",
		100*l.Agreement(), l.SameTop, l.Tokens, l.MeanKL, l.WorstKL, l.Spread, l.SameBits, l.Tokens)
}

// Compare holds the logits after each token against those that are wanted. Both have as many tokens, and as many logits each.
func Compare(want, got [][]float32) Likeness {
	l := Likeness{Tokens: len(want)}
	for i := range want {
		d := Difference(want[i], got[i])
		if d == 0 { // then the divergence is 0, too
			l.SameTop++
			l.SameBits++
			continue
		}
		if Best(want[i]) == Best(got[i]) {
			l.SameTop++
		}
		kl := Divergence(want[i], got[i])
		l.Spread, l.WorstKL = max(l.Spread, d), max(l.WorstKL, kl)
		l.MeanKL += kl / float64(len(want))
	}
	return l
}

// Divergence is KL(p || q) of the predictions that logits are, in nats.
func Divergence(p, q []float32) float64 {
	highP, highQ := float64(p[Best(p)]), float64(q[Best(q)])
	var sumP, sumQ, apart float64 // of exponentials, and of what p's are times how far the two are apart
	for i := range p {
		a, b := float64(p[i])-highP, float64(q[i])-highQ
		e := math.Exp(a)
		sumP, sumQ, apart = sumP+e, sumQ+math.Exp(b), apart+e*(a-b)
	}
	return apart/sumP - math.Log(sumP) + math.Log(sumQ)
}

// Best is the index of the largest logit, the first of several.
func Best(x []float32) int {
	at := 0
	for i := range x {
		if x[i] > x[at] {
			at = i
		}
	}
	return at
}

// Difference is the largest difference between two logits of the same index, as a part of the spread of those that are wanted.
func Difference(want, got []float32) float64 {
	low, high, most := math.Inf(1), math.Inf(-1), 0.0
	for i := range want {
		w := float64(want[i])
		low, high = min(low, w), max(high, w)
		d := math.Abs(w - float64(got[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		most = max(most, d)
	}
	if most == 0 {
		return 0
	}
	return most / (high - low)
}

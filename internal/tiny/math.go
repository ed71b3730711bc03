package tiny

import (
	"math"
	"runtime"
	"sync"
)

// Sums run in one order, and products are converted before they are added: Go may not fuse such a pair into one
// instruction, so a row has the same bits wherever it is computed.

// dot is the sum of a[i]*b[i], in eight interleaved parts. The lengths are equal and multiples of 8.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(a) >= 8 && len(b) >= 8 {
		s0 += float32(a[0] * b[0])
		s1 += float32(a[1] * b[1])
		s2 += float32(a[2] * b[2])
		s3 += float32(a[3] * b[3])
		s4 += float32(a[4] * b[4])
		s5 += float32(a[5] * b[5])
		s6 += float32(a[6] * b[6])
		s7 += float32(a[7] * b[7])
		a, b = a[8:], b[8:]
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}

// addScaled adds x*scale to sum.
func addScaled(sum, x []float32, scale float32) {
	x = x[:len(sum)]
	for i := range sum {
		sum[i] += float32(x[i] * scale)
	}
}

// batch is some rows of one width, one for each token.
type batch struct {
	rows, width int
	v           []float32
}

func newBatch(rows, width int) batch { return batch{rows, width, make([]float32, rows*width)} }

func (b batch) row(i int) []float32 { return b.v[i*b.width : (i+1)*b.width] }

// multiply sets y = x W^T. Each weight row is read once for all tokens.
func multiply(y, x batch, w matrix) {
	parallel(w.out, func(o int) {
		row := w.row(o)
		for i := range x.rows {
			y.v[i*y.width+o] = dot(row, x.row(i))
		}
	})
}

// normalize sets y to x divided by its root mean square, row by row.
func normalize(y, x batch) {
	for i := range x.rows {
		in, out := x.row(i), y.row(i)
		scale := float32(1 / math.Sqrt(float64(dot(in, in))/float64(len(in))+1e-6))
		for j, v := range in {
			out[j] = v * scale
		}
	}
}

// softmax turns scores into weights that sum to one.
func softmax(s []float32) {
	top := s[0]
	for _, v := range s {
		top = max(top, v)
	}
	var sum float32
	for i, v := range s {
		s[i] = float32(math.Exp(float64(v - top)))
		sum += s[i]
	}
	for i := range s {
		s[i] /= sum
	}
}

// parallel calls do for 0 to n-1, on all processors. Each call writes what no other one reads, so the order is free.
func parallel(n int, do func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w * n / workers; i < (w+1)*n/workers; i++ {
				do(i)
			}
		})
	}
	wg.Wait()
}

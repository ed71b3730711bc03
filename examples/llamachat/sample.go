//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/kv"
)

// topTokens is how many tokens a draw chooses among.
const topTokens = 40

// sampler draws tokens at a temperature; 0 takes the likeliest one. The same two seeds give the same draws.
func sampler(temperature float64, seed, turn uint64) chat.Sampler {
	if temperature == 0 {
		return chat.Greedy
	}
	draw := rand.New(rand.NewPCG(seed, turn))
	return func(scores []float32) kv.Token {
		top := likeliest(scores, topTokens)
		weights, sum := make([]float64, len(top)), 0.0
		for i, t := range top {
			weights[i] = math.Exp(float64(scores[t]-scores[top[0]]) / temperature)
			sum += weights[i]
		}
		x := draw.Float64() * sum
		for i, w := range weights {
			if x -= w; x < 0 {
				return top[i]
			}
		}
		return top[0]
	}
}

// likeliest are the n tokens with the highest scores, the highest first.
func likeliest(scores []float32, n int) []kv.Token {
	var top []kv.Token
	for i, s := range scores {
		if len(top) == n && s <= scores[top[n-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, s, func(t kv.Token, s float32) int {
			if scores[t] == s {
				return -1 // the first one of equals stays before
			}
			return cmp.Compare(s, scores[t])
		})
		top = slices.Insert(top, at, kv.Token(i))[:min(n, len(top)+1)]
	}
	return top
}

package main

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// natural compares two names as people sort them: "turn 9" is before "turn 10", and "Gemma 270M" before "Gemma 1B".
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		var c int
		if p, q := number(x), number(y); p > 0 && q > 0 {
			c = cmp.Or(cmp.Compare(value(x[:p]), value(y[:q])), strings.Compare(x[:p], y[:q]))
			x, y = x[p:], y[q:]
		} else {
			c = cmp.Compare(x[0], y[0])
			x, y = x[1:], y[1:]
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// number is how many bytes of s are a number that s begins with: digits, or a size such as 1.5B.
func number(s string) int {
	digits := func(from int) (n int) {
		for n = from; n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
		}
		return n
	}
	n := digits(0)
	if n == 0 {
		return 0
	}
	end := n
	if end+1 < len(s) && s[end] == '.' {
		if f := digits(end + 1); f > end+1 {
			end = f
		}
	}
	if end < len(s) && unit(s[end]) > 1 && (end+1 == len(s) || !letter(s[end+1])) {
		return end + 1
	}
	return n // of 1.10 the points part numbers
}

// value is what a number says.
func value(s string) float64 {
	by := unit(s[len(s)-1])
	if by > 1 {
		s = s[:len(s)-1]
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.Inf(1) // too many digits
	}
	return v * by
}

// unit is what a letter behind a number multiplies it by, as in 270M and 1B; 1 for any other byte.
func unit(b byte) float64 {
	switch b | 0x20 {
	case 'k':
		return 1e3
	case 'm':
		return 1e6
	case 'b', 'g':
		return 1e9
	case 't':
		return 1e12
	}
	return 1
}

func letter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' }

package main

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// natural compares two names as people sort them: "turn 9" is before "turn 10", "Gemma 270M" before "Gemma 1B", and "512 KiB" before "2 MiB".
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		p, v := number(x)
		q, w := number(y)
		if p == 0 || q == 0 {
			p, q, v, w = 1, 1, float64(x[0]), float64(y[0])
		}
		if c := cmp.Or(cmp.Compare(v, w), strings.Compare(x[:p], y[:q])); c != 0 {
			return c
		}
		x, y = x[p:], y[q:]
	}
	return cmp.Compare(len(x), len(y))
}

// A size is a number with a unit: of parameters, as in 270M and 1.5B, or of bytes, as in 512 KiB and 8GB. Other numbers are whole: of 1.10 the points
// part two.
var (
	sizeAt  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(?: ?([kKmMgGtT])(i?)[bB]|([kKmMbBgGtT]))(?:[^a-zA-Z0-9]|$)`)
	wholeAt = regexp.MustCompile(`^[0-9]+`)
)

// number is the number that s begins with: how many bytes of s it is, and what it says; 0 bytes if there is none.
func number(s string) (n int, value float64) {
	if m := sizeAt.FindStringSubmatchIndex(s); m != nil {
		at, step := 8, 1000.0 // where the unit is among the groups
		if m[4] >= 0 {
			at = 4
			if m[7] > m[6] {
				step = 1024
			}
			n = m[7] + 1 // the B
		} else {
			n = m[9]
		}
		power := map[byte]int{'k': 1, 'm': 2, 'b': 3, 'g': 3, 't': 4}[s[m[at]]|0x20]
		value, _ = strconv.ParseFloat(s[m[2]:m[3]], 64)
		for range power {
			value *= step
		}
		return n, value
	}
	digits := wholeAt.FindString(s)
	value, _ = strconv.ParseFloat(digits, 64) // infinite if there are too many digits
	return len(digits), value
}

package main

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// problem notes damage of a file.
func (inv *inventory) problem(file, text string) {
	inv.Problems = append(inv.Problems, text)
	inv.places = append(inv.places, place{file, text})
}

// unreadable are the records that inspect could not read, by what it was told. Those of a segment that is missing have one reason.
type unreadable struct {
	texts  []string
	byText map[string]*unreadRecords
}

type unreadRecords struct {
	file    string
	records int
	blocks  map[kv.Key]int // their tokens
}

func (u *unreadable) add(b db.Block, err error) {
	text := err.Error()
	r := u.byText[text]
	if r == nil {
		r = &unreadRecords{blocks: map[kv.Key]int{}}
		var bad *db.CorruptError
		if errors.As(err, &bad) {
			r.file = bad.File
		}
		if u.byText == nil {
			u.byText = map[string]*unreadRecords{}
		}
		u.byText[text] = r
		u.texts = append(u.texts, text)
	}
	r.records++
	r.blocks[b.Key] = b.Tokens
}

// report makes one problem of each reason.
func (u *unreadable) report(inv *inventory) {
	for _, text := range u.texts {
		r, tokens := u.byText[text], 0
		for _, n := range r.blocks {
			tokens += n
		}
		inv.problem(r.file, fmt.Sprintf("%s: %s, of %s", text, count(r.records, "record"), count(tokens, "token")))
	}
}

package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/quant"
)

// mode is how a store is opened and worked, for all of its lives.
type mode struct {
	Power       bool          // db.Power
	Checkpoints time.Duration // between them; negative: none but those of a full log, and no compactions either
	Small       bool          // a budget or a number of blocks that forces evictions
	MaxBlocks   int64

	Budget       int64
	SegmentBytes int64
	BlockTokens  int
	Codec        quant.Codec
	Compression  quant.Compression
	CostAware    bool // policy
}

// kinds are the modes that take turns; the seed decides the rest.
var kinds = []mode{
	{Checkpoints: 8 * time.Millisecond},
	{Checkpoints: -1},
	{Power: true, Checkpoints: 20 * time.Millisecond},
	{Checkpoints: 60 * time.Millisecond, Small: true},
	{Checkpoints: 100 * time.Millisecond},
	{Power: true, Checkpoints: -1},
	{Checkpoints: 8 * time.Millisecond, Small: true},
	{Power: true, Checkpoints: 60 * time.Millisecond, Small: true},
}

// newMode is the i-th mode of a run.
func newMode(i int, r *rand.Rand) mode { return kinds[i%len(kinds)].with(r) }

// modesOf are the modes of a run, one after the other: those of the kinds whose name contains only.
func modesOf(only string) (func(i int, r *rand.Rand) mode, error) {
	var chosen []mode
	for _, m := range kinds {
		if strings.Contains(m.name(), only) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mode has %q in its name", only)
	}
	return func(i int, r *rand.Rand) mode { return chosen[i%len(chosen)].with(r) }, nil
}

// with decides at random what a kind leaves open.
func (m mode) with(r *rand.Rand) mode {
	m.Budget = 256 << 20
	m.SegmentBytes = 64 << 10 << r.IntN(4)
	m.BlockTokens = []int{16, 16, 32, 64}[r.IntN(4)]
	m.Codec = []quant.Codec{0, quant.Raw, quant.Q8_0, quant.ByteSplit}[r.IntN(4)]
	m.Compression = []quant.Compression{quant.None, quant.None, quant.Zstd, quant.S2}[r.IntN(4)]
	m.CostAware = r.IntN(3) == 0
	if m.Small {
		m.Budget, m.SegmentBytes = 4<<20+r.Int64N(4<<20), 64<<10<<r.IntN(2)
		if r.IntN(4) == 0 {
			m.MaxBlocks = 150
		}
	}
	return m
}

func (m mode) options() db.Options {
	o := db.Options{
		Budget: m.Budget, MaxBlocks: m.MaxBlocks, MinFree: -1, CheckpointInterval: m.Checkpoints, SegmentBytes: m.SegmentBytes,
		Codec: m.Codec, Compression: m.Compression, Logger: slog.New(slog.DiscardHandler),
	}
	if m.Power {
		o.Durability = db.Power
	}
	if m.CostAware {
		o.Policy = db.CostAware()
	}
	return o
}

func (m mode) String() string {
	durability, budget, every := db.Process, "large", "never"
	if m.Power {
		durability = db.Power
	}
	if m.Small {
		budget = fmt.Sprintf("%d KiB", m.Budget>>10)
	}
	if m.MaxBlocks > 0 {
		budget += fmt.Sprintf(" %d blocks", m.MaxBlocks)
	}
	if m.Checkpoints > 0 {
		every = m.Checkpoints.String()
	}
	return fmt.Sprintf("%s, budget %s, checkpoint %s, blocks of %d, segments of %d KiB, codec %d, compression %s",
		durability, budget, every, m.BlockTokens, m.SegmentBytes>>10, m.Codec, m.Compression)
}

// name is the mode's kind, for the report.
func (m mode) name() string {
	s := "process"
	if m.Power {
		s = "power"
	}
	if m.Small {
		s += " small"
	}
	if m.Checkpoints < 0 {
		return s + " no checkpoints"
	}
	return s + " checkpoints " + m.Checkpoints.String()
}

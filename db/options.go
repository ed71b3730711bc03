package db

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/quant"
)

// Durability says what survives a power cut. In every mode a killed process loses nothing that was acknowledged, and deletions that
// returned hold, whatever is cut.
type Durability uint8

const (
	// Process survives a kill; a power cut may take the puts since the last checkpoint or Sync. A put is acknowledged when it is in the
	// page cache.
	Process Durability = iota
	// Power survives a kill and a power cut: nothing that was acknowledged is lost. A put is acknowledged when it is on the disk;
	// concurrent puts share one sync.
	Power
)

func (d Durability) String() string {
	if d == Power {
		return "power"
	}
	return "process"
}

// Options configure a store. The zero value is a good start.
type Options struct {
	// Budget bounds the allocated bytes of all files of the store. 0: 4 GiB.
	Budget int64
	// MinFree is what the store leaves free on its file system. 0: 256 MiB, or a sixteenth of a file system of less than 4 GiB when Open looks at
	// it; negative: nothing for others, only what its own next checkpoint needs.
	MinFree int64
	// MaxBlocks bounds the number of stored blocks. 0: no bound but the budget.
	MaxBlocks int64
	// HighWater and LowWater are shares of what pinned refs leave of the budget, and of MaxBlocks: when all other live records take more than the
	// high one, blocks are evicted in the background down to the low one. 0: 0.70 and 0.60. Both at 1 evict only what a put needs.
	HighWater, LowWater float64
	// Policy orders eviction. Nil: LRU.
	Policy Policy

	Durability Durability
	// CheckpointInterval is the time between checkpoints while there is something to write, 1 ms or more. 0: 5 s; negative: only when
	// CheckpointBytes is reached or Checkpoint is called.
	CheckpointInterval time.Duration
	// CheckpointBytes is the growth of segments and log after which a checkpoint starts. 0: 64 MiB, or an eighth of the
	// budget if that is less. So much the next Open reads and checks after a process that was killed.
	CheckpointBytes int64

	// Codec is how float tensors are stored unless a put says otherwise. 0: Q8_0 where the width allows, else Raw. quant.Q4R is
	// denser and loses more: values (V) take 4.5 bits, all else is stored as with 0 (docs/llamacpp.md has what it costs).
	// Releases that don't know it find nothing where it was used, and say so.
	Codec quant.Codec
	// Compression is applied to planes that it makes at least 5 % smaller. 0: none.
	Compression quant.Compression

	// SegmentBytes is the size of a segment file. 0: 64 MiB, a sixteenth of the budget if that is less, and a 128th of it, up to 1 GiB, if
	// that is more: each file costs Open some microseconds, and a map.
	SegmentBytes int64
	// BloomFPR is the false-positive rate that the Bloom filter is sized for. 0: 0.001.
	BloomFPR float64

	// ReadOnly opens a store without changing a byte of it, and keeps nobody out: readers share it, also with a process that writes.
	// If that was there first, a reader sees what its last checkpoint wrote ([Stats.AsOf]), without what was deleted or evicted since; if it
	// came later, what there was before. [Store.Suspend] and [Store.Resume] bring a reader up to date. What is deleted or evicted after that
	// is found until its bytes are destroyed, and then [Gone]. A reader holds the index in memory: 200 bytes or so for each block.
	ReadOnly bool
	// AllowSharedDir accepts a directory and files that other users own or can write to: a program that runs as root in a container on a
	// folder of another owner needs it. Whoever can write there can make the store give wrong rows.
	AllowSharedDir bool
	// Progress is told about long work during Open (rebuilding a lost index). It is called from Open's goroutine.
	// Here as in all options of this name: the function must not call the store, which waits for it.
	Progress func(Progress)
	// Logger receives what an operator should know. Nil: slog.Default().
	Logger *slog.Logger
	// Observer is told of every turn that a runtime drove ([Model.Observe]), from the goroutine that did, at the end of the turn. It may
	// be called by several at once. Nil: nobody; [Stats.Turns] counts all the same.
	Observer func(Observation)

	// Inside is for the store's own tools and tests. Nobody else can name its type.
	Inside inside.Options
}

// Progress is how far long work has come:
//
//	type Progress struct {
//		What        string // "scan segments", "verify", "compact", "repair"
//		Done, Total int64  // bytes
//	}
type Progress = tally.Progress

// withDefaults fills in every zero field.
func (o Options) withDefaults() Options {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Budget, 4<<30)
	def(&o.MinFree, folder.MostMinFree)
	o.MinFree = max(o.MinFree, 0)
	def(&o.CheckpointBytes, min(64<<20, o.Budget/8))
	def(&o.SegmentBytes, max(1<<20, min(64<<20, o.Budget/16), min(1<<30, o.Budget/128)))
	if o.HighWater == 0 {
		o.HighWater = 0.70
	}
	if o.LowWater == 0 {
		o.LowWater = min(0.60, o.HighWater)
	}
	if o.Policy == nil {
		o.Policy = LRU()
	}
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = 5 * time.Second
	}
	if o.BloomFPR == 0 {
		o.BloomFPR = 0.001
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Inside.FS = o.Inside.Disk()
	return o
}

// maxBytes is beyond every disk, and leaves sums of sizes room: 1 EiB.
const maxBytes = 1 << 60

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o Options) Validate() error {
	o = o.withDefaults()
	bad := func(field string, value any, allowed string) error {
		return fmt.Errorf("db: Options.%s is %v: expected %s", field, value, allowed)
	}
	// The comparisons are of a form that NaN fails.
	switch {
	case !(o.Budget >= 1<<20 && o.Budget <= maxBytes):
		return bad("Budget", o.Budget, "1 MiB to 1 EiB, or 0 for 4 GiB")
	case o.MinFree > maxBytes:
		return bad("MinFree", o.MinFree, "at most 1 EiB, 0 for 256 MiB or a sixteenth of a smaller file system, or less for none")
	case o.MaxBlocks < 0:
		return bad("MaxBlocks", o.MaxBlocks, "a number of blocks, or 0 for no bound")
	case !(o.HighWater > 0 && o.HighWater <= 1):
		return bad("HighWater", o.HighWater, "a share of the budget, over 0 and up to 1, or 0 for 0.7")
	case !(o.LowWater > 0 && o.LowWater <= o.HighWater):
		return bad("LowWater", o.LowWater, fmt.Sprintf("a share of the budget, over 0 and up to HighWater, which is %v, or 0 for 0.6", o.HighWater))
	case o.Durability > Power:
		return bad("Durability", uint8(o.Durability), "Process (0) or Power (1)")
	case o.CheckpointInterval > 0 && o.CheckpointInterval < time.Millisecond:
		return bad("CheckpointInterval", o.CheckpointInterval, "a duration of 1 ms or more (5*time.Second, say), 0 for 5 s, or less for none")
	case o.CheckpointBytes < 0:
		return bad("CheckpointBytes", o.CheckpointBytes, "a number of bytes, or 0 for 64 MiB")
	case !(o.SegmentBytes >= 64<<10 && o.SegmentBytes <= 1<<40):
		return bad("SegmentBytes", o.SegmentBytes, "64 KiB to 1 TiB, or 0 for what suits the budget")
	case !(o.BloomFPR >= 1e-9 && o.BloomFPR <= 0.5):
		return bad("BloomFPR", o.BloomFPR, "1e-9 to 0.5, or 0 for 0.001")
	}
	if p, ok := o.Policy.(interface{ validate() error }); ok {
		if err := p.validate(); err != nil {
			return fmt.Errorf("db: Options.Policy: %w", err)
		}
	}
	return validCodecs("Options", o.Codec, o.Compression)
}

// validCodecs refuses what this release cannot write; 0 means that something else decides.
func validCodecs(of string, c quant.Codec, z quant.Compression) error {
	if c != 0 {
		if err := c.Check(); err != nil {
			return fmt.Errorf("db: %s.Codec is %d: %w, or 0 for the default", of, uint8(c), err)
		}
	}
	if err := z.Check(); err != nil {
		return fmt.Errorf("db: %s.Compression is %d: %w", of, uint8(z), err)
	}
	return nil
}

// String prints the options as they take effect.
func (o Options) String() string {
	o = o.withDefaults()
	return fmt.Sprintf("budget=%d min_free=%d max_blocks=%d water=%g..%g policy=%s durability=%s checkpoint=%s/%d segment=%d bloom_fpr=%g codec=%s compression=%s read_only=%t",
		o.Budget, o.MinFree, o.MaxBlocks, o.LowWater, o.HighWater, o.Policy.Name(), o.Durability, o.CheckpointInterval,
		o.CheckpointBytes, o.SegmentBytes, o.BloomFPR, codecName(o.Codec), o.Compression, o.ReadOnly)
}

func codecName(c quant.Codec) string {
	if c == 0 {
		return "default"
	}
	return c.String()
}

// engineOptions are the options of a store as its engine takes them.
func (s *Store) engineOptions() engine.Options {
	o := s.o
	return engine.Options{
		FS: o.Inside.FS, Logger: o.Logger, Kept: s.kept, Budget: o.Budget, MinFree: o.MinFree, MaxBlocks: o.MaxBlocks, HighWater: o.HighWater, LowWater: o.LowWater,
		Rank: func(l commit.Leaf) uint64 { return o.Policy.Rank(Leaf(l)) }, Power: o.Durability == Power,
		CheckpointInterval: o.CheckpointInterval, CheckpointBytes: o.CheckpointBytes, SegmentBytes: o.SegmentBytes, BloomFPR: o.BloomFPR,
		LogAhead: o.Inside.LogAhead, ReadOnly: o.ReadOnly, Alone: o.Inside.KeepOut, Beside: s.beside, Progress: o.Progress,
	}
}

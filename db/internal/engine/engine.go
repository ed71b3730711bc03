package engine

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/dormousekv/dormouse/db/internal/budget"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/checkpoint"
	"github.com/dormousekv/dormouse/db/internal/commit"
	"github.com/dormousekv/dormouse/db/internal/direct"
	"github.com/dormousekv/dormouse/db/internal/evict"
	"github.com/dormousekv/dormouse/db/internal/filter"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/journals"
	"github.com/dormousekv/dormouse/db/internal/lease"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/read"
	"github.com/dormousekv/dormouse/db/internal/remove"
	"github.com/dormousekv/dormouse/db/internal/space"
	"github.com/dormousekv/dormouse/db/internal/suspect"
	"github.com/dormousekv/dormouse/db/internal/tally"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// Engine is an open store's inside: what Suspend lets go of and Resume builds anew. Each room does one thing, and knows only the rooms that it was
// given when Open made it.
type Engine struct {
	Dir    string
	FS     vfs.FS
	Format folder.Format
	Hasher kv.Hasher
	o      Options
	log    *slog.Logger
	lock   *vfs.Lock // on FORMAT; nil if that is not there

	asOf    time.Time // of a reader: when what it shows was so
	logAsOf []string  // of a reader: the names of the log's files then

	// The files and what they say.
	Segments *segments.Set
	Index    *index.Index
	Catalog  *catalog.Catalog
	Ledger   *commit.Ledger // changes all three

	// What is found and read.
	Search prefix.Store
	Source read.Source
	Leases lease.Store
	Pins   *lease.Pins // what open matches rest on
	Filter *filter.Filter
	Judge  *suspect.Judge // of records that fail a check

	// What is written, kept within bounds, and deleted.
	Puts        write.Store
	Journals    *journals.Set
	Budget      *budget.Budget
	Checkpoints *checkpoint.Checkpoints
	Evictor     *evict.Evictor
	Space       *space.Space
	Remover     *remove.Remover
	Count       *tally.Counters

	Recovered Recovered

	workers *read.Workers
	ring    direct.Ring // of cold restores
	again   read.Again
	worker  worker
}

// Recovered is what Open found out. Nobody changes it afterwards.
type Recovered struct {
	Doubts []error       // why index.db was not used, if it is there
	Absent []index.Entry // records that the log names and a rebuild did not find
	Lost   []index.Entry // records that are not whole, of which nothing says that they had been durable
}

// Kept is what a store has over all of its engines, one after the other: each goes on with what the one before it left.
type Kept struct {
	Count tally.Counters
	Pins  *lease.Pins // what open matches rest on
	open  journals.Open
	uuid  kv.UUID // of the store; zero until it is open
}

// NewKept is what a store begins with.
func NewKept() *Kept { return &Kept{Pins: lease.NewPins(), open: journals.Open{}} }

// Path is that of a file of the store.
func (e *Engine) Path(name string) string { return filepath.Join(e.Dir, name) }

// SegmentPath is that of a segment's file.
func (e *Engine) SegmentPath(id uint64) string { return folder.SegmentPath(e.Dir, id) }

// View returns the current version of the index, for reading. Release it.
func (e *Engine) View() *index.View { return e.Index.View() }

// AsOf is when what a reader shows was so, and whether another process writes to the store; zero in a store that is open for writing.
func (e *Engine) AsOf() (at time.Time, besideWriter bool) { return e.asOf, e.o.Beside }

// Restores are those who match and restore: what can wait gives way to them.
func (e *Engine) Restores() *read.Crew { return &e.workers.Restores }

// Disk is the file system that the store was opened on.
func (e *Engine) Disk() vfs.FS { return e.o.FS }

// Signal wakes the background worker.
func (e *Engine) Signal() { e.worker.signal() }

package lock

import "fmt"

// Place is a lock's place in the order.
type Place interface{ place() }

// Order is the table: who has a lock may take those below it, and no other of the same place.
var Order = []struct {
	Place Place
	Use   string
}{
	{Match{}, "one match: what it found, whether it is closed"},
	{Checkpoint{}, "one checkpoint, reclaim, eviction or repair of leftovers at a time"},
	{Sessions{}, "which sessions are open; one is made, opened, listed or removed at a time"},
	{BloomRebuild{}, "one rebuild of the Bloom filter at a time"},
	{PublishGate{}, "a put holds it for reading from encoding to publishing; a checkpoint holds it while it switches log files"},
	{Commit{}, "one change of log, index and catalog at a time, so that the three agree"},
	{IndexKeep{}, "one checkpoint, compaction or check of index.db at a time"},
	{IndexWrite{}, "one transaction of the index at a time"},
	{Reclaim{}, "one destruction of dead records at a time"},
	{SegmentsSync{}, "one sync, sealing or closing of segments at a time"},
	{SegmentWipe{}, "of a segment: walking over it, destroying in it, cutting it"},
	{SegmentSync{}, "of a segment: held while it is synced"},
	{Appender{}, "of a model: where its next record goes"},
	{SegmentSpace{}, "of a segment: held while disk blocks are reserved"},
	{Measure{}, "one look at the sizes of all files at a time"},
	{Catalog{}, "models, refs, notes, tombstones"},
	{Pins{}, "blocks that an open match or put needs, and blocks that are being evicted"},
	{Recency{}, "uses of blocks that the index does not have yet"},
	{Usage{}, "what the files occupy, and what puts have reserved"},
	{PendingKeys{}, "keys that are put while the Bloom filter is read or built"},
	{LogTurn{}, "the turn to fsync the log"},
	{Log{}, "the log's file and its end"},
	{LogFiles{}, "the log files before the current one"},
	{SegmentsFolder{}, "one fsync of the segments' folder at a time"},
	{SegmentFile{}, "of a segment: its file, map, header and end"},
	{SessionFile{}, "of a session: its file and end"},
	{SegmentQueue{}, "records to be destroyed once no lease can see them"},
	{Leases{}, "the open leases"},
	{Segments{}, "which segments there are"},
	{Lifecycle{}, "operations under way, and who waits for the store (db/internal/lifecycle)"},
	{Index{}, "the versions of the index in memory"},
	{IndexFile{}, "one read transaction of index.db begins or ends at a time"},
	{Ring{}, "the buffers of direct reads, and which restore has them (db/internal/direct)"},
	{Reads{}, "one restore's direct reads under way, and what must be read again"},
}

// The places. Order says what each is for.
type (
	Lifecycle      struct{}
	Match          struct{}
	BloomRebuild   struct{}
	Checkpoint     struct{}
	PublishGate    struct{}
	Commit         struct{}
	IndexKeep      struct{}
	IndexWrite     struct{}
	Reclaim        struct{}
	SegmentsSync   struct{}
	SegmentWipe    struct{}
	SegmentSync    struct{}
	Appender       struct{}
	SegmentSpace   struct{}
	Measure        struct{}
	Catalog        struct{}
	Pins           struct{}
	Recency        struct{}
	Usage          struct{}
	PendingKeys    struct{}
	LogTurn        struct{}
	Log            struct{}
	LogFiles       struct{}
	SegmentsFolder struct{}
	SegmentFile    struct{}
	SegmentQueue   struct{}
	Leases         struct{}
	Segments       struct{}
	Sessions       struct{}
	SessionFile    struct{}
	Index          struct{}
	IndexFile      struct{}
	Ring           struct{}
	Reads          struct{}
)

func (Lifecycle) place()      {}
func (Match) place()          {}
func (BloomRebuild) place()   {}
func (Checkpoint) place()     {}
func (PublishGate) place()    {}
func (Commit) place()         {}
func (IndexKeep) place()      {}
func (IndexWrite) place()     {}
func (Reclaim) place()        {}
func (SegmentsSync) place()   {}
func (SegmentWipe) place()    {}
func (SegmentSync) place()    {}
func (Appender) place()       {}
func (SegmentSpace) place()   {}
func (Measure) place()        {}
func (Catalog) place()        {}
func (Pins) place()           {}
func (Recency) place()        {}
func (Usage) place()          {}
func (PendingKeys) place()    {}
func (LogTurn) place()        {}
func (Log) place()            {}
func (LogFiles) place()       {}
func (SegmentsFolder) place() {}
func (SegmentFile) place()    {}
func (SegmentQueue) place()   {}
func (Leases) place()         {}
func (Segments) place()       {}
func (Sessions) place()       {}
func (SessionFile) place()    {}
func (Index) place()          {}
func (IndexFile) place()      {}
func (Ring) place()           {}
func (Reads) place()          {}

// Name is a place's name, as the table in docs/internals.md has it.
func Name(p Place) string { return fmt.Sprintf("%T", p)[len("lock."):] }

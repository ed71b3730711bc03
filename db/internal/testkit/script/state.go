package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// scriptRun is a script under way: a store, used by what it exports alone, on a disk that can crash.
type scriptRun struct {
	dirs *crashtest.Dirs
	rnd  *rand.Rand // draws what "cut lose any" takes
	went bool       // each power cut is the loss of the volume, in the same boot
	nth  int64      // the call at which an "each" fails

	d       *crashfs.Disk
	s       *db.Store // nil: not open
	m       *db.Model // nil: retired
	o       scriptOptions
	model   string                 // that is used
	put0    map[string]int         // by model and prompt: the longest put
	tried   map[string]int         // and the longest that was begun
	frames  map[string]scriptFrame // by model and prompt: of the last put
	held    map[string]*db.Match
	talks   map[string]*talk // sessions by scope
	wasCut  bool             // the power was, at least once
	before  map[string]bool  // the segments that there were before the last compact
	found   *admin.Report    // of the last reopen
	judged  bool             // verify said what it expects of that
	poison  bool             // a call failed: Close may say so
	faults  scriptFaults
	pending *scriptPending // what was begun; nil: nothing
	through bool           // an "each" found no such call: the series is at its end
}

type scriptOptions struct {
	mode            db.Durability
	noHoles, coarse bool
	budget          int64
}

// scriptFrame is where the frame of a put lies in the log.
type scriptFrame struct {
	file string
	off  int64
	b    []byte
}

// talk is a session as a script knows it.
type talk struct {
	open *db.Session
	of   *db.Store  // that it was opened in
	is   []string   // acknowledged; nil: there is none
	may  [][]string // what is there instead if what was not acknowledged was done
	sure int        // so many frames of is are durable, or all that there is has been replaced since
}

// scriptPending is a command that waits in a call of the file system.
type scriptPending struct {
	waits, goOn, dead chan struct{}
	ended             chan error
	rule              *scriptRule // where it waits
}

// scriptFaults are asked before each call of the disk. Calls come from several goroutines.
type scriptFaults struct {
	mu    sync.Mutex
	rules []*scriptRule
}

type scriptRule struct {
	call    scriptCall
	skip    int64 // so many are let pass
	always  bool
	each    bool
	met     int64        // calls at which it did something
	do      func() error // called without the lock
	pending bool         // of begin and go
}

// scriptCall waits for a call of the file system: the last of its steps, behind the others.
type scriptCall struct {
	steps []string // "KIND FILES", the first that must come first
	seen  int      // of the steps before the last
}

// Script is one that was read.
type Script struct {
	State, Why string // green, red or "cannot run", and what the first line says

	file        string
	lines       []scriptLine
	drawn, each bool // has a cut whose loss is drawn; something that fails at each call
	cuts        bool // has a power cut
}

type scriptLine struct {
	n       int // in the file, from 1
	text    string
	choices []scriptChoice // the script runs with each
	ends    string         // "fails" or "may fail"
}

// scriptChoice is what a line does. Without do it is left out.
type scriptChoice struct {
	text string
	do   func(r *scriptRun, a []string) error
	args []string // of the pattern's groups
}

// number is the first number among what a pattern's groups matched.
func number(args ...string) (int, bool) {
	for _, a := range args {
		if n, err := strconv.Atoi(a); err == nil {
			return n, true
		}
	}
	return 0, false
}

// errScript is the error of a script that says nothing about the store: it is malformed, or asks for what is not there.
type errScript string

func (e errScript) Error() string { return string(e) }

func malformed(format string, args ...any) error { return errScript(fmt.Sprintf(format, args...)) }

// IsMalformed reports whether an error is that of a script that says nothing about the store: it is malformed, or asks for what is not there.
func IsMalformed(err error) bool { return errors.As(err, new(errScript)) }

// ctx is never done.
var ctx = context.Background()

package weights

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
)

// Files is what is known of the files that a server has loaded. What the server computes belongs to them, and not to whatever lies at their
// paths by now. It ends with the server.
type Files struct {
	Server

	mu     sync.Mutex
	paths  []string          // of all files: the model's parts, then the adapters
	stamps []modelfile.Stamp // of the files as the server has loaded them
	seen   []modelfile.Stamp // what lay at the paths at the last look
	hashes map[string]kv.Hash
	id     *layout.Identity
	idOf   string            // what the identity holds for beside the files
	inodes map[string]string // by path: the file that the server has mapped
	// strayed are paths at which another file lay. That the first one lies there again proves nothing: the server may have loaded the other.
	strayed map[string]bool
	altered bool // other bytes were in one of the files
	drops   int  // how often what slots hold became doubtful
	foul    int  // how often rows came into the server that are none of this model for their tokens: see [Files.Soil]
	soiling int  // requests at work that bring such rows
	check   *rehash
	said    string
	at      string // where the server listens, if somebody else runs it and that can be seen
}

// Server is what a look at files needs to know of the server.
type Server struct {
	API      *api.Client
	Base     *url.URL // where it answers
	Attached bool     // somebody else runs it
	Memo     string   // the file that remembers hashes
	Log      *slog.Logger
	Work     *sync.WaitGroup // whoever hashes files is counted there
	Ctx      context.Context // ends when nobody needs the hash any more
}

// New returns what is known of the files of a server: nothing yet.
func New(s Server) *Files { return &Files{Server: s, strayed: map[string]bool{}} }

// rehash is a look at all bytes of files with certain stamps.
type rehash struct {
	stamps []modelfile.Stamp
	done   chan struct{}
	same   bool
	err    error
}

// ErrAnew says that the server has loaded its files again, and other ones: it is to be prepared anew.
var ErrAnew = errors.New("the server has loaded other files")

// FilesOf returns the files that make up a model: its parts, then the adapters.
func FilesOf(model string, adapters []api.Adapter) ([]string, error) {
	out, err := gguf.Splits(model)
	for _, a := range adapters {
		out = append(out, a.Path)
	}
	return out, err
}

func stampsOf(paths []string) []modelfile.Stamp {
	out := make([]modelfile.Stamp, len(paths))
	for i, p := range paths {
		out[i] = modelfile.StampOf(p)
	}
	return out
}

// Of notes which files the server has. Files that were not known are taken as they are now.
func (l *Files) Of(paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Equal(l.paths, paths) {
		return
	}
	was := map[string]modelfile.Stamp{}
	for _, s := range l.stamps {
		was[s.Path] = s
	}
	now := stampsOf(paths)
	l.forget(paths, now)
	for i, s := range now {
		if before, ok := was[s.Path]; ok {
			l.stamps[i] = before
		}
	}
}

// Have reports whether all of these files are known.
func (l *Files) Have(paths []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(l.paths, p) })
}

// forget takes files for those that the server has loaded. The caller holds mu.
func (l *Files) forget(paths []string, stamps []modelfile.Stamp) {
	l.paths, l.stamps, l.seen = paths, slices.Clone(stamps), stamps
	l.hashes, l.id, l.inodes, l.strayed, l.altered, l.check = nil, nil, nil, map[string]bool{}, false, nil
	l.drops++
}

// Restarted notes that another process is the server now, which began after the last look. If the files are as they were then, it has loaded those.
// others reports whether they may differ from those that were hashed: then the model must be prepared anew.
func (l *Files) Restarted() (others bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := stampsOf(l.paths)
	l.inodes = nil
	l.drops++
	if slices.Equal(now, l.stamps) && len(l.strayed) == 0 && !l.altered && l.hashes != nil {
		return false
	}
	if slices.Equal(now, l.seen) {
		l.forget(l.paths, now)
	}
	l.hashes, l.id = nil, nil
	return true
}

// ListensAt notes where the server listens. If it listened elsewhere before, it is another process now.
func (l *Files) ListensAt(at string) {
	l.mu.Lock()
	before := l.at
	l.at = at
	l.mu.Unlock()
	if before != "" && at != "" && before != at {
		l.Restarted()
	}
}

// Doubtful reports whether the server may have loaded other files than those that were hashed.
func (l *Files) Doubtful() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.strayed) > 0 || l.altered
}

// Hashed is called when the files were hashed. It finds out which of them the server has mapped, and gives an error if that is not what was
// hashed, or if they changed meanwhile.
func (l *Files) Hashed(model string, id *layout.Identity, idOf string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	mapped := proc.MappedBy(l.Base)
	inodes := map[string]string{}
	for i, p := range l.paths {
		inode, gone := proc.InodeAt(mapped, p)
		if gone { // it was replaced before it was looked at
			l.stamps[i] = modelfile.Stamp{Path: p}
			return l.doubt(stampsOf(l.paths))
		}
		if inode != "" {
			inodes[p] = inode
		} else if began, ok := proc.StartOf(l.Base); ok && l.Attached && l.stamps[i].ChangedAfter(began) {
			l.stamps[i] = modelfile.Stamp{Path: p}
			return l.doubt(stampsOf(l.paths))
		}
	}
	if now := stampsOf(l.paths); !slices.Equal(now, l.stamps) {
		return ErrChanging
	}
	l.hashes, l.id, l.idOf, l.inodes = map[string]kv.Hash{model: id.Desc.Weights}, id, idOf, inodes
	for i, p := range l.paths[len(l.paths)-len(id.Adapters):] {
		l.hashes[p] = id.Adapters[id.IDs[i]]
	}
	return nil
}

// ErrChanging says that files change just now: who looks again knows more.
var ErrChanging = errors.New("the files of the model change just now")

// Known returns what was read of the files before, if that still holds: idOf says for what.
func (l *Files) Known(idOf string) *layout.Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idOf != idOf {
		return nil
	}
	return l.id
}

// Dropped returns how often the contents of slots became doubtful.
func (l *Files) Dropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drops
}

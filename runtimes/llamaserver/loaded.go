package llamaserver

import (
	"errors"
	"slices"
	"sync"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
)

// loaded is what is known of the files that a server has loaded. What the server computes belongs to them, and not to whatever lies at their
// paths by now. It outlives [Front.reset], and ends with the server.
type loaded struct {
	mu     sync.Mutex
	paths  []string          // of all files: the model's parts, then the adapters
	stamps []modelfile.Stamp // of the files as the server has loaded them
	seen   []modelfile.Stamp // what lay at the paths at the last look
	hashes map[string]kv.Hash
	id     *identity
	idOf   string            // what the identity holds for beside the files
	inodes map[string]string // by path: the file that the server has mapped
	// strayed are paths at which another file lay. That the first one lies there again proves nothing: the server may have loaded the other.
	strayed map[string]bool
	altered bool // other bytes were in one of the files
	drops   int  // how often what slots hold became doubtful
	foul    int  // how often rows came into the server that are none of this model for their tokens: see [loaded.soil]
	soiling int  // requests at work that bring such rows
	check   *rehash
	said    string
	at      string // where the server listens, if somebody else runs it and that can be seen
}

// rehash is a look at all bytes of files with certain stamps.
type rehash struct {
	stamps []modelfile.Stamp
	done   chan struct{}
	same   bool
	err    error
}

// errAnew says that the server has loaded its files again, and other ones: it is to be prepared anew.
var errAnew = errors.New("the server has loaded other files")

// filesOf are the files by which a model is known.
func filesOf(model string, adapters []api.Adapter) ([]string, error) {
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

// of says which files the server has. Those that were not known are taken as they are now.
func (l *loaded) of(paths []string) {
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

// have reports whether files are among those that are known.
func (l *loaded) have(paths []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(l.paths, p) })
}

// forget takes files for those that the server has loaded. The caller holds mu.
func (l *loaded) forget(paths []string, stamps []modelfile.Stamp) {
	l.paths, l.stamps, l.seen = paths, slices.Clone(stamps), stamps
	l.hashes, l.id, l.inodes, l.strayed, l.altered, l.check = nil, nil, nil, map[string]bool{}, false, nil
	l.drops++
}

// loadedBy is what is known of the files of a model. The caller holds f.mu.
func (f *Front) loadedBy(model string) *loaded {
	l := f.loaded[model]
	if l == nil {
		l = &loaded{strayed: map[string]bool{}}
		f.loaded[model] = l
	}
	return l
}

// willLoad is what a server that was just started will load. Files that are not there yet, it fetches itself.
func (f *Front) willLoad() map[string]*loaded {
	l := &loaded{strayed: map[string]bool{}}
	if paths, err := gguf.Splits(f.args.Model); err == nil && f.args.Model != "" && !f.args.Router {
		l.of(slices.DeleteFunc(append(paths, f.args.Adapters...), func(p string) bool { return modelfile.StampOf(p).File == "" }))
	}
	return map[string]*loaded{"": l}
}

// restarted says that another process is the server now, which began after the last look. If the files are what they were then, it has them. It reports
// whether they may be others than those that were hashed: then the model is to be prepared anew.
func (l *loaded) restarted() (others bool) {
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

// listensAt says where the server listens: elsewhere, it is another process.
func (l *loaded) listensAt(at string) {
	l.mu.Lock()
	before := l.at
	l.at = at
	l.mu.Unlock()
	if before != "" && at != "" && before != at {
		l.restarted()
	}
}

// doubtful reports whether the server may have other files than those that were hashed.
func (l *loaded) doubtful() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.strayed) > 0 || l.altered
}

// settle is called when the files were hashed. It finds out which of them the server has mapped, and gives an error if that is not what was
// hashed, or if they changed meanwhile.
func (l *loaded) settle(s *served, model string, id *identity, idOf string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	mapped := proc.MappedBy(s.front.base)
	inodes := map[string]string{}
	for i, p := range l.paths {
		inode, gone := proc.InodeAt(mapped, p)
		if gone { // it was replaced before it was looked at
			l.stamps[i] = modelfile.Stamp{Path: p}
			return l.doubt(s, stampsOf(l.paths))
		}
		if inode != "" {
			inodes[p] = inode
		} else if began, ok := proc.StartOf(s.front.base); ok && s.front.o.Attach != "" && l.stamps[i].ChangedAfter(began) {
			l.stamps[i] = modelfile.Stamp{Path: p}
			return l.doubt(s, stampsOf(l.paths))
		}
	}
	if now := stampsOf(l.paths); !slices.Equal(now, l.stamps) {
		return errChanging
	}
	l.hashes, l.id, l.idOf, l.inodes = map[string]kv.Hash{model: id.desc.Weights}, id, idOf, inodes
	for i, p := range l.paths[len(l.paths)-len(id.adapters):] {
		l.hashes[p] = id.adapters[id.ids[i]]
	}
	return nil
}

// errChanging says that files change just now: who looks again knows more.
var errChanging = errors.New("the files of the model change just now")

// known is what was read of the files before, if that holds for this server.
func (l *loaded) known(idOf string) *identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idOf != idOf {
		return nil
	}
	return l.id
}

// dropped counts how often what slots hold became doubtful.
func (l *loaded) dropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drops
}

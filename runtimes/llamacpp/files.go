package llamacpp

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
)

// files are those that the context's model was loaded from. A mapped model computes with what is in them now, so who writes into them
// changes the weights in use.
type files struct {
	path, memo string
	stamps     modelfile.Stamps
	loaded     modelfile.Mapped
	weights    kv.Hash // of what they held when that was their stamp; zero: the caller said what they hold
	bad        error   // what was found at these stamps
}

// filesOf is what an Attach begins with, before it reads them.
func filesOf(id Identity) *files {
	if id.Path == "" {
		return nil
	}
	f := &files{path: id.Path, memo: id.Memo, loaded: modelfile.MappedAs(id.Path)}
	f.stamps, _ = modelfile.StampsOf(f.path) // reading them says why not
	return f
}

// unchanged refuses a context whose model's files are not what they were. A file may have been moved away or replaced if the system
// tells that this process has the old one mapped. Else everything that changed is hashed once.
//
// What the sequences hold may have been computed while the files were others. If more than the time of change differs, doubt says
// why it must not be stored.
func (f *files) unchanged(ctx context.Context) (doubt string, _ error) {
	if f == nil {
		return "", nil
	}
	now, err := modelfile.StampsOf(f.path)
	change := now.Since(f.stamps)
	if err == nil && change == modelfile.Unchanged {
		return "", f.bad
	}
	if f.loaded.Still(now) {
		f.stamps, f.bad = now, nil
		return "", nil
	}
	const way = "load the model again and attach, or put the file back"
	if err != nil {
		return "", fmt.Errorf("%w: %w: whether the model in memory is still what was loaded from there is not known: %s", ErrIdentity, err, way)
	}
	var hash kv.Hash
	if f.weights != hash {
		if hash, err = modelfile.WeightsHash(ctx, f.path, f.memo); err != nil {
			return "", fmt.Errorf("llamacpp: weights: %w", err)
		}
	}
	if hash == f.weights && hash != (kv.Hash{}) && change == modelfile.Touched && f.bad == nil {
		f.stamps = now
		return "", nil
	}
	f.stamps, f.bad = now, nil
	if hash != f.weights || hash == (kv.Hash{}) {
		f.bad = fmt.Errorf("%w: %s was changed after the context was attached: the model in memory may compute with what is in it now: %s", ErrIdentity, f.path, way)
	}
	return fmt.Sprintf("it may have been evaluated while %s was another file: empty the sequence", f.path), f.bad
}

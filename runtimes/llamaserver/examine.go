package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
)

// Check is one thing that was looked at.
type Check struct {
	OK           bool
	What, Detail string
}

var errNotReady = errors.New("it did not get ready")

// Examine waits until the server answers, and says what will be kept of it and what not.
func (f *Front) Examine(ctx context.Context, within time.Duration) ([]Check, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if f.args.Router {
		for f.apiOf("").Health(ctx) != nil {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return nil, errNotReady
			}
		}
		return []Check{{true, "models", "the server starts one for each model: each is looked at when it is asked for"}}, nil
	}
	var s *served
	for s == nil || s.gone() { // the store was opened meanwhile, or the server started
		s = f.servedFor("")
		select {
		case <-s.hold.prepared:
		case <-ctx.Done():
			return nil, errNotReady
		}
	}
	p, err := s.api.Props(ctx)
	if err != nil {
		return nil, err
	}
	out := []Check{{true, "server", p.Build}, {p.TotalSlots > 0, "slots", fmt.Sprintf("%d, each for %d tokens", p.TotalSlots, p.Defaults.Context)}}
	k, err := s.ready()
	if err != nil {
		return append(out, Check{false, "model", err.Error()}), nil
	}
	d, lay := k.model.Descriptor(), k.lay
	out = append(out, Check{true, "model", fmt.Sprintf("%s (%s), %s", d.Name, d.Architecture, p.ModelPath)},
		f.slotFiles(), Check{true, "layout", fmt.Sprintf("slot files of version %d, %d layers, %d bytes a token", lay.Format.Version, layers(lay), d.TokenBytes())})
	if lay.Window > 0 {
		out = append(out, Check{true, "window", fmt.Sprintf("layers look back %d tokens: a long prompt can be restored at its end, and where the server made a checkpoint", lay.Window+1)})
	}
	if !f.args.KeepsIdle {
		out = append(out, Check{true, "idle slots", "the server clears them when another begins (--cache-idle-slots): they are saved before. With --cache-ram 0 they stay, and the server takes less memory"})
	}
	if p.Modalities.Vision || p.Modalities.Audio || p.Modalities.Video {
		out = append(out, Check{true, "media", "requests with images or sound pass as they are"})
	}
	return out, nil
}

// slotFiles says where slot files are.
func (f *Front) slotFiles() Check {
	is := f.folder.String()
	if f.folder.OnDisk() {
		is += ". A folder in memory, which --slot-dir names, spares the disk: a tmpfs, or /dev/shm"
	}
	return Check{true, "slot files", is}
}

func layers(lay *layout.Layout) (n int) {
	for _, s := range lay.Format.State.Sections {
		n += len(s.Layers)
	}
	return n
}

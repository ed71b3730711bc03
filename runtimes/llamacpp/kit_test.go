package llamacpp_test

import (
	"context"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
)

func options(decode llamacpp.DecodeFunc) llamacpp.Options {
	return llamacpp.Options{
		Identity: llamacpp.Identity{Weights: kv.Hash{1}, Tokenizer: kv.Hash{1}},
		Decode:   decode,
		Logger:   kit.Quiet,
	}
}

func attach(t kit.Fataler, store *db.Store, f *fake, change func(*llamacpp.Options)) *llamacpp.Session {
	o := options(f.Decode)
	if change != nil {
		change(&o)
	}
	s, err := llamacpp.Attach(context.Background(), store, f.library(), 1, o)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	if f.max(int32(o.Sequence)) >= 0 {
		t.Fatalf("attach left tokens in the sequence")
	}
	f.decode = 0
	return s
}

// kinds are the caches that a fake can have.
func kinds(name string) *fake {
	f := &fake{layers: []fakeLayer{{width: 8}, {width: 8}, {width: 4}}, streams: 1, contextLen: 4096}
	switch name {
	case "plain":
	case "channel-major":
		f.transposed = true
	case "reordered":
		f.reorder = true
	case "streams":
		f.streams = 3
	case "latent":
		f.latent = true
	case "window":
		f.window = 24
		f.layers[0].windowed, f.layers[2].windowed = true, true
	case "window, channel-major, reordered":
		f.window, f.transposed, f.reorder = 40, true, true
		f.layers[1].windowed = true
	case "window larger than prompts":
		f.window = 1024
		f.layers[1].windowed = true
	case "window, says its rotation":
		f.window, f.rotation = 24, new([2]int)
		f.layers[1].windowed = true
	case "windows only":
		f.window = 24
		for i := range f.layers {
			f.layers[i].windowed = true
		}
	}
	return f
}

var kindNames = []string{
	"plain", "channel-major", "reordered", "streams", "latent",
	"window", "window, channel-major, reordered", "window larger than prompts", "window, says its rotation", "windows only",
}
